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

// libraries are what is committed of machine code: what each is made from and must
// export.
var libraries = []struct {
	name    string
	sources []string
	exports []string
}{
	{"node/native.node", []string{"node/native.c", "keeper/keeper.c"}, []string{"napi_register_module_v1", "node_api_module_get_api_version_v1"}},
	{"keeper/keeper.so", []string{"keeper/keeper.c"}, []string{"thaw_keep"}},
}

// The committed libraries ask for nothing that an interpreter of another version
// or an older C library lacks.
func TestLibraries(t *testing.T) {
	for _, l := range libraries {
		raw, err := runners.ReadFile(l.name)
		if err != nil {
			t.Fatal(err)
		}
		checkLibrary(t, raw, l.exports)
	}
}

// The libraries' sources still make them.
func TestLibrarySources(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc")
	}
	for _, l := range libraries {
		out := filepath.Join(t.TempDir(), "library")
		args := []string{"-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden", "-o", out}
		if text, err := exec.Command(gcc, append(args, l.sources...)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", l.name, err, text)
		}
		raw, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		checkLibrary(t, raw, l.exports)
	}
}

func checkLibrary(t *testing.T, raw []byte, exports []string) {
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
	// With no other object needed, every symbol that has a version is the C library's.
	if needed, err := f.DynString(elf.DT_NEEDED); err != nil || !slices.Equal(needed, []string{"libc.so.6"}) {
		t.Errorf("needs objects %q, %v", needed, err)
	}
	for _, s := range imported {
		known := strings.HasPrefix(s.Name, "napi_") || strings.HasPrefix(s.Name, "RAND_") || s.Version != "" || s.Name == "__gmon_start__" ||
			strings.HasPrefix(s.Name, "_ITM_")
		if !known || s.Version > "GLIBC_2.34" && strings.HasPrefix(s.Version, "GLIBC_2.3") {
			t.Errorf("needs %+v", s)
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range exports {
		if !slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == want && s.Section != elf.SHN_UNDEF }) {
			t.Errorf("does not export %s", want)
		}
	}
}
