package serial

import (
	"strings"
	"testing"
)

func TestOutputAndInterrupts(t *testing.T) {
	log := NewLog(100)
	raised := 0
	u := New(log, func() error { raised++; return nil })
	u.Write(regData, 'a')
	if raised != 0 {
		t.Error("interrupt although none is enabled")
	}
	u.Write(regMCR, mcrOut2)
	u.Write(regIER, ierTHREmpty)
	if raised != 1 {
		t.Errorf("%d interrupts after enabling, want 1", raised)
	}
	if id := u.Read(regIIR); id != iirTHREmpty {
		t.Errorf("identification %#x", id)
	}
	if id := u.Read(regIIR); id != iirNone {
		t.Errorf("identification %#x after it was read", id)
	}
	u.Write(regData, 'b')
	if raised != 2 {
		t.Errorf("%d interrupts, want 2", raised)
	}
	if got, _ := log.Bytes(); string(got) != "ab" {
		t.Errorf("log %q", got)
	}
	if u.Read(regLSR) != lsrIdle || u.Read(regData) != 0 {
		t.Error("line status or data")
	}
}

func TestDivisorIsNotOutput(t *testing.T) {
	log := NewLog(100)
	u := New(log, func() error { return nil })
	u.Write(regLCR, lcrDLAB)
	u.Write(regData, 1)
	u.Write(regIER, 2)
	if u.Read(regData) != 1 || u.Read(regIER) != 2 {
		t.Error("divisor")
	}
	u.Write(regLCR, 3)
	if got, _ := log.Bytes(); len(got) != 0 || u.Read(regIER) != 0 {
		t.Errorf("divisor went to the log: %q", got)
	}
}

func TestStateRoundTrip(t *testing.T) {
	u := New(NewLog(10), func() error { return nil })
	for i, v := range []byte{0, 0xff, 1, 0x13, 0xff, 0, 0, 0x5a} {
		if i != regData {
			u.Write(uint16(i), v)
		}
	}
	s := u.State()
	if got := Restore(NewLog(10), func() error { return nil }, s).State(); got != s {
		t.Errorf("restored %+v, want %+v", got, s)
	}
}

func TestLogKeepsHeadAndTail(t *testing.T) {
	l := NewLog(10)
	for _, c := range []byte("0123456789abcdefgh") {
		l.WriteByte(c)
	}
	got, dropped := l.Bytes()
	if string(got) != "01234defgh" || dropped != 8 {
		t.Errorf("kept %q, dropped %d", got, dropped)
	}
	if tail := l.Tail(3); string(tail) != "fgh" {
		t.Errorf("tail %q", tail)
	}
	short := NewLog(10)
	for _, c := range []byte(strings.Repeat("x", 7)) {
		short.WriteByte(c)
	}
	if got, dropped := short.Bytes(); len(got) != 7 || dropped != 0 {
		t.Errorf("kept %q, dropped %d", got, dropped)
	}
}

// FuzzUART: no sequence of accesses breaks the UART or its bounds.
func FuzzUART(f *testing.F) {
	f.Add([]byte{1, 2, 0, 'x', 4, 8, 2 | 0x80, 0})
	f.Fuzz(func(t *testing.T, ops []byte) {
		log := NewLog(16)
		u := New(log, func() error { return nil })
		for i := 0; i+1 < len(ops); i += 2 {
			if ops[i]&0x80 != 0 {
				u.Read(uint16(ops[i] & 7))
			} else {
				u.Write(uint16(ops[i]&7), ops[i+1])
			}
		}
		if got, _ := log.Bytes(); len(got) > 16 {
			t.Errorf("log has %d bytes", len(got))
		}
	})
}
