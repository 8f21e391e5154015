package vmmproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// text is a text as a field of a message.
func text(s string) string { return string(binary.AppendUvarint(nil, uint64(len(s)))) + s }

// hostileVMM has packets that no thaw-vmm sends but a hostile one.
func hostileVMM() map[string]string {
	return map[string]string{
		"nothing":              "",
		"no kind":              "\x00",
		"kind without end":     "\x05pong",
		"endless kind":         "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01pong",
		"no such kind":         message("no such", 1),
		"other case":           message("Pong", 1, 0),
		"of the other side":    message(KindStop, 1),
		"no fields":            message(KindPong),
		"field missing":        message(KindPong, 1),
		"one more":             message(KindPong, 1, 0, 0),
		"two messages":         message(KindPong, 1, 0) + message(KindPong, 1, 0),
		"number too long":      message(KindPong, 0x81, 0x00, 0),
		"number without end":   message(KindPong, 0x81),
		"number of 70 bits":    message(KindPong, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0),
		"bytes without end":    message(KindPong, 1, 2, 'x'),
		"port of 33 bits":      message(KindConnect, 1, 0x80, 0x80, 0x80, 0x80, 0x10),
		"neither yes nor no":   message(KindRestored, 1, 0, 0, 0, 0, 2),
		"list without end":     message(KindStarted, 0xff, 0x7f, 1, 'a', 2),
		"unknown reason":       message(KindExited) + text("because") + text("") + text(""),
		"no reason":            message(KindExited) + text("") + text("") + text(""),
		"escape":               message(KindExited) + text("panic") + text("\x1b[2J") + text(""),
		"not UTF-8":            message(KindExited) + text("panic") + text("\xff") + text(""),
		"no stage":             message(KindFailed) + text("") + text(""),
		"stage that is a path": message(KindFailed) + text("../../x") + text(""),
		"negative time":        message(KindStarted, 1, 1, 'a', 1),
		"name with a space":    message(KindStats, 1, 1, 3, 'A', ' ', 'B', 1),
		"value twice":          message(KindStats, 1, 2, 1, 'a', 1, 1, 'a', 1),
		"values out of order":  message(KindStats, 1, 2, 1, 'b', 1, 1, 'a', 1),
		"long error":           message(KindDone, 1) + text(strings.Repeat("a", MaxDetail+1)),
		"many phases":          message(KindStarted, MaxPhases+1) + strings.Repeat("\x01a\x02", MaxPhases+1),
		"long console":         message(KindPong, 1) + text(strings.Repeat("A", MaxConsole+1)),
		"long message":         message(KindPong, 1) + text(strings.Repeat("A", MaxMessage)),
		"JSON":                 `{"kind":"pong","body":{"id":1}}`,
	}
}

// unchecked is a message's packet, whatever the message says.
func unchecked(m Message) string {
	kind := string(m.Kind())
	c := &coder{}
	c.text(&kind)
	m.fields(c)
	return string(c.b)
}

// hostileDaemon has packets that no daemon of this build sends.
func hostileDaemon() map[string]string {
	list := map[string]string{
		"nothing":             "",
		"no such kind":        message("no such", 1),
		"of the other side":   message(KindPong, 1, 0),
		"no protocol":         message(KindStart),
		"other protocol":      message(KindStart, Protocol+1),
		"handler of another":  message(KindHandle, Protocol-1, 0x80, 0x20),
		"handler of nothing":  message(KindHandle, Protocol, 0),
		"field missing":       message(KindSetBalloon, 1),
		"one more":            message(KindPing, 1, 0),
		"neither yes nor no":  message(KindStart, Protocol, 2),
		"large balloon":       unchecked(&SetBalloon{MiB: MaxMemory>>20 + 1}),
		"overlays below none": unchecked(&Restore{Overlays: -1}),
		"many overlays":       unchecked(&Restore{Overlays: MaxOverlays + 1}),
		"many disks":          message(KindRestore, 1, 0, 0, 0, 0, MaxDisks+1) + strings.Repeat("\x02", MaxDisks+1) + "\x00\x00\x00\x00\x00",
		"disk without layers": unchecked(&Restore{Layers: []int{0}}),
		"many descriptors":    unchecked(&Restore{Layers: []int{MaxLayers, MaxLayers}}),
		"rebase of a disk":    unchecked(&Restore{Rebase: true, Layers: []int{1}}),
		"tracker with a path": unchecked(&Save{Tracker: "../x"}),
		"many tops":           unchecked(&Save{Tops: MaxDisks + 1}),
		"start cut off":       unchecked(start())[:40],
	}
	for name, change := range map[string]func(*Start){
		"no vcpu":           func(m *Start) { m.VCPUs = 0 },
		"odd memory":        func(m *Start) { m.MemoryBytes++ },
		"nul in cmdline":    func(m *Start) { m.Cmdline = "a\x00b" },
		"disk id is a path": func(m *Start) { m.Disks[0].ID = "a/b" },
		"layers below none": func(m *Start) { m.Disks[0].Layers = -1 },
		"reserved cid":      func(m *Start) { m.Vsock.CID = 2 },
		"multicast":         func(m *Start) { m.Net.MAC[0] = 1 },
		"file missing":      func(m *Start) { m.Files = m.Files[1:] },
		"shell with initrd": func(m *Start) { m.Shell = true },
	} {
		m := start()
		change(m)
		list[name] = unchecked(m)
	}
	return list
}

