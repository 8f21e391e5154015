package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"thaw/api"
	"thaw/broker"
	"thaw/client"
)

// localFile is a file to upload and its name in the workspace.
type localFile struct {
	path, name string
}

// buildRequest turns the command line into a request whose handles are still to be
// filled in, and the files for them.
func buildRequest(o runOptions, args []string) (api.JobRequest, []localFile, error) {
	script := args[0]
	req := api.JobRequest{
		Script: filepath.Base(script), Args: args[1:], Runtime: o.image, Network: o.network, OutputTypes: o.types, Model: o.model, Requester: requester(),
	}
	if st, err := os.Stat(script); err != nil || !st.Mode().IsRegular() {
		if err == nil {
			err = errors.New("it is not a regular file")
		}
		return req, nil, api.Errorf(api.CodeScriptMissing, "script %q cannot be used", script).WithCause(err).
			WithRemedy("name a script that exists on this machine, after --")
	}
	var err error
	if req.Runtime == "" {
		if req.Runtime, err = broker.ImageFor(script); err != nil {
			return req, nil, err
		}
	}
	if req.Env, err = parseEnv(o.env); err != nil {
		return req, nil, err
	}
	if req.Limits, err = parseLimits(o.limits); err != nil {
		return req, nil, err
	}
	if o.timed {
		if o.timeout <= 0 || req.Limits.WallSeconds != 0 {
			return req, nil, api.Errorf(api.CodeRequestInvalid, "--timeout %s is refused: it must be positive, and not given beside --limit wall_seconds", o.timeout).
				WithRemedy("write for example --timeout 90s, and leave --limit wall_seconds out")
		}
		req.Limits.WallSeconds = wallSeconds(o.timeout)
	}
	files := []localFile{{script, req.Script}}
	for _, in := range o.in {
		more, err := expand(in)
		if err != nil {
			return req, nil, err
		}
		files = append(files, more...)
	}
	return req, files, nil
}

func requester() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

func parseEnv(pairs []string) (map[string]string, error) {
	env := map[string]string{}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, api.Errorf(api.CodeRequestInvalid, "--env %q is not NAME=VALUE", p).
				WithRemedy("write NAME=VALUE, or NAME= for an empty value")
		}
		env[k] = v
	}
	return env, nil
}

// parseLimits reads NAME=VALUE pairs. Ranges are the daemon's to check.
func parseLimits(pairs []string) (api.Limits, error) {
	var l api.Limits
	plain := map[string]*int64{"wall_seconds": &l.WallSeconds, "memory_mib": &l.MemoryMiB, "pids": &l.Pids, "output_files": &l.OutputFiles}
	bytes := map[string]*int64{"workspace_bytes": &l.WorkspaceBytes, "output_bytes": &l.OutputBytes, "stdout_bytes": &l.StdoutBytes}
	for _, p := range pairs {
		name, text, ok := strings.Cut(p, "=")
		var err error
		var n int64 = 1
		switch {
		case !ok:
			err = errors.New("there is no =")
		case name == "cpu_cores":
			l.CPUCores, err = strconv.ParseFloat(text, 64)
			switch {
			case err != nil:
				err = fmt.Errorf("%q is not a number", text)
			case l.CPUCores <= 0:
				err = errors.New("it is not positive")
			}
		case plain[name] != nil:
			if n, err = strconv.ParseInt(text, 10, 64); err != nil {
				err = fmt.Errorf("%q is not a whole number", text)
			}
			*plain[name] = n
		case bytes[name] != nil:
			n, err = parseBytes(text)
			*bytes[name] = n
		default:
			err = errors.New("there is no such limit")
		}
		if err == nil && n <= 0 {
			err = errors.New("it is not positive")
		}
		if err != nil {
			return l, api.Errorf(api.CodeRequestInvalid, "--limit %q is not understood", p).WithCause(err).
				WithRemedy("write NAME=VALUE with one of: %s", strings.Join(limitNames(plain, bytes), ", "))
		}
	}
	return l, nil
}

func limitNames(sets ...map[string]*int64) []string {
	names := []string{"cpu_cores"}
	for _, s := range sets {
		for n := range s {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names
}

// parseBytes reads a number of bytes with an optional K, M or G (powers of 1024).
func parseBytes(text string) (int64, error) {
	shift := 0
	if i := strings.IndexByte("KMG", (text + " ")[max(0, len(text)-1)]); i >= 0 && text != "" {
		shift, text = 10*(i+1), text[:len(text)-1]
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errors.New("it is not a whole number of bytes, with or without K, M or G")
	}
	if n > 1<<62>>shift {
		return 0, errors.New("it is too large")
	}
	return n << shift, nil
}

// expand lists the files of one --in. A file keeps its base name; a folder's files
// go below its base name, or straight into the workspace when it ends in a slash.
func expand(in string) ([]localFile, error) {
	fail := func(err error) error {
		return api.Errorf(api.CodeRequestInvalid, "input %q cannot be used", in).WithCause(err).
			WithRemedy("name files, or folders of files and folders alone, that exist on this machine")
	}
	st, err := os.Stat(in)
	if err != nil {
		return nil, fail(err)
	}
	if st.Mode().IsRegular() {
		return []localFile{{in, filepath.Base(in)}}, nil
	}
	if !st.IsDir() {
		return nil, fail(errors.New("it is neither a file nor a folder"))
	}
	prefix := ""
	if !strings.HasSuffix(in, string(filepath.Separator)) {
		prefix = filepath.Base(in)
	}
	var files []localFile
	err = filepath.WalkDir(in, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is not a regular file", p)
		}
		rel, err := filepath.Rel(in, p)
		if err != nil {
			return err
		}
		files = append(files, localFile{p, filepath.ToSlash(filepath.Join(prefix, rel))})
		return nil
	})
	if err != nil {
		return nil, fail(err)
	}
	return files, nil
}

// upload sends the files and notes their handles in the request.
func upload(ctx context.Context, c *client.Client, req *api.JobRequest, files []localFile) error {
	for _, file := range files {
		f, err := os.Open(file.path)
		if err != nil {
			return api.Errorf(api.CodeRequestInvalid, "input %q cannot be read", file.path).WithCause(err)
		}
		in, err := c.AddInput(ctx, f)
		f.Close()
		if err != nil {
			var e *api.Error
			if errors.As(err, &e) && e.Cause == "" {
				return e.WithCause(fmt.Errorf("while uploading %s", file.path))
			}
			return err
		}
		req.Inputs = append(req.Inputs, api.InputRef{Name: file.name, Input: in.Input})
	}
	return nil
}
