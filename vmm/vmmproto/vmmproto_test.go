package vmmproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"thaw/internal/kvm"
)

func start() *Start {
	m := &Start{
		VCPUs: 2, MemoryBytes: 512 << 20, Cmdline: "console=ttyS0 quiet", Initrd: true,
		Disks:      []Disk{{ID: "vda", Layers: 1, ReadOnly: true}, {ID: "vdb", Layers: 2}},
		Vsock:      &Vsock{CID: 3},
		Net:        &Net{MAC: [6]byte{2, 0, 0, 0, 0, 1}},
		Balloon:    true,
		ConsoleLog: 64 << 10,
	}
	m.Files = m.FileNames()
	return m
}

var daemonMessages = []Message{
	start(), &Ping{1}, &Pause{2}, &Resume{3}, &Stop{4}, &StatsRequest{5}, &ConsoleRequest{6}, &Connected{7}, &Refused{8},
	&SetBalloon{9, 128}, &MemoryStats{10}, shell(),
	&Restore{ID: 11, Base: true, Overlays: 2, Layers: []int{1, 3}, Pagemap: true, Userfault: true, Tracker: "uffd-wp-async"},
	&Restore{ID: 12, InPlace: true, Layers: []int{1}, Record: true, Stream: true},
	&Restore{ID: 14, Rebase: true, Base: true, Overlays: 3},
	&Save{ID: 13, Memory: true, Tops: 1, Tracker: "pagemap", CopyAhead: true, Next: "full", Userfault: true, Resume: true},
	&Save{ID: 15, Memory: true, Tracker: "uffd-wp", WriteProtect: true},
	&Changes{ID: 16},
	&Handle{MemoryBytes: 512 << 20},
}

func shell() *Start {
	m := &Start{Shell: true, DirtyRing: true, VCPUs: 1, MemoryBytes: 512 << 20, Disks: []Disk{{ID: "vda", ReadOnly: true}}, Vsock: &Vsock{CID: 3}}
	m.Files = m.FileNames()
	return m
}

var vmmMessages = []Message{
	&Started{Phases: []Phase{{"jail", 1200}, {"kvm", 900}}},
	&Failed{Stage: "jail", Detail: "mount: permission denied"},
	&Pong{ID: 1, Console: []byte("boot\x00\xff")},
	&Done{ID: 2, Error: "not running"},
	&Stats{ID: 5, Values: map[string]uint64{"exits.mmio": 1 << 63}},
	&Console{ID: 6, Tail: []byte("login:")},
	&Connect{ID: 1, Port: 1025},
	&Restored{ID: 11, Phases: []Phase{{"memory", 300}}, Private: 900, Copied: 80, PutBack: 3},
	&Saved{ID: 13, StateBytes: 20000, Pages: 2048, Zero: 1, Candidates: 3000, Same: 951, Again: 7, PauseMicros: 800, AheadMicros: 3000},
	&Changed{ID: 16, Differ: 40, Looked: 6000},
	&Exited{Reason: Panic, Detail: "Attempted to kill init", Console: []byte("Kernel panic")},
}

func TestRoundTrip(t *testing.T) {
	for _, tc := range []struct {
		messages []Message
		decode   func([]byte, int) (Message, error)
		other    func([]byte, int) (Message, error)
	}{
		{daemonMessages, DecodeFromDaemon, func(b []byte, _ int) (Message, error) { return DecodeFromVMM(b) }},
		{vmmMessages, func(b []byte, _ int) (Message, error) { return DecodeFromVMM(b) }, DecodeFromDaemon},
	} {
		for _, m := range tc.messages {
			b, err := Encode(m)
			if err != nil {
				t.Fatal(err)
			}
			got, err := tc.decode(b, m.Descriptors())
			if err != nil {
				t.Fatalf("%q: %v", b, err)
			}
			if diff := cmp.Diff(m, got); diff != "" {
				t.Errorf("%s: (-sent +got)\n%s", m.Kind(), diff)
			}
			if _, err := tc.other(b, m.Descriptors()); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s was taken from the wrong side (%v)", m.Kind(), err)
			}
			if _, err := DecodeFromDaemon(b, m.Descriptors()+1); !errors.Is(err, ErrInvalid) {
				t.Errorf("%s was taken with a descriptor too many (%v)", m.Kind(), err)
			}
		}
	}
	kinds := map[Kind]bool{}
	for _, m := range slices.Concat(daemonMessages, vmmMessages) {
		kinds[m.Kind()] = true
	}
	if got, want := len(kinds), len(fromDaemon)+len(fromVMM); got != want {
		t.Errorf("%d kinds tested, %d exist", got, want)
	}
}

func TestFileNames(t *testing.T) {
	want := []string{"kvm", "memory", "kernel", "initrd", "disk.vda.0", "disk.vdb.0", "disk.vdb.1", "vsock", "tap"}
	if diff := cmp.Diff(want, start().FileNames()); diff != "" {
		t.Error(diff)
	}
}

