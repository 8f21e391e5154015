package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"thaw/internal/hostcmd"
)

// InitName is labinit's file name beside the thaw binary.
const InitName = "labinit"

// placeInit puts labinit into the state folder: given, beside this program, or
// built from source when this program runs in its source tree.
func placeInit(ctx context.Context, given, stateDir string) error {
	to := filepath.Join(stateDir, initFile)
	if given != "" {
		return copyFile(given, to)
	}
	if exe, err := os.Executable(); err == nil {
		err := copyFile(filepath.Join(filepath.Dir(exe), InitName), to)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	module, err := findModule()
	if err != nil {
		return fmt.Errorf("lab: no %s beside this program and no source to build it from: %w", InitName, err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, "./lab/labinit")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("lab: build init: %w: %s", err, hostcmd.LastLines(string(out), 10))
	}
	return nil
}

// findModule looks upwards from the working directory for Thaw's source.
func findModule() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("lab: find source: %w", err)
	}
	for {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			line, _, _ := strings.Cut(string(b), "\n")
			if strings.TrimSpace(line) == "module thaw" {
				return dir, nil
			}
		}
		if dir == "/" {
			return "", errors.New("lab: not in Thaw's source tree")
		}
		dir = filepath.Dir(dir)
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("lab: take init: %w", err)
	}
	// A running lab may still execute the old file: replace, never overwrite.
	if err := os.WriteFile(to+".new", b, 0o755); err != nil {
		return fmt.Errorf("lab: place init: %w", err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		return fmt.Errorf("lab: place init: %w", err)
	}
	return nil
}
