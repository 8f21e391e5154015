// Package cache keeps finished build results under the user's cache folder,
// addressed by a digest of everything that decided them.
//
// A result is a directory. It appears whole or not at all:
//
//	<dir>/<kind>/<key>              finished; never changed afterwards
//	<dir>/<kind>/<key>.lock         flock that builders of this key hold
//	<dir>/<kind>/<key>.tmp-<random> being built, by the lock's holder
//
// A builder works in the temporary directory; when it is done every file is
// fsynced and the directory is renamed into place. A builder that dies leaves
// its temporary directory and no lock. The next builder of the same kind removes
// it, whatever its own key is: a key whose inputs changed is never asked for again.
package cache

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

var (
	kindPattern = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	keyPattern  = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Dir returns the cache folder, $XDG_CACHE_HOME/thaw or ~/.cache/thaw. It need
// not exist yet.
func Dir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("cache: find the user's cache folder: %w", err)
	}
	return filepath.Join(base, "thaw"), nil
}

// Key returns the hex SHA-256 of parts, which must be everything that decides
// the result. Each part is hashed with its length, so that no two different
// lists give the same key.
func Key(parts ...string) string {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Lookup returns the finished directory of kind and key and whether it exists.
func Lookup(kind, key string) (string, bool, error) {
	final, err := path(kind, key)
	if err != nil {
		return "", false, err
	}
	ok, err := finished(final)
	return final, ok, err
}

// Get returns the finished directory of kind ("kernel", "image", "lab", …) and
// key, making it with build when it is missing. A second call is one stat.
//
// Callers for one key, in this process or another, build one at a time: the
// others wait, until ctx ends, and find the result. build fills the empty
// directory dir, which is renamed into place when it returns nil; after an
// error nothing is left of it.
func Get(ctx context.Context, kind, key string, build func(ctx context.Context, dir string) error) (string, error) {
	final, ok, err := Lookup(kind, key)
	if err != nil || ok {
		return final, err
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return "", fmt.Errorf("cache: make folder for %s: %w", kind, err)
	}
	unlock, err := lock(ctx, final+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	// Another builder may have finished while this one waited.
	if ok, err := finished(final); err != nil || ok {
		return final, err
	}
	if err := removeLeftovers(final); err != nil {
		return "", err
	}
	if err := buildInto(ctx, final, build); err != nil {
		return "", err
	}
	return final, nil
}

// buildInto builds final in a temporary sibling. Preconditions: the lock is held.
func buildInto(ctx context.Context, final string, build func(context.Context, string) error) error {
	tmp, err := os.MkdirTemp(filepath.Dir(final), filepath.Base(final)+tmpMark)
	if err != nil {
		return fmt.Errorf("cache: make temporary folder: %w", err)
	}
	// After the rename there is nothing at tmp, and this does nothing.
	defer os.RemoveAll(tmp)
	// MkdirTemp gives 0700; a result may be read by whoever reaches the cache.
	if err := os.Chmod(tmp, 0o755); err != nil {
		return fmt.Errorf("cache: open up temporary folder: %w", err)
	}
	if err := build(ctx, tmp); err != nil {
		return err
	}
	if err := syncTree(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, final); err != nil {
		return fmt.Errorf("cache: move result into place: %w", err)
	}
	return syncFile(filepath.Dir(final))
}

func path(kind, key string) (string, error) {
	if !kindPattern.MatchString(kind) {
		return "", fmt.Errorf("cache: kind %q is not a short lower-case word", kind)
	}
	if !keyPattern.MatchString(key) {
		return "", fmt.Errorf("cache: key %q of %s is not a hex SHA-256", key, kind)
	}
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, kind, key), nil
}

func finished(final string) (bool, error) {
	st, err := os.Lstat(final)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cache: look up: %w", err)
	case !st.IsDir():
		return false, fmt.Errorf("cache: %s is not a directory", final)
	}
	return true, nil
}
