package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"thaw/lab/labproto"
)

// serve answers the host until the port ends.
func serve() error {
	port, err := openPort("/sys/class/virtio-ports", "/dev")
	if err != nil {
		return err
	}
	if _, err := port.WriteString(labproto.Hello); err != nil {
		return fmt.Errorf("labinit: greet host: %w", err)
	}
	session, err := yamux.Server(port, labproto.MuxConfig())
	if err != nil {
		return fmt.Errorf("labinit: start session: %w", err)
	}
	for {
		s, err := session.AcceptStream()
		if err != nil {
			return fmt.Errorf("labinit: session ended: %w", err)
		}
		go handle(s)
	}
}

// openPort opens the virtio-serial port by its name.
func openPort(class, dev string) (*os.File, error) {
	names, err := filepath.Glob(class + "/*/name")
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil || string(bytes.TrimSpace(b)) != labproto.PortName {
			continue
		}
		path := filepath.Join(dev, filepath.Base(filepath.Dir(n)))
		// Non-blocking, so that Go's poller waits and not a thread per read.
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("labinit: open port %s: %w", path, err)
		}
		return os.NewFile(uintptr(fd), path), nil
	}
	return nil, fmt.Errorf("labinit: no virtio port named %s", labproto.PortName)
}

// handle serves one stream.
func handle(s net.Conn) {
	defer s.Close()
	r := labproto.NewReader(s)
	var req labproto.Request
	err := labproto.ReadJSON(r, labproto.TypeRequest, &req)
	if err == nil {
		err = req.Check()
	}
	if err == nil {
		switch req.Op {
		case labproto.OpExec:
			err = serveExec(s, r, req)
		case labproto.OpConnect:
			err = serveConnect(s, req)
		case labproto.OpSignal:
			err = serveSignal(s, req)
		case labproto.OpInfo:
			err = serveInfo(s)
		}
	}
	if err != nil {
		// The host learns why; if it can't be told it has gone.
		_ = labproto.WriteJSON(s, labproto.TypeReply, labproto.Reply{Error: err.Error()})
	}
}

func serveConnect(s net.Conn, req labproto.Request) error {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: req.Path, Net: "unix"})
	if err != nil {
		return fmt.Errorf("labinit: %w", err)
	}
	if err := labproto.WriteJSON(s, labproto.TypeReply, labproto.Reply{}); err != nil {
		c.Close()
		return err
	}
	labproto.Splice(c, s)
	return nil
}

func serveInfo(s net.Conn) error {
	info, err := info()
	if err != nil {
		return err
	}
	return labproto.WriteJSON(s, labproto.TypeReply, labproto.Reply{Info: &info})
}

func info() (labproto.Info, error) {
	var u unix.Utsname
	var si unix.Sysinfo_t
	names, err := controllers("/sys/fs/cgroup")
	missing, errMissing := missingModules()
	if err := errors.Join(err, errMissing, unix.Uname(&u), unix.Sysinfo(&si)); err != nil {
		return labproto.Info{}, fmt.Errorf("labinit: describe lab: %w", err)
	}
	return labproto.Info{
		Kernel:        unix.ByteSliceToString(u.Release[:]),
		UptimeSeconds: float64(si.Uptime),
		CPUs:          runtime.NumCPU(),
		MemoryBytes:   si.Totalram * uint64(si.Unit),
		Controllers:   names,
		Missing:       missing,
	}, nil
}
