// Package checkout tells source trees of Thaw apart, so that what a program
// leaves running for its tree is not taken for another tree's.
package checkout

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
)

// keyBytes are enough for the trees of one machine, and short in a socket's path.
const keyBytes = 4

// Key is a short name of the tree that the running program lies in, made of the
// tree's path; "" for a program that lies in none, such as an installed one.
func Key() string {
	exe, err := os.Executable()
	if err != nil {
		return ""
	}
	return keyOf(exe)
}

// Suffixed adds the key to a name: "lab" becomes "lab-1f2e3d4c".
func Suffixed(name string) string {
	if k := Key(); k != "" {
		return name + "-" + k
	}
	return name
}

func keyOf(exe string) string {
	path, err := filepath.EvalSymlinks(exe)
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if isTree(dir) {
			sum := sha256.Sum256([]byte(dir))
			return hex.EncodeToString(sum[:keyBytes])
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// isTree reports whether a folder is the root of Thaw's source.
func isTree(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return false
	}
	first, _, _ := bytes.Cut(b, []byte("\n"))
	return string(bytes.TrimSpace(first)) == "module thaw"
}
