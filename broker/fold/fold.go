// Package fold changes the disks in a machine's state file: which layer holds which
// block. Snapshots carry that index without understanding it, and devices know of no
// snapshots; this package knows both, and nothing else of a machine.
//
//	state file ─▶ "machine" ─▶ devices[i] ─▶ block ─▶ disk: index    decoded, changed
//	                  └────────────┴───────────┴─ all else           kept byte for byte
//
// State files are what a VMM wrote: hostile. Errors wrap ErrState.
package fold

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/fxamacker/cbor/v2"

	"thaw/snapshot/format"
	"thaw/virtio/block/disk"
)

// ErrState says that the disks in a state file are not such as were asked for.
var ErrState = disk.ErrState

// Disks implements store.DiskFolder. Layers of a disk are counted from the lowest, 0,
// without the empty top that a writable one has in its state.
type Disks struct{}

// Rebase returns the state of a machine that was just saved as if it had run on the
// layers that parent's state knows, whatever the files were that it was given: only what
// the last frozen layer of each writable disk holds is taken from it. layers has how many
// there are below that layer, for each disk. A nil parent, of a template, changes
// nothing: then the state must have these layers itself.
func (Disks) Rebase(state, parent []byte, layers map[string]int) ([]byte, error) {
	s, err := openState(state)
	if err != nil {
		return nil, err
	}
	if len(s.disks) != len(layers) {
		return nil, fmt.Errorf("fold: state of %d disks, not %d: %w", len(s.disks), len(layers), ErrState)
	}
	var below *machine
	if parent != nil {
		if below, err = openState(parent); err != nil {
			return nil, err
		}
	}
	for id, n := range layers {
		d := s.disks[id]
		if d == nil {
			return nil, fmt.Errorf("fold: no disk %.20q in the state: %w", id, ErrState)
		}
		if below != nil {
			if err := d.rebase(below.disks[id], n); err != nil {
				return nil, fmt.Errorf("fold: disk %s: %w", id, err)
			}
		}
		want := n
		if !d.readOnly {
			want += 2 // what was frozen, and the top
		}
		if d.index.Layers != want {
			return nil, fmt.Errorf("fold: disk %s has %d layers, not %d: %w", id, d.index.Layers, want, ErrState)
		}
	}
	return s.encode()
}

// rebase puts what d's last frozen layer holds on n layers that below knows.
func (d *device) rebase(below *device, n int) error {
	if below == nil || below.readOnly != d.readOnly || below.index.Size != d.index.Size {
		return fmt.Errorf("not the parent's: %w", ErrState)
	}
	if d.readOnly {
		d.index = below.index
		return nil
	}
	if below.index.Layers != n+1 {
		return fmt.Errorf("parent of %d layers, not %d: %w", below.index.Layers, n+1, ErrState)
	}
	index, err := d.index.Rebase(below.index)
	if err == nil {
		d.index = index
	}
	return err
}

// Fold returns the state with the layers of disk id from first up to, not including,
// last made one, and writes that one to out, unless that is nil. Of files only these
// layers are read. Errors too: those of files.
func (Disks) Fold(ctx context.Context, state []byte, id string, files []*os.File, first, last int, out *os.File) ([]byte, error) {
	s, err := openState(state)
	if err != nil {
		return nil, err
	}
	d := s.disks[id]
	if d == nil {
		return nil, fmt.Errorf("fold: no disk %.20q in the state: %w", id, ErrState)
	}
	layers := d.index.Layers
	if !d.readOnly {
		layers--
	}
	if first < 1 || first >= last || last > layers || out != nil && last > len(files) {
		return nil, fmt.Errorf("fold: layers %d to %d of %d: %w", first, last, layers, ErrState)
	}
	if out != nil {
		if err := d.index.CopyBlocks(ctx, out, files, first, last); err != nil {
			return nil, fmt.Errorf("fold: disk %s: %w", id, err)
		}
	}
	d.index = d.index.Fold(first, last)
	return s.encode()
}

// object is a CBOR map of which some fields are looked at.
type object map[string]cbor.RawMessage

// machine is a state file with the disks of its machine.
type machine struct {
	file    *format.File
	fields  object
	devices []object
	disks   map[string]*device
}

// device is a block device in a state.
type device struct {
	place    int // among the devices
	block    object
	readOnly bool
	index    disk.State
}

// Names of what is looked at: those of vmm.State and block.State.
const (
	fieldDevices  = "devices"
	fieldBlock    = "block"
	fieldID       = "id"
	fieldReadOnly = "read_only"
	fieldDisk     = "disk"
)

func openState(state []byte) (*machine, error) {
	file, err := format.Read(bytes.NewReader(state), format.Limits{})
	if err != nil {
		return nil, fmt.Errorf("fold: read state: %w: %w", err, ErrState)
	}
	m := &machine{file: file, disks: map[string]*device{}}
	b, err := file.Section(format.SectionMachine)
	if err != nil {
		return nil, fmt.Errorf("fold: read state: %w: %w", err, ErrState)
	}
	if err := decode(b, &m.fields); err != nil {
		return nil, err
	}
	if err := m.fields.get(fieldDevices, &m.devices); err != nil {
		return nil, err
	}
	for i, fields := range m.devices {
		if fields[fieldBlock] == nil {
			continue
		}
		d, id := &device{place: i}, ""
		if err := fields.get(fieldBlock, &d.block); err != nil {
			return nil, err
		}
		for name, v := range map[string]any{fieldID: &id, fieldReadOnly: &d.readOnly, fieldDisk: &d.index} {
			if err := d.block.get(name, v); err != nil {
				return nil, err
			}
		}
		if err := d.index.Validate(d.readOnly); err != nil {
			return nil, fmt.Errorf("fold: disk %.20q: %w", id, err)
		}
		if m.disks[id] != nil {
			return nil, fmt.Errorf("fold: disk %.20q twice: %w", id, ErrState)
		}
		m.disks[id] = d
	}
	return m, nil
}

// encode returns the state file with the disks as they are now.
func (m *machine) encode() ([]byte, error) {
	for _, d := range m.disks {
		if err := d.block.set(fieldDisk, d.index); err != nil {
			return nil, err
		}
		if err := m.devices[d.place].set(fieldBlock, d.block); err != nil {
			return nil, err
		}
	}
	if err := m.fields.set(fieldDevices, m.devices); err != nil {
		return nil, err
	}
	var w format.Writer
	for _, name := range m.file.Names() {
		b, err := m.file.Section(name)
		if err == nil && name == format.SectionMachine {
			b, err = format.Marshal(m.fields)
		}
		if err == nil {
			err = w.Add(name, b)
		}
		if err != nil {
			return nil, fmt.Errorf("fold: write state: %w: %w", err, ErrState)
		}
	}
	out := bytes.NewBuffer(make([]byte, 0, w.Size()))
	if _, err := w.WriteTo(out); err != nil {
		return nil, fmt.Errorf("fold: write state: %w", err)
	}
	return out.Bytes(), nil
}

func (o object) get(name string, v any) error {
	if o[name] == nil {
		return fmt.Errorf("fold: no %q in the state: %w", name, ErrState)
	}
	return decode(o[name], v)
}

func (o object) set(name string, v any) error {
	b, err := format.Marshal(v)
	if err != nil {
		return fmt.Errorf("fold: encode %q: %w", name, err)
	}
	o[name] = b
	return nil
}

func decode(b []byte, v any) error {
	if err := format.Unmarshal(b, v); err != nil {
		return fmt.Errorf("fold: %w: %w", err, ErrState)
	}
	return nil
}
