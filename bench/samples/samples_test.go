package samples

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

func TestAdd(t *testing.T) {
	s, err := Create(t.TempDir()+"/new", "start")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Add("host", "pvm"); err != nil {
		t.Fatal(err)
	}
	if err := s.Add("x_ms", map[string]float64{"ms": 1.5}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(s.Name())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	var got struct {
		At    time.Time
		What  string
		Value map[string]float64
	}
	if len(lines) != 2 || json.Unmarshal([]byte(lines[1]), &got) != nil || got.What != "x_ms" || got.Value["ms"] != 1.5 || time.Since(got.At) > time.Hour {
		t.Errorf("stored %q", b)
	}
}

func TestNothingIsKept(t *testing.T) {
	var s *File
	if s.Add("x", 1) != nil || s.Close() != nil {
		t.Error("a nil file takes samples")
	}
}
