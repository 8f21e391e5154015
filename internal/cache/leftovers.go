package cache

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tmpMark parts the key from the random part in a temporary directory's name.
const tmpMark = ".tmp-"

// removeLeftovers removes what builders of final's kind left when they died.
// Only the holder of a key's lock makes directories for it, so those whose lock
// is free, or held by the caller, are nobody's. Preconditions: the caller holds
// final's lock.
func removeLeftovers(final string) error {
	dir := filepath.Dir(final)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("cache: list leftovers: %w", err)
	}
	for _, e := range entries {
		key, _, ok := strings.Cut(e.Name(), tmpMark)
		if !ok || !keyPattern.MatchString(key) {
			continue
		}
		if err := removeLeftover(dir, e.Name(), key, key == filepath.Base(final)); err != nil {
			return err
		}
	}
	return nil
}

func removeLeftover(dir, name, key string, locked bool) error {
	if !locked {
		unlock, ok, err := tryLock(filepath.Join(dir, key+".lock"))
		if err != nil {
			return err
		}
		if !ok {
			return nil // somebody is at work there
		}
		defer unlock()
	}
	if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("cache: remove leftover: %w", err)
	}
	return nil
}
