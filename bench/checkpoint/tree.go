package checkpoint

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"thaw/guestinit/launch"
	"thaw/rootfs"
)

// tree is an image's file system, for programs that run on the host itself.
type tree struct {
	image string // file
	dir   string // empty folder: the mount point
	env   []string
}

// mountImage prepares to run programs of an image on the host.
func mountImage(ctx context.Context, name string) (*tree, error) {
	img, err := rootfs.Build(ctx, name, os.Stderr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "thaw-bench-tree-")
	if err != nil {
		return nil, fmt.Errorf("checkpoint: make mount point: %w", err)
	}
	env := []string{"HOME=/tmp"} // a job's would be missing here
	for k, v := range img.Manifest.Env {
		env = append(env, k+"="+v)
	}
	env = launch.Environment(env)
	slices.Sort(env)
	return &tree{image: img.Path, dir: dir, env: env}, nil
}

func (t *tree) close() { _ = os.Remove(t.dir) }

// inTree mounts an image where nobody else sees it, and runs Python in it as the jobs'
// user. What it mounts goes with the process.
const inTree = `set -e
mount --make-rprivate /
mount -t erofs -o ro,loop "$1" "$2"
mount -t proc proc "$2/proc"
mount -t tmpfs -o mode=1777 tmpfs "$2/tmp"
mount -t tmpfs tmpfs "$2/dev"
for d in null zero urandom; do
	: > "$2/dev/$d"
	mount --bind "/dev/$d" "$2/dev/$d"
done
exec "$(PATH=$PATH:/usr/sbin:/sbin command -v chroot)" --userspec=10001:10001 "$2" /usr/bin/python3 -B -c "$3"`

// python runs a Python program and returns what it printed.
func (t *tree) python(ctx context.Context, program string) (string, error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", inTree, "sh", t.image, t.dir, program)
	cmd.Env = t.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("checkpoint: run Python of the image on the host: %w: %s", err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}
