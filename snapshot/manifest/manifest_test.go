package manifest

import (
	"errors"
	"strings"
	"testing"
	"time"
)

const (
	idA = "0123456789abcdef0123456789abcdef"
	idB = "fedcba9876543210fedcba9876543210"
)

// sample is a checkpoint with a layer of memory and one of a disk.
func sample() *Manifest {
	d := strings.Repeat("0a", 32)
	return &Manifest{
		Version: Version, ID: idB, Kind: Checkpoint, Parent: idA, Created: time.Unix(1, 0).UTC(), Tenant: "t", Generation: 3,
		Machine:     Machine{VCPUs: 1, MemoryBytes: 1 << 20},
		Fingerprint: Fingerprint{Format: Format(), VMM: "v1", Kernel: "k", Image: "i", CPU: "cpu", CPUHash: "h", Host: "pvm"},
		Files: []File{
			{Name: StateName, Size: 4096, Digest: d}, {Name: IndexName, Size: 30, Digest: d},
			{Name: MemoryName, Size: 8192, Digest: d, Layer: true}, {Name: DiskPrefix + "vdb.m2", Size: 10, Digest: d, Layer: true},
		},
		Memory: []Ref{{Snapshot: idA, File: MemoryName, Size: 1 << 20, Digest: d}, {Snapshot: idB, File: MemoryName, Size: 8192, Digest: d}},
		Disks: []Disk{
			{ID: "vda", ReadOnly: true, Size: 100, Layers: []Ref{{External: "image", Size: 100, Digest: d}}},
			{ID: "vdb", Size: 100, Layers: []Ref{{Snapshot: idA, File: "disk.vdb", Size: 9, Digest: d}, {Snapshot: idB, File: "disk.vdb.m2", Size: 10, Digest: d}}},
		},
	}
}

func TestNamesAndNeeds(t *testing.T) {
	m := sample()
	if n := m.Needs(); len(n) != 1 || !n[idA] {
		t.Errorf("needs %v", n)
	}
	if m.StateFile() != "state" || m.IndexFile() != "index" || m.NextName("index") != "index.m1" {
		t.Error("names")
	}
	for name, base := range map[string]string{"index.m1": "index", "disk.vdb.m12": "disk.vdb", "index.m0": "index.m0", "index.m01": "index.m01", "index.mx": "index.mx", "memory": "memory"} {
		if got := BaseName(name); got != base {
			t.Errorf("%s: %s", name, got)
		}
	}
	if a, b := NewID(), NewID(); a == b || !ValidID(a) || ValidID(a[1:]) || ValidID(strings.ToUpper(idB)) {
		t.Error("ids")
	}
}

func TestCheck(t *testing.T) {
	m := sample()
	here := m.Fingerprint
	if err := m.Check(here); err != nil {
		t.Fatal(err)
	}
	for what, edit := range map[string]func(f *Fingerprint){
		"CPU":          func(f *Fingerprint) { f.CPU = "other" },
		"CPU features": func(f *Fingerprint) { f.CPUHash = "other" },
		"kernel":       func(f *Fingerprint) { f.Kernel = "other" },
		"image":        func(f *Fingerprint) { f.Image = "other" },
		"VMM version":  func(f *Fingerprint) { f.VMM = "other" },
		"host kind":    func(f *Fingerprint) { f.Host = "other" },
		"host kernel":  func(f *Fingerprint) { f.HostKrn = "other" },
	} {
		other := here
		edit(&other)
		var bad *Incompatible
		if err := m.Check(other); !errors.Is(err, ErrIncompatible) || !errors.As(err, &bad) || len(bad.Differs) != 1 || bad.Differs[0].What != what {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, version := range []string{"2.0", "1.1", "0.9", "x", ""} {
		m.Fingerprint.Format = version
		if err := m.Check(here); !errors.Is(err, ErrIncompatible) {
			t.Errorf("format %q: %v", version, err)
		}
	}
}

func TestManifestIsStrict(t *testing.T) {
	good, err := sample().Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(good); err != nil {
		t.Fatal(err)
	}
	object, err := unseal(good)
	if err != nil {
		t.Fatal(err)
	}
	text := string(object)
	for name, edit := range map[string][2]string{
		"unknown field":   {`"version":1`, `"version":1,"evil":2`},
		"version":         {`"version":1`, `"version":2`},
		"id":              {`"id":"`, `"id":"x`},
		"kind":            {`"kind":"checkpoint"`, `"kind":"template"`},
		"file name":       {`"name":"index"`, `"name":"../index"`},
		"two states":      {`"name":"index"`, `"name":"state"`},
		"negative size":   {`"size":8192`, `"size":-1`},
		"short digest":    {`"digest":"`, `"digest":"ab`},
		"capital digest":  {`"digest":"`, `"digest":"A`},
		"memory":          {`"memory_bytes":`, `"memory_bytes":1`},
		"no memory":       {`"memory":[`, `"memory":[],"labels":{},"merged":[`},
		"control in text": {`"tenant":"t"`, `"tenant":"\u0007"`},
		"long text":       {`"tenant":"t"`, `"tenant":"` + strings.Repeat("x", MaxText+1) + `"`},
		"trailing":        {text, text + "{}"},
		"not a manifest":  {text, "[]"},
	} {
		bad := strings.Replace(text, edit[0], edit[1], 1)
		if bad == text {
			t.Errorf("%s: nothing to edit", name)
		}
		if _, err := Decode(Seal([]byte(bad))); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each byte counts.
func TestEveryFlipIsFound(t *testing.T) {
	good, err := golden().Encode()
	if err != nil {
		t.Fatal(err)
	}
	for at := range good {
		for bit := range 8 {
			bad := append([]byte(nil), good...)
			bad[at] ^= 1 << bit
			if _, err := Decode(bad); !errors.Is(err, ErrDamaged) {
				t.Fatalf("byte %d, bit %d: %v", at, bit, err)
			}
		}
		if _, err := Decode(good[:at]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut at %d: %v", at, err)
		}
	}
	if _, err := Decode(append(good, '\n')); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
}

func FuzzManifest(f *testing.F) {
	good, err := sample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		if object, err := unseal(b); err == nil {
			b = object
		}
		m, err := Decode(Seal(b))
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(again); err != nil {
			t.Fatal(err)
		}
		m.Needs()
	})
}
