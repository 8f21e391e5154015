package vmm

import (
	"reflect"
	"strings"
	"sync/atomic"
)

// Stats counts what a machine did since it was made.
type Stats struct {
	// Exits to user space, of all processors.
	PortIO, MMIORead, MMIOWrite, OtherExits uint64
}

// Stats returns the counters. They may be some steps apart from each other.
func (m *Machine) Stats() Stats {
	var s Stats
	for _, c := range m.vcpus {
		s.PortIO += c.exit.PortIO.Load()
		s.MMIORead += c.exit.MMIORead.Load()
		s.MMIOWrite += c.exit.MMIOWrite.Load()
		s.OtherExits += c.exit.Other.Load()
	}
	return s
}

// Counters returns Stats and what the devices counted, by name: "exits.mmio_read",
// "block0.reads".
func (m *Machine) Counters() map[string]uint64 {
	s := m.Stats()
	values := map[string]uint64{
		"exits.port_io": s.PortIO, "exits.mmio_read": s.MMIORead, "exits.mmio_write": s.MMIOWrite, "exits.other": s.OtherExits,
	}
	for _, d := range m.devices.list {
		count(values, d.name, reflect.ValueOf(d.metrics).Elem())
	}
	return values
}

// count adds the counters of a struct, and of the structs in it.
func count(values map[string]uint64, prefix string, s reflect.Value) {
	for i := range s.NumField() {
		name := prefix + "." + snake(s.Type().Field(i).Name)
		switch f := s.Field(i).Addr().Interface().(type) {
		case *atomic.Uint64:
			values[name] = f.Load()
		default:
			if s.Field(i).Kind() == reflect.Struct {
				count(values, name, s.Field(i))
			}
		}
	}
}

// snake turns a Go name into one of a counter: ReadBytes into read_bytes.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' && i > 0 && name[i-1] >= 'a' && name[i-1] <= 'z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