// message is a kind and bytes for its fields.
func message(kind Kind, fields ...byte) string {
	return string(append([]byte{byte(len(kind))}, kind...)) + string(fields)
}

// What a hostile length says is refused before there is room for it.
func TestLongListsTakeNoMemory(t *testing.T) {
	length := string(binary.AppendUvarint(nil, MaxMessage-64))
	for name, long := range map[string]string{
		"phases": message(KindStarted) + length + strings.Repeat("\x00", MaxMessage-64),
		"values": message(KindStats, 1) + length + strings.Repeat("\x00", MaxMessage-64),
		"disks":  message(KindRestore, 1, 0, 0, 0, 0) + length + strings.Repeat("\x00", MaxMessage-64),
	} {
		packet := []byte(long)
		for side, kinds := range map[string]map[Kind]func() Message{"daemon": fromDaemon, "VMM": fromVMM} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := decode(kinds, packet)
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrInvalid) || took > 8<<10 {
				t.Errorf("%s from the %s: %d bytes were allocated (%v)", name, side, took, err)
			}
		}
	}
}

func TestStartBounds(t *testing.T) {
	for name, change := range map[string]func(*Start){
		"no vcpu":           func(m *Start) { m.VCPUs = 0 },
		"many vcpus":        func(m *Start) { m.VCPUs = MaxVCPUs + 1 },
		"no memory":         func(m *Start) { m.MemoryBytes = 0 },
		"odd memory":        func(m *Start) { m.MemoryBytes++ },
		"huge memory":       func(m *Start) { m.MemoryBytes = MaxMemory + 4096 },
		"long cmdline":      func(m *Start) { m.Cmdline = strings.Repeat("x", MaxCmdline+1) },
		"nul in cmdline":    func(m *Start) { m.Cmdline = "a\x00b" },
		"console log":       func(m *Start) { m.ConsoleLog = -1 },
		"disk id":           func(m *Start) { m.Disks[0].ID = "a/b" },
		"disk id twice":     func(m *Start) { m.Disks[1].ID = "vda" },
		"no layers":         func(m *Start) { m.Disks[0].Layers = 0 },
		"many layers":       func(m *Start) { m.Disks[0].Layers = MaxLayers + 1 },
		"many disks":        func(m *Start) { m.Disks = make([]Disk, MaxDisks+1) },
		"cid":               func(m *Start) { m.Vsock.CID = 2 },
		"wide cid":          func(m *Start) { m.Vsock.CID = 1 << 33 },
		"cpuid's length":    func(m *Start) { m.CPUID = make([]byte, kvm.CPUIDBytes+1) },
		"many cpuid leaves": func(m *Start) { m.CPUID = make([]byte, MaxCPUID+kvm.CPUIDBytes) },
		"multicast":         func(m *Start) { m.Net.MAC[0] = 1 },
		"file missing":      func(m *Start) { m.Files = m.Files[1:] },
		"file order":        func(m *Start) { m.Files[0], m.Files[1] = m.Files[1], m.Files[0] },
		"too many in total": func(m *Start) { m.Disks[0].Layers, m.Disks[1].Layers = 127, 127; m.Files = m.FileNames() },
	} {
		m := start()
		change(m)
		if _, err := Encode(m); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The largest valid messages must fit into a packet.
func TestLargestMessagesFit(t *testing.T) {
	full := &Stats{Values: map[string]uint64{}}
	for i := range MaxStats {
		full.Values[fmt.Sprintf("%064d", i)] = 1<<64 - 1
	}
	console := bytes.Repeat([]byte{0xff}, MaxConsole)
	for _, m := range []Message{
		&Exited{Reason: TripleFault, Detail: strings.Repeat("<", MaxDetail), Console: console},
		&Exited{Reason: TripleFault, Detail: strings.Repeat("\"", MaxDetail), Console: console},
		&Exited{Reason: TripleFault, Detail: strings.Repeat("\u2028", MaxDetail/3), Console: console},
		&Pong{ID: 1<<64 - 1, Console: console}, &Console{Tail: console}, full,
	} {
		if _, err := Encode(m); err != nil {
			t.Error(err)
		}
	}
}

func TestCleanText(t *testing.T) {
	for _, s := range []string{
		"plain", "", "a\x1b[31mred\x07", "\xff\xfe", strings.Repeat("é", MaxDetail), strings.Repeat("\x00", 3*MaxDetail),
	} {
		if err := checkText("x", CleanText(s)); err != nil {
			t.Errorf("%.20q: %v", s, err)
		}
	}
	if got := CleanText("two\nlines\tok"); got != "two\nlines\tok" {
		t.Errorf("got %q", got)
	}
}
