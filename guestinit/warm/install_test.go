package warm

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestInstall(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "warm")
	for range 2 { // the second time over the first
		if err := Install(dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []Runtime{Python, Node} {
		argv, err := r.Argv(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, a := range argv {
			if !strings.HasPrefix(a, dir) {
				continue
			}
			n++
			if st, err := os.Stat(a); err != nil || st.Mode().Perm() != 0o444 {
				t.Errorf("%s: %v, %v", a, st, err)
			}
		}
		if n == 0 {
			t.Errorf("%q starts no runner", argv)
		}
	}
	if _, err := Runtime("perl").Argv(dir, nil); err == nil {
		t.Error("perl is no runtime")
	}
	if argv, err := Python.Argv(dir, []string{"only"}); err != nil || argv[len(argv)-1] != "only" || len(argv) != 3 {
		t.Errorf("%q, %v", argv, err)
	}
}

// The committed addon asks for nothing that a Node of another version or an
// older C library lacks.
func TestAddon(t *testing.T) {
	raw, err := runners.ReadFile("node/native.node")
	if err != nil {
		t.Fatal(err)
	}
	checkAddon(t, raw)
}

// The addon's source still makes it.
func TestAddonSource(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	out := filepath.Join(t.TempDir(), "native.node")
	cmd := exec.Command(gcc, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-o", out, "node/native.c")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	checkAddon(t, raw)
}

func checkAddon(t *testing.T, raw []byte) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	if f.Machine != elf.EM_X86_64 || f.Type != elf.ET_DYN {
		t.Errorf("%v, %v", f.Machine, f.Type)
	}
	imported, err := f.ImportedSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range imported {
		known := strings.HasPrefix(s.Name, "napi_") || strings.HasPrefix(s.Name, "RAND_") || s.Library == "libc.so.6" || s.Name == "__gmon_start__" ||
			strings.HasPrefix(s.Name, "_ITM_")
		if !known || s.Version > "GLIBC_2.34" && strings.HasPrefix(s.Version, "GLIBC_2.3") {
			t.Errorf("needs %s@%s of %s", s.Name, s.Version, s.Library)
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"napi_register_module_v1", "node_api_module_get_api_version_v1"} {
		if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == want && s.Section != elf.SHN_UNDEF }) {
			t.Errorf("does not export %s", want)
		}
	}
}
