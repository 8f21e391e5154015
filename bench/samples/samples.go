// Package samples stores every sample of a measurement, as JSON lines.
package samples

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// File takes samples. A nil File takes them and keeps nothing.
type File struct {
	mu sync.Mutex
	f  *os.File // protected by mu
}

// Create makes a file in dir, which is made too, whose name begins with kind and has
// the time in it.
func Create(dir, kind string) (*File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("samples: make folder: %w", err)
	}
	f, err := os.Create(filepath.Join(dir, kind+"-"+time.Now().UTC().Format("20060102T150405")+".jsonl"))
	if err != nil {
		return nil, fmt.Errorf("samples: make file: %w", err)
	}
	return &File{f: f}, nil
}

// Add stores one sample: {"at":…,"what":…,"value":…}.
func (s *File) Add(what string, value any) error {
	if s == nil {
		return nil
	}
	line, err := json.Marshal(struct {
		At    time.Time `json:"at"`
		What  string    `json:"what"`
		Value any       `json:"value"`
	}{time.Now().UTC(), what, value})
	if err != nil {
		return fmt.Errorf("samples: encode: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.f.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("samples: store: %w", err)
	}
	return nil
}

// Name is the file's path.
func (s *File) Name() string { return s.f.Name() }

// Close closes the file.
func (s *File) Close() error {
	if s == nil {
		return nil
	}
	if err := s.f.Close(); err != nil {
		return fmt.Errorf("samples: close: %w", err)
	}
	return nil
}
