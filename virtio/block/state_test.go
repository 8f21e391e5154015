package block

import (
	"bytes"
	"os"
	"reflect"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

func TestStateRoundTrip(t *testing.T) {
	dir := t.TempDir()
	options := Options{ID: "vdb", Layers: []*os.File{diskFile(t, dir, testSize), diskFile(t, dir, 0)}}
	r := newRig(t, newDeviceOn(t, options))
	r.write(8, bytes.Repeat([]byte{7}, 8192))
	r.read(0, 512)
	r.dev.Pause()
	raw, err := cbor.Marshal(r.dev.State())
	if err != nil {
		t.Fatal(err)
	}
	var s State
	if err := cbor.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	dev, err := Restore(options, s)
	if err != nil {
		t.Fatal(err)
	}
	if again := dev.State(); !reflect.DeepEqual(again, s) {
		t.Fatalf("state %+v, was %+v", again, s)
	}
	if got, status := newRig(t, dev).read(8, 8192); status != statusOK || !bytes.Equal(got, bytes.Repeat([]byte{7}, 8192)) {
		t.Fatalf("the restored device reads other bytes, status %d", status)
	}
}