func TestHostileBytes(t *testing.T) {
	for name, bad := range hostileVMM() {
		if m, err := DecodeFromVMM([]byte(bad)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, %v", name, m, err)
		}
	}
	for name, bad := range hostileDaemon() {
		if m, err := decode(fromDaemon, []byte(bad)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %v, %v", name, m, err)
		}
	}
	// What the bad ones differ from.
	for _, good := range []string{
		message(KindPong, 1, 0), message(KindPong, 0x81, 0x01, 0), message(KindRestored, 1, 0, 0, 0, 0, 1), message(KindStarted, 1, 1, 'a', 2),
		message(KindStats, 1, 2, 1, 'a', 1, 1, 'b', 1), message(KindConnect, 1, 0xff, 0xff, 0xff, 0xff, 0x0f),
		message(KindExited) + text("panic") + text("") + text(""),
	} {
		if _, err := DecodeFromVMM([]byte(good)); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	many := &Stats{Values: map[string]uint64{}}
	for i := range MaxStats + 1 {
		many.Values[fmt.Sprint(i)] = 1
	}
	if many.Validate() == nil {
		t.Error("too many values were taken")
	}
	if (&SetBalloon{MiB: MaxMemory>>20 + 1}).Validate() == nil {
		t.Error("a balloon larger than any machine was taken")
	}
}

// A corpus has the packets of a fuzz test that are committed: each message that is tested, and each hostile packet.
func corpus(t *testing.T, messages []Message, hostile map[string]string) map[string][]byte {
	files := map[string][]byte{}
	for _, m := range messages {
		b, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		name := string(m.Kind())
		for n := 2; files[name] != nil; n++ {
			name = fmt.Sprint(m.Kind(), "-", n)
		}
		files[name] = b
	}
	for name, b := range hostile {
		files["bad-"+strings.ReplaceAll(strings.ToLower(name), " ", "-")] = []byte(b)
	}
	for name, b := range files {
		files[name] = fmt.Appendf(nil, "go test fuzz v1\n[]byte(%q)\n", b)
	}
	return files
}

// The corpora are of this protocol: packets of an earlier one would test no more than that they are refused.
func TestCorpora(t *testing.T) {
	for fuzz, files := range map[string]map[string][]byte{
		"FuzzDecodeFromVMM":    corpus(t, vmmMessages, hostileVMM()),
		"FuzzDecodeFromDaemon": corpus(t, daemonMessages, hostileDaemon()),
	} {
		dir := filepath.Join("testdata", "fuzz", fuzz)
		if *update {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range files {
			path := filepath.Join(dir, name)
			if *update {
				if err := os.WriteFile(path, want, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is not the packet of the tests: run go test ./vmm/vmmproto -update (%v)", path, err)
			}
		}
	}
}

// A message has one encoding: whatever decodes encodes to the same bytes, and nothing may panic. The seeds are in testdata.
func fuzz(f *testing.F, decode func([]byte) (Message, error)) {
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) || m != nil {
				t.Fatalf("%v, %v", m, err)
			}
			return
		}
		again, err := Encode(m)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%q became %q (%v)", b, again, err)
		}
	})
}

func FuzzDecodeFromVMM(f *testing.F) { fuzz(f, DecodeFromVMM) }

func FuzzDecodeFromDaemon(f *testing.F) {
	fuzz(f, func(b []byte) (Message, error) {
		m, err := decode(fromDaemon, b)
		if err != nil {
			return DecodeFromDaemon(b, 0) // fails too
		}
		return DecodeFromDaemon(b, m.Descriptors())
	})
}
