package kvm

import (
	"bytes"
	"reflect"
	"testing"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
)

func FuzzDecodeCPUID(f *testing.F) {
	f.Add(make([]byte, 2*CPUIDBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		if entries, err := DecodeCPUID(b); err == nil && !bytes.Equal(EncodeCPUID(entries), b) {
			t.Errorf("%x became %+v", b, entries)
		}
	})
}

func TestCPUIDForAnotherProcess(t *testing.T) {
	want := []gokvm.CPUIDEntry2{
		{Function: 0x8000_0001, Index: 2, Flags: 1, Eax: 0x0102_0304, Ebx: 5, Ecx: 6, Edx: 0xffff_ffff},
		{Function: 7},
	}
	b := EncodeCPUID(want)
	got, err := DecodeCPUID(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range [][]byte{b[1:], make([]byte, (MaxCPUID+1)*CPUIDBytes)} {
		if _, err := DecodeCPUID(bad); err == nil {
			t.Errorf("%d bytes are taken", len(bad))
		}
	}
}
