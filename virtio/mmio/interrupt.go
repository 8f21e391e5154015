package mmio

// interrupt is how the device reaches the driver.
type interrupt struct{ t *Transport }

// Used needs no lock: the bit that it stands for is set all the time.
func (i interrupt) Used() {
	if err := i.t.args.Raise(); err != nil {
		i.t.log(err)
	}
}

func (i interrupt) ConfigChanged() {
	t := i.t
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.active {
		return // §2.4.1.1: not before DRIVER_OK; and the page may be another's by now
	}
	t.copyConfig()
	t.configGen++
	t.set(regConfigGen, t.configGen)
	t.interruptBit |= interruptConfig
	t.showInterrupt()
	if err := t.args.Raise(); err != nil {
		t.log(err)
	}
}

func (i interrupt) NeedsReset(err error) {
	t := i.t
	t.log(err)
	t.mu.Lock()
	if t.active {
		t.set(regStatus, t.status()|statusNeedsReset)
	}
	t.mu.Unlock()
	i.ConfigChanged() // §2.1.1: the driver is told by a configuration change
}
