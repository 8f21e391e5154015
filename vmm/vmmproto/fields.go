package vmmproto

func (m *Start) fields(c *coder) {
	c.protocol()
	c.bool(&m.Shell)
	c.int(&m.VCPUs)
	c.uint64(&m.MemoryBytes)
	c.text(&m.Cmdline)
	c.bool(&m.Initrd)
	list(c, &m.Disks, MaxDisks, func(c *coder, d *Disk) {
		c.text(&d.ID)
		c.int(&d.Layers)
		c.bool(&d.ReadOnly)
	})
	optional(c, &m.Vsock, func(c *coder, v *Vsock) { c.uint64(&v.CID) })
	optional(c, &m.Net, func(c *coder, n *Net) {
		for i := range n.MAC {
			narrow(c, &n.MAC[i])
		}
	})
	c.bool(&m.Balloon)
	c.bool(&m.DirtyRing)
	c.int(&m.ConsoleLog)
	c.bytes(&m.CPUID)
	list(c, &m.Files, MaxFiles, (*coder).text)
}

func (m *Handle) fields(c *coder) {
	c.protocol()
	c.uint64(&m.MemoryBytes)
}

func (m *Restore) fields(c *coder) {
	c.uint64(&m.ID)
	c.bool(&m.InPlace)
	c.bool(&m.Rebase)
	c.bool(&m.Base)
	c.int(&m.Overlays)
	list(c, &m.Layers, MaxDisks, (*coder).int)
	c.bool(&m.Pagemap)
	c.bool(&m.Userfault)
	c.bool(&m.Record)
	c.bool(&m.Stream)
	c.text(&m.Tracker)
}

func (m *Restored) fields(c *coder) {
	c.uint64(&m.ID)
	c.phases(&m.Phases)
	c.int(&m.Private)
	c.int(&m.Copied)
	c.int(&m.PutBack)
	c.bool(&m.Dropped)
}

func (m *Save) fields(c *coder) {
	c.uint64(&m.ID)
	c.bool(&m.Memory)
	c.int(&m.Tops)
	c.text(&m.Tracker)
	c.bool(&m.CopyAhead)
	c.bool(&m.WriteProtect)
	c.text(&m.Next)
	c.bool(&m.Userfault)
	c.bool(&m.Resume)
}

func (m *Saved) fields(c *coder) {
	c.uint64(&m.ID)
	c.text(&m.Tracker)
	c.int64(&m.StateBytes)
	c.int(&m.Pages)
	c.int(&m.Zero)
	c.int(&m.Candidates)
	c.int(&m.Same)
	c.int(&m.Again)
	c.int64(&m.PauseMicros)
	c.int64(&m.AheadMicros)
	c.phases(&m.Phases)
}

func (m *Changed) fields(c *coder) {
	c.uint64(&m.ID)
	c.int(&m.Differ)
	c.int(&m.Looked)
}

func (m *SetBalloon) fields(c *coder) {
	c.uint64(&m.ID)
	c.uint64(&m.MiB)
}

func (m *Failed) fields(c *coder) {
	c.text(&m.Stage)
	c.text(&m.Detail)
}

func (m *Pong) fields(c *coder) {
	c.uint64(&m.ID)
	c.bytes(&m.Console)
}

func (m *Done) fields(c *coder) {
	c.uint64(&m.ID)
	c.text(&m.Error)
}

func (m *Stats) fields(c *coder) {
	c.uint64(&m.ID)
	c.values(&m.Values, MaxStats)
}

func (m *Console) fields(c *coder) {
	c.uint64(&m.ID)
	c.bytes(&m.Tail)
}

func (m *Connect) fields(c *coder) {
	c.uint64(&m.ID)
	narrow(c, &m.Port)
}

func (m *Exited) fields(c *coder) {
	c.text((*string)(&m.Reason))
	c.text(&m.Detail)
	c.bytes(&m.Console)
}

func (m *Started) fields(c *coder)        { c.phases(&m.Phases) }
func (m *Ping) fields(c *coder)           { c.uint64(&m.ID) }
func (m *Pause) fields(c *coder)          { c.uint64(&m.ID) }
func (m *Resume) fields(c *coder)         { c.uint64(&m.ID) }
func (m *Stop) fields(c *coder)           { c.uint64(&m.ID) }
func (m *StatsRequest) fields(c *coder)   { c.uint64(&m.ID) }
func (m *ConsoleRequest) fields(c *coder) { c.uint64(&m.ID) }
func (m *MemoryStats) fields(c *coder)    { c.uint64(&m.ID) }
func (m *Connected) fields(c *coder)      { c.uint64(&m.ID) }
func (m *Refused) fields(c *coder)        { c.uint64(&m.ID) }
func (m *Changes) fields(c *coder)        { c.uint64(&m.ID) }

func (c *coder) phases(v *[]Phase) {
	list(c, v, MaxPhases, func(c *coder, p *Phase) {
		c.text(&p.Name)
		c.int64(&p.Micros)
	})
}
