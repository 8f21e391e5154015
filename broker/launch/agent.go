package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/boot"
	"thaw/broker/collect"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// outDir is the output directory below /workspace.
const outDir = "out"

// agent implements broker.Agent with the guest protocol's client.
type agent struct {
	client *agentclient.Client
	env    []string // of the image; the job's own variables replace these
}

// Put implements broker.Agent.
func (a agent) Put(ctx context.Context, name string, mode uint32, size int64, r io.Reader) error {
	return a.client.PutFile(ctx, name, mode, size, r)
}

// Start implements broker.Agent. The output directory is made first, by the job's
// own user.
func (a agent) Start(ctx context.Context, e broker.Exec, stdout, stderr io.Writer) (broker.Process, error) {
	if err := a.makeOut(ctx); err != nil {
		return nil, err
	}
	p, err := a.exec(ctx, e, stdout, stderr)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// makeOut makes the output directory.
func (a agent) makeOut(ctx context.Context) error {
	mkdir, err := a.client.Exec(ctx, agentproto.ExecRequest{Argv: []string{"/bin/mkdir", "-p", "/workspace/" + outDir}}, agentclient.ExecIO{})
	if err != nil {
		return fmt.Errorf("launch: make output directory: %w", err)
	}
	switch s, err := mkdir.Wait(); {
	case err != nil:
		return fmt.Errorf("launch: make output directory: %w", err)
	case s.Cause != agentproto.CauseExited || s.Code != 0:
		return fmt.Errorf("launch: make output directory: mkdir ended with code %d (%s)", s.Code, s.Cause)
	}
	return nil
}

// request is what the agent is asked for.
func (a agent) request(e broker.Exec) agentproto.ExecRequest {
	return agentproto.ExecRequest{
		Argv: e.Argv, Env: mergeEnv(a.env, e.Env), StdoutCap: guestCap(e.OutputBytes), StderrCap: guestCap(e.OutputBytes),
		Limits: agentproto.Limits{MemoryBytes: e.MemoryBytes, Pids: e.Pids, CPUMilli: e.CPUMilli},
	}
}

// exec starts a program of its own.
func (a agent) exec(ctx context.Context, e broker.Exec, stdout, stderr io.Writer) (process, error) {
	p, err := a.client.Exec(ctx, a.request(e), agentclient.ExecIO{Stdout: stdout, Stderr: stderr})
	if err != nil {
		return process{}, err
	}
	return process{p, false, ""}, nil
}

// mergeEnv is base with the variables of over, which win, each name once.
func mergeEnv(base, over []string) []string {
	value := map[string]string{}
	for _, kv := range slices.Concat(base, over) {
		k, v, _ := strings.Cut(kv, "=")
		value[k] = v
	}
	out := make([]string, 0, len(value))
	for _, k := range slices.Sorted(maps.Keys(value)) {
		out = append(out, k+"="+value[k])
	}
	return out
}

// guestCap is the cap that the agent keeps. It holds the tail in the guest's
// memory; above what it can hold there, the broker alone counts, and keeps the head.
func guestCap(n int64) int64 {
	if n > agentproto.MaxOutputCap {
		return 0
	}
	return n
}

type process struct {
	p     *agentclient.Process
	asked bool   // an interpreter that waited was asked to run it
	fresh string // why another one had to after all
}

// Signal implements broker.Process.
func (p process) Signal(sig unix.Signal) error { return p.p.Signal(int(sig)) }

// Wait implements broker.Process.
func (p process) Wait() (broker.ExitStatus, error) {
	s, err := p.p.Wait()
	if err != nil {
		return broker.ExitStatus{}, err
	}
	exit := api.Exit{Code: int(s.Code), Signal: int(s.Signal), Cause: string(s.Cause), Detail: boot.Printable(s.Detail)}
	if s.Signal != 0 {
		exit.Code = 128 + exit.Signal
	}
	ms := time.Duration.Milliseconds
	return broker.ExitStatus{
		Exit: exit,
		Usage: api.Usage{
			CPUUserMS: ms(s.Usage.CPUUser), CPUSystemMS: ms(s.Usage.CPUSystem), PeakMemoryBytes: s.Usage.MemoryPeak, DiskBytes: s.Usage.DiskUsed,
		},
		StdoutDropped: s.StdoutDropped, StderrDropped: s.StderrDropped, NoOutputs: s.NoOutputs,
		Warm: p.asked && p.fresh == "", WhyFresh: p.fresh,
	}, nil
}

// Outputs implements broker.Agent.
func (a agent) Outputs() collect.Tree { return tree{a.client} }

// tree is the output directory.
type tree struct {
	client *agentclient.Client
}

var modeOf = map[agentproto.FileType]uint32{
	agentproto.TypeFile: unix.S_IFREG, agentproto.TypeDir: unix.S_IFDIR, agentproto.TypeSymlink: unix.S_IFLNK, agentproto.TypeFIFO: unix.S_IFIFO,
	agentproto.TypeSocket: unix.S_IFSOCK, agentproto.TypeChar: unix.S_IFCHR, agentproto.TypeBlock: unix.S_IFBLK,
}

// List implements collect.Tree. A job may have removed its output directory, or put
// something else there: then there are no outputs.
func (t tree) List(ctx context.Context, limit int) ([]collect.File, bool, error) {
	infos, err := t.client.ListFiles(ctx, outDir, limit)
	more := errors.Is(err, agentclient.ErrTruncated)
	switch {
	case errors.Is(err, agentproto.ErrNotFound), errors.Is(err, agentproto.ErrSymlink), errors.Is(err, agentproto.ErrNotRegular):
		return nil, false, nil
	case err != nil && !more:
		return nil, false, err
	}
	files := make([]collect.File, 0, len(infos))
	for _, i := range infos {
		// A path that is not below the directory keeps its name and is refused for it.
		path, ok := strings.CutPrefix(i.Path, outDir+"/")
		if !ok {
			path = "/" + i.Path
		}
		files = append(files, collect.File{Path: path, Mode: modeOf[i.Type] | i.Mode&0o7777, Size: i.Size, Links: i.Nlink})
	}
	return files, more, nil
}

// Read implements collect.Tree.
func (t tree) Read(ctx context.Context, path string, w io.Writer, limit int64) error {
	_, err := t.client.GetFile(ctx, outDir+"/"+path, w, limit)
	return err
}
