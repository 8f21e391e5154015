package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"thaw/api"
)

// Artifact copies an artifact's bytes to w, at most its size, and compares the digest.
func (c *Client) Artifact(ctx context.Context, job string, a api.Artifact, w io.Writer) error {
	var parts []string
	for p := range strings.SplitSeq(a.Path, "/") {
		parts = append(parts, url.PathEscape(p))
	}
	resp, err := c.do(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(job)+"/artifacts/"+strings.Join(parts, "/"), nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, sum), io.LimitReader(resp.Body, a.Size+1))
	if err != nil {
		return fmt.Errorf("client: fetch artifact %q: %w", a.Path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); n != a.Size || got != a.SHA256 {
		return fmt.Errorf("client: artifact %q has %d bytes and digest %s; the manifest says %d and %s", a.Path, n, got, a.Size, a.SHA256)
	}
	return nil
}

// SaveArtifacts writes a job's artifacts below dir. Names are as hostile as the
// job: the directory is opened as a root that no name, link or ".." leads out of,
// a file that is there already is replaced and never written through, and new
// files cannot be executed.
func (c *Client) SaveArtifacts(ctx context.Context, job string, artifacts []api.Artifact, dir string) error {
	if len(artifacts) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("client: make output directory: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("client: open output directory: %w", err)
	}
	defer root.Close()
	for _, a := range artifacts {
		if err := c.save(ctx, job, a, root); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) save(ctx context.Context, job string, a api.Artifact, root *os.Root) error {
	if err := api.CheckPath(a.Path); err != nil {
		return fmt.Errorf("client: artifact %q: %w", a.Path, err)
	}
	if parent := path.Dir(a.Path); parent != "." {
		if err := root.MkdirAll(parent, 0o755); err != nil {
			return fmt.Errorf("client: save artifact %q: %w", a.Path, err)
		}
	}
	// A name of its own: one made of the artifact's could be too long, or somebody's.
	part := path.Join(path.Dir(a.Path), ".thaw-"+rand.Text())
	f, err := root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("client: save artifact %q: %w", a.Path, err)
	}
	err = c.Artifact(ctx, job, a, f)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = root.Rename(part, a.Path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("client: save artifact %q: %w", a.Path, err), root.Remove(part))
	}
	return nil
}
