package vmmchild

import (
	"os"

	"thaw/vmm/vmmproto"
)

// RestoreFiles are the descriptors of a Restore.
type RestoreFiles struct {
	State, Plan *os.File
	Base        *os.File // or nil
	Overlays    []*os.File
	Layers      [][]*os.File // of each disk, bottom first
	Pagemap     *os.File     // or nil
	Userfault   *os.File     // or nil
	Record      *os.File     // or nil
	Stream      *os.File     // or nil
}

// SaveFiles are the descriptors of a Save.
type SaveFiles struct {
	State     *os.File
	Memory    *os.File // or nil
	Tops      []*os.File
	Userfault *os.File // or nil
}

// taker takes descriptors in the order in which they travelled. The decoder has checked that there are as many as
// the message says.
type taker []*os.File

func (t *taker) one(has bool) *os.File {
	if !has {
		return nil
	}
	return t.some(1)[0]
}

func (t *taker) some(n int) []*os.File {
	files := (*t)[:n:n]
	*t = (*t)[n:]
	return files
}

func (c *control) restore(m *vmmproto.Restore, files []*os.File) error {
	t := taker(files)
	f := RestoreFiles{State: t.one(true), Plan: t.one(true), Base: t.one(m.Base), Overlays: t.some(m.Overlays)}
	for _, n := range m.Layers {
		f.Layers = append(f.Layers, t.some(n))
	}
	f.Pagemap, f.Userfault, f.Record, f.Stream = t.one(m.Pagemap), t.one(m.Userfault), t.one(m.Record), t.one(m.Stream)
	restored, err := c.machine.Restore(m, f)
	if err != nil {
		return c.done(m.ID, err)
	}
	restored.ID = m.ID
	return c.send(&restored)
}

func (c *control) save(m *vmmproto.Save, files []*os.File) error {
	t := taker(files)
	saved, err := c.machine.Save(m, SaveFiles{
		State: t.one(true), Memory: t.one(m.Memory), Tops: t.some(m.Tops), Userfault: t.one(m.Userfault),
	})
	if err != nil {
		return c.done(m.ID, err)
	}
	saved.ID = m.ID
	return c.send(&saved)
}

func (c *control) changes(id uint64) error {
	changed, err := c.machine.Changes()
	if err != nil {
		return c.done(id, err)
	}
	changed.ID = id
	return c.send(&changed)
}
