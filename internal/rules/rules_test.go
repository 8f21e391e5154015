// Package rules keeps the rules of the house that a compiler does not know:
// where unsafe and x/sys/unix may be imported, which folder may import which, how
// long files and packages may be, and that the table of folders is whole.
package rules

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "thaw/"

// mayImport says what a folder's packages may import of this module, besides
// themselves and internal/. A folder that is not named may import nothing
// else; cmd and integration may import anything. The folders snapshot and
// netpolicy come later: their rules are here already. See docs/design.md.
var mayImport = map[string][]string{
	"vmm":       {"virtio", "snapshot"},
	"virtio":    {},
	"snapshot":  {},
	"netpolicy": {},
	"guestinit": {},
	"broker":    {"vmm", "virtio", "snapshot", "netpolicy", "guestinit", "api", "kernel", "rootfs"},
	"client":    {"api"},
	"bench":     {"client", "api", "vmm", "virtio", "snapshot", "kernel", "rootfs", "guestinit"},
}

// anything lists the folders that wire the others together.
var anything = map[string]bool{"cmd": true, "integration": true}

// mayUseUnix lists the packages that make system calls of their own or name their
// numbers. Formats, protocols, rings and rules stay free of them: a package is
// added here when it stands at the kernel's edge, not for a constant.
var mayUseUnix = map[string]bool{
	"bench/cmd/bench-guest":        true,
	"bench/floor":                  true,
	"bench/machine":                true,
	"bench/netlab":                 true,
	"broker":                       true,
	"broker/berth":                 true,
	"broker/boot":                  true,
	"broker/collect":               true,
	"broker/fleet":                 true,
	"broker/fleet/digest":          true,
	"broker/fleet/files":           true,
	"broker/fleet/tops":            true,
	"broker/httpapi":               true,
	"broker/journal":               true,
	"broker/launch":                true,
	"cmd/thaw":                     true,
	"cmd/thaw-init":                true,
	"guestinit/agent":              true,
	"guestinit/boot":               true,
	"guestinit/cgroup":             true,
	"guestinit/freemem":            true,
	"guestinit/guesttest":          true,
	"guestinit/hugetext":           true,
	"guestinit/launch":             true,
	"guestinit/netconf":            true,
	"guestinit/sockdiag":           true,
	"guestinit/generation":         true,
	"guestinit/vsock":              true,
	"guestinit/workspace":          true,
	"cmd/thawd":                    true,
	"snapshot/durable":             true,
	"integration/runner":           true,
	"internal/cache":               true,
	"internal/eventfd":             true,
	"internal/guestmem":            true,
	"internal/hostinfo":            true,
	"internal/kvm":                 true,
	"internal/loopback":            true,
	"internal/pagemap":             true,
	"internal/seccomp":             true,
	"internal/seccomp/seccomptest": true,
	"internal/uffd":                true,
	"internal/unixfd":              true,
	"lab":                          true,
	"lab/labinit":                  true,
	"rootfs":                       true,
	"snapshot/layer":               true,
	"snapshot/memimage":            true,
	"snapshot/pageindex":           true,
	"virtio":                       true,
	"virtio/block":                 true,
	"virtio/block/disk":            true,
	"virtio/net":                   true,
	"virtio/net/tap":               true,
	"virtio/rng":                   true,
	"virtio/vsock":                 true,
	"vmm":                          true,
	"vmm/dirty":                    true,
	"vmm/jail":                     true,
	"vmm/protect":                  true,
	"vmm/spawner":                  true,
	"vmm/vmmproc":                  true,
	"vmm/vmmproc/internal/probe":   true,
	"vmm/vmmproc/vmmchild":         true,
}

// deviceMayImport is what virtio/ may take from internal/: guest memory, and
// the events that kicks and interrupts are.
var deviceMayImport = map[string]bool{"internal/guestmem": true, "internal/eventfd": true}

func TestImports(t *testing.T) {
	files, usesUnix := 0, map[string]bool{}
	walk(t, func(path string, imports []string) {
		files++
		folder, _, _ := strings.Cut(path, "/")
		test := strings.HasSuffix(path, "_test.go")
		for _, imp := range imports {
			if imp == "unsafe" && !strings.HasSuffix(path, "_unsafe.go") && !test {
				t.Errorf("%s imports unsafe: only files named *_unsafe.go may", path)
			}
			if imp == "golang.org/x/sys/unix" && !test {
				usesUnix[filepath.Dir(path)] = true
			}
			target, ours := strings.CutPrefix(imp, module)
			if !ours || test || anything[folder] {
				continue
			}
			if path := filepath.ToSlash(path); strings.HasPrefix(path, "virtio/devicetest/") && target == "snapshot/format" {
				continue // tests keep states as snapshots do
			}
			if !allowed(folder, target) {
				t.Errorf("%s imports %s: %s/ may not", path, imp, folder)
			}
		}
	})
	if files < 50 {
		t.Fatalf("only %d files were looked at", files)
	}
	for dir := range usesUnix {
		if !mayUseUnix[dir] {
			t.Errorf("%s imports x/sys/unix: it is not in mayUseUnix", dir)
		}
	}
}

// made lists the folders that building and running leave.
var made = map[string]bool{"bin": true, "out": true}

func TestDesignNamesEveryFolder(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "design.md"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || made[name] || strings.HasPrefix(name, ".") {
			continue
		}
		if !bytes.Contains(page, []byte("`"+name+"/`")) {
			t.Errorf("docs/design.md does not name %s/", name)
		}
	}
}

// Lengths in lines: what one reader can hold. A package's does not count tests.
const (
	maxFile    = 400
	maxPackage = 3000
)

func TestSizes(t *testing.T) {
	packages := map[string]int{}
	walk(t, func(path string, _ []string) {
		b, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		n := bytes.Count(b, []byte("\n"))
		if n > maxFile {
			t.Errorf("%s has %d lines, more than %d: part it", path, n, maxFile)
		}
		if !strings.HasSuffix(path, "_test.go") {
			packages[filepath.Dir(path)] += n
		}
	})
	for dir, n := range packages {
		if n > maxPackage {
			t.Errorf("%s has %d lines, more than %d: part it", dir, n, maxPackage)
		}
	}
}

func allowed(folder, target string) bool {
	to, _, _ := strings.Cut(target, "/")
	if to == folder {
		return true
	}
	if to == "internal" {
		return folder != "virtio" || deviceMayImport[target]
	}
	for _, f := range mayImport[folder] {
		if to == f {
			return true
		}
	}
	return false
}

// walk calls f for every Go file of the module, by its path from the root.
func walk(t *testing.T, f func(path string, imports []string)) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || path != root && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		var imports []string
		for _, i := range file.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, p)
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		f(filepath.ToSlash(rel), imports)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
