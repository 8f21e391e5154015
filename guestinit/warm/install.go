package warm

import (
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed python/runner.py python/thaw_warm/*.py node/*.js node/native.node keeper/keeper.so
var runners embed.FS

// Dir is where the agent puts the runners. Programs can be mapped there, as
// the addon must be, unlike on the small file system of /run/thaw.
const Dir = "/run/thaw-warm"

// Install writes the runners below dir, which jobs can read and nobody but
// root can write. It replaces what is there.
func Install(dir string) error {
	err := fs.WalkDir(runners, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, name)
		if d.IsDir() {
			if err := os.MkdirAll(target, 0o755); err != nil {
				return err
			}
			return os.Chmod(target, 0o755) // whatever the umask is
		}
		content, err := runners.ReadFile(name)
		if err != nil {
			return err
		}
		// A new file: the old one may be mapped.
		if err := os.RemoveAll(target); err != nil {
			return err
		}
		if err := os.WriteFile(target, content, 0o444); err != nil {
			return err
		}
		return os.Chmod(target, 0o444)
	})
	if err != nil {
		return fmt.Errorf("warm: install runners: %w", err)
	}
	return nil
}
