package client

import (
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"thaw/api"
)

// A name may be as long as a file system takes, and may look like one of ours.
func TestSaveArtifactsOfAnyName(t *testing.T) {
	const content = "bytes"
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(content)) })}
	done := make(chan struct{})
	go func() { server.Serve(l); close(done) }()
	c, err := New(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); server.Close(); <-done })

	dir := t.TempDir()
	kept := filepath.Join(dir, "a.thaw-part")
	if err := os.WriteFile(kept, []byte("of the user"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(content))
	var artifacts []api.Artifact
	for _, p := range []string{"a", strings.Repeat("x", api.MaxName), "d/" + strings.Repeat("é", api.MaxName/2), ".thaw-part"} {
		artifacts = append(artifacts, api.Artifact{Path: p, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
	}
	if err := c.SaveArtifacts(t.Context(), "job-x", artifacts, dir); err != nil {
		t.Fatal(err)
	}
	for _, a := range artifacts {
		if b, err := os.ReadFile(filepath.Join(dir, a.Path)); err != nil || string(b) != content {
			t.Errorf("%.20q…: %q, %v", a.Path, b, err)
		}
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != "of the user" {
		t.Errorf("a file beside the artifacts: %q, %v", b, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != len(artifacts)+1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}
