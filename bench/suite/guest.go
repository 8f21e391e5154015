package suite

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"thaw/bench/machine"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/internal/unixfd"
	"thaw/rootfs"
	"thaw/vmm/vmmproc"
)

// readyTimeout bounds the wait for a guest's agent.
const readyTimeout = 30 * time.Second

// scratchSize is the writable disk's, in bytes: thawd's default.
const scratchSize = 1 << 30

// guest is a machine as thawd makes it for a job, whose agent is ready.
type guest struct {
	process *vmmproc.Process
	client  *agentclient.Client
	socket  string
}

// guestParts is what guests are made of; making it is not measured.
type guestParts struct {
	boot     machine.Boot
	template string // lower layer of the writable disk
}

func (e *env) guestParts(ctx context.Context) (*guestParts, error) {
	image, err := e.image(ctx, "python")
	if err != nil {
		return nil, err
	}
	initrd, err := e.initramfs(ctx, filepath.Join(e.cfg.Bin, "thaw-init"))
	if err != nil {
		return nil, err
	}
	template, err := rootfs.Scratch(ctx, scratchSize)
	if err != nil {
		return nil, err
	}
	return &guestParts{
		boot: machine.Boot{
			Kernel: e.kernel, Initrd: initrd, Arguments: "thaw.role=job", VCPUs: 1, MemoryMiB: 512,
			Disks: []machine.Disk{{Path: image, ReadOnly: true}},
		},
		template: template,
	}, nil
}

// startGuest makes a machine and waits for its agent.
func (e *env) startGuest(ctx context.Context, parts *guestParts) (g *guest, err error) {
	top, err := os.CreateTemp(e.dir, "top-")
	if err != nil {
		return nil, fmt.Errorf("suite: make disk: %w", err)
	}
	defer top.Close()
	defer os.Remove(top.Name())
	if err := top.Truncate(scratchSize); err != nil {
		return nil, fmt.Errorf("suite: make disk: %w", err)
	}
	template, err := os.Open(parts.template)
	if err != nil {
		return nil, fmt.Errorf("suite: open disk template: %w", err)
	}
	defer template.Close()
	g = &guest{socket: top.Name() + ".vsock"}
	listener, err := listen(g.socket)
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	ready := make(chan *net.UnixConn, 1)
	connect := func(port uint32) (*os.File, error) {
		if port != agentproto.ReadyPort {
			return nil, fmt.Errorf("suite: nothing listens on port %d", port)
		}
		ours, theirs, err := unixfd.PairConn(unixfd.Stream)
		if err == nil {
			ready <- ours
		}
		return theirs, err
	}

	g.process, err = e.thaw.Start(ctx, parts.boot, func(s *vmmproc.Spec) {
		s.Disks = append(s.Disks, vmmproc.Disk{ID: "vdb", Layers: []*os.File{template, top}})
		s.VsockListener, s.CID, s.Balloon, s.Connect = listener, 3, true, connect
	})
	if err != nil {
		return nil, err
	}
	if err := g.awaitReady(ctx, ready); err != nil {
		return nil, errors.Join(err, g.close())
	}
	g.client = agentclient.New(func(ctx context.Context) (net.Conn, error) { return dial(ctx, g.socket, agentproto.Port) })
	return g, nil
}

// awaitReady waits until the agent has dialled the ready port.
func (g *guest) awaitReady(ctx context.Context, ready <-chan *net.UnixConn) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	select {
	case c := <-ready:
		return c.Close()
	case <-ctx.Done():
		return machine.LastWords(ctx, g.process, fmt.Errorf("suite: agent is not ready: %w", context.Cause(ctx)))
	}
}

// close ends the machine.
func (g *guest) close() error {
	var errs []error
	if g.client != nil {
		errs = append(errs, g.client.Close())
	}
	errs = append(errs, g.process.Close(), os.Remove(g.socket))
	return errors.Join(errs...)
}
