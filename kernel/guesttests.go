package kernel

import (
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"thaw/internal/cache"
	"thaw/internal/hostcmd"
)

//go:embed guesttests/*.c guesttests/*.h
var guestTestSources embed.FS

// guestTestFlags: static, because there is no C library in the initramfs they
// run from; no red zone, because some push to the stack in inline assembly.
var guestTestFlags = []string{"-O2", "-static", "-mno-red-zone", "-Wall", "-Wextra", "-Werror"}

// guestTest is a file of the guest tests' sources.
type guestTest struct {
	file    string
	content []byte
}

// GuestTestNames lists the guest tests. Each is a program to be run as root in a
// guest with /proc mounted; it exits with 0, and its last line is "<name>: PASS",
// if the kernel does what a guest relies on.
func GuestTestNames() ([]string, error) {
	tests, err := readGuestTests()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range tests {
		if name, ok := strings.CutSuffix(t.file, ".c"); ok {
			names = append(names, name)
		}
	}
	return names, nil
}

func readGuestTests() ([]guestTest, error) {
	const folder = "guesttests"
	entries, err := guestTestSources.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("kernel: list guest tests: %w", err)
	}
	tests := make([]guestTest, len(entries))
	for i, e := range entries {
		b, err := guestTestSources.ReadFile(folder + "/" + e.Name())
		if err != nil {
			return nil, fmt.Errorf("kernel: read guest test: %w", err)
		}
		tests[i] = guestTest{e.Name(), b}
	}
	return tests, nil
}

// GuestTests returns a folder with the guest tests as static programs for
// x86-64, one for each of GuestTestNames, compiling them if the cache lacks
// them.
func GuestTests(ctx context.Context, progress io.Writer) (string, error) {
	if err := ensureTools(ctx, compileTools, progress); err != nil {
		return "", err
	}
	tc, err := findToolchain(ctx)
	if err != nil {
		return "", err
	}
	tests, err := readGuestTests()
	if err != nil {
		return "", err
	}
	parts := append([]string{"guesttests", tc.compiler, tc.linker}, guestTestFlags...)
	for _, t := range tests {
		parts = append(parts, t.file, string(t.content))
	}
	return cache.Get(ctx, "guesttests", cache.Key(parts...), func(ctx context.Context, dir string) error {
		say(progress, "compiling the guest tests")
		return compileGuestTests(ctx, tests, dir)
	})
}

// compileGuestTests leaves the programs in dir, and nothing else.
func compileGuestTests(ctx context.Context, tests []guestTest, dir string) error {
	src := filepath.Join(dir, "src")
	if err := os.Mkdir(src, 0o755); err != nil {
		return fmt.Errorf("kernel: make folder for guest tests: %w", err)
	}
	for _, t := range tests {
		if err := os.WriteFile(filepath.Join(src, t.file), t.content, 0o644); err != nil {
			return fmt.Errorf("kernel: write guest test: %w", err)
		}
	}
	for _, t := range tests {
		name, ok := strings.CutSuffix(t.file, ".c")
		if !ok {
			continue // a header
		}
		argv := append([]string{"gcc"}, guestTestFlags...)
		argv = append(argv, "-o", filepath.Join(dir, name), t.file)
		if _, err := run(ctx, hostcmd.Command{Dir: src, Argv: argv}); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(src); err != nil {
		return fmt.Errorf("kernel: remove sources of guest tests: %w", err)
	}
	return nil
}
