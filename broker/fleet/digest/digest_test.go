package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"
	"time"

	"thaw/internal/kvmtest"
)

func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	var d Files
	for _, content := range []string{"one", "two"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		// Two writes within one tick of the file system's clock look the same.
		now := time.Now().Add(time.Duration(content[0]) * time.Second)
		if err := os.Chtimes(path, now, now); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		want := sha256.Sum256([]byte(content))
		for range 2 {
			if got, err := d.Of(f); err != nil || got != hex.EncodeToString(want[:]) {
				t.Errorf("%s: %s, %v", content, got, err)
			}
		}
	}
	if len(d.byFile) != 2 {
		t.Errorf("%d digests are kept", len(d.byFile))
	}
}

// The digest is of the host, not of the processor that the caller happens to run on.
func TestCPUIsStable(t *testing.T) {
	dev := kvmtest.Device(t)
	first, err := CPU(dev)
	if err != nil {
		t.Fatal(err)
	}
	for range 200 {
		if again, err := CPU(dev); err != nil || again != first {
			t.Fatalf("%s, then %s (%v)", first, again, err)
		}
	}
}
