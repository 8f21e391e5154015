package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"thaw/vmm/vmmproc/vmmchild"
	"thaw/vmm/vmmproto"
)

// machine does one deed when it runs.
type machine struct {
	deed string
	vmmchild.Request

	stop     chan struct{}
	stopOnce sync.Once
	deaf     chan struct{} // closed when the control socket is not read any more
	mu       sync.Mutex
	console  []byte
	paused   bool
	balloon  uint64 // MiB
}

func newMachine(r vmmchild.Request) (vmmchild.Machine, error) {
	m := &machine{deed: r.Start.Cmdline, Request: r, stop: make(chan struct{}), deaf: make(chan struct{})}
	switch m.deed {
	case "no machine":
		return nil, errors.New("kvm: create vm: no such device\x1b[31m")
	case "silent start":
		time.Sleep(time.Hour)
	case "panic at start":
		panic("probe: asked to panic at start")
	}
	m.print("probe: " + m.deed + "\n") // before any request can print: Run may begin later
	return m, nil
}

func (m *machine) Run(ctx context.Context) (vmmproto.Exited, error) {
	deed, ok := deeds[m.deed]
	if !ok {
		return vmmproto.Exited{}, fmt.Errorf("no deed %q", m.deed)
	}
	return deed(m)
}

// idle waits for Stop.
func (m *machine) idle() (vmmproto.Exited, error) {
	<-m.stop
	return vmmproto.Exited{Reason: vmmproto.Stopped}, nil
}

func (m *machine) print(s string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.console = append(m.console, s...)
}

func (m *machine) Console() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]byte(nil), m.console...)
}

func (m *machine) Pause() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.paused {
		return errors.New("already paused")
	}
	m.paused = true
	return nil
}

func (m *machine) Resume() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.paused = false
	return nil
}

func (m *machine) Stop() { m.stopOnce.Do(func() { close(m.stop) }) }

func (m *machine) Stats() map[string]uint64 {
	if m.deed == "connects without reading" {
		close(m.deaf)
		<-m.stop // never answers
	}
	return map[string]uint64{"probe.files": uint64(len(m.Files))}
}

func (m *machine) SetBalloon(mib uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mib > 64 {
		return errors.New("more than there is")
	}
	m.balloon = mib
	return nil
}

// MemoryStats never comes while the balloon is empty.
func (m *machine) MemoryStats(ctx context.Context) (map[string]uint64, error) {
	m.mu.Lock()
	mib := m.balloon
	m.mu.Unlock()
	if mib == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return map[string]uint64{"free_memory": mib << 20}, nil
}

func (m *machine) Phases() []vmmproto.Phase {
	return []vmmproto.Phase{vmmchild.Within("machine", "nothing at all", 0)}
}

// echo connects to a port, and prints what comes back for a line that it sends.
func (m *machine) echo(port uint32) error {
	stream, err := m.Connect(port)
	if err != nil {
		return err
	}
	defer stream.Close()
	if _, err := fmt.Fprintf(stream, "hello from port %d\n", port); err != nil {
		return err
	}
	buf := make([]byte, 64)
	n, err := stream.Read(buf)
	if err != nil {
		return err
	}
	m.print("echo: " + strings.TrimSpace(string(buf[:n])) + "\n")
	return nil
}

// packet is a message as it is sent.
func packet(m vmmproto.Message) string {
	b, err := vmmproto.Encode(m)
	if err != nil {
		panic(err) // of constants
	}
	return string(b)
}

// raw sends bytes to the daemon around the protocol.
func raw(packet string) {
	os.NewFile(3, "control").Write([]byte(packet))
}

// Restore and Save answer with what they were given, in the order in which it came.
func (m *machine) Restore(r *vmmproto.Restore, f vmmchild.RestoreFiles) (vmmproto.Restored, error) {
	files := append([]*os.File{f.State, f.Plan, f.Base}, f.Overlays...)
	for _, layers := range f.Layers {
		files = append(files, layers...)
	}
	list, err := contents(append(files, f.Record, f.Stream))
	if err != nil || !r.InPlace && f.Pagemap == nil {
		return vmmproto.Restored{}, fmt.Errorf("files %v, page map %v: %w", list, f.Pagemap, err)
	}
	m.print(fmt.Sprint("restored from ", list, "\n"))
	return vmmproto.Restored{Private: len(list)}, nil
}

func (m *machine) Save(s *vmmproto.Save, f vmmchild.SaveFiles) (vmmproto.Saved, error) {
	if s.Tracker == "none" {
		return vmmproto.Saved{}, errors.New("no such tracker")
	}
	list, err := contents(append([]*os.File{f.State, f.Memory}, f.Tops...))
	m.print(fmt.Sprint("saved to ", list, "\n"))
	return vmmproto.Saved{Pages: len(list), PauseMicros: 1500}, err
}

func (m *machine) Changes() (vmmproto.Changed, error) {
	return vmmproto.Changed{Differ: 3, Looked: 8}, nil
}

// contents reads the files that are there, and closes them.
func contents(files []*os.File) (list []string, err error) {
	for _, f := range files {
		if f == nil {
			continue
		}
		b := make([]byte, 64)
		n, err := f.ReadAt(b, 0)
		if err != nil && err != io.EOF {
			return list, err
		}
		list = append(list, string(b[:n]))
		f.Close()
	}
	return list, nil
}
