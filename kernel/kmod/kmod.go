// Package kmod reads what kernel modules say about themselves and puts them
// into an order in which they can be loaded one by one, as a guest without
// modprobe has to.
//
// Dependencies come from the modules' own .modinfo sections, since Debian's
// packages have no modules.dep: it is made at installation.
package kmod

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// maxModinfo bounds the .modinfo section, which has a few hundred bytes in
// practice and up to 30 KiB in drivers with many aliases.
const maxModinfo = 1 << 20

// Info is what a module says about itself. Names are canonical.
type Info struct {
	Name string
	// Depends lists the modules that must be loaded before.
	Depends []string
	// Vermagic begins with the release of the kernel it was built for.
	Vermagic string
}

// Canonical returns the name that the kernel gives a module whose file or
// dependency is called name: file names may have "-" for "_".
func Canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Parse reads the .modinfo section of the module in ko, an uncompressed ELF
// file.
func Parse(ko []byte) (Info, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return Info{}, fmt.Errorf("kmod: read module: %w", err)
	}
	if f.Type != elf.ET_REL || f.Machine != elf.EM_X86_64 {
		return Info{}, fmt.Errorf("kmod: %v for %v is not a module for x86-64", f.Type, f.Machine)
	}
	sec := f.Section(".modinfo")
	// A compressed section would be unpacked by its own word on its size.
	if sec == nil || sec.Type != elf.SHT_PROGBITS || sec.Flags&elf.SHF_COMPRESSED != 0 {
		return Info{}, errors.New("kmod: no readable .modinfo section")
	}
	if sec.Size > maxModinfo {
		return Info{}, fmt.Errorf("kmod: .modinfo section of %d bytes", sec.Size)
	}
	raw := make([]byte, sec.Size)
	if _, err := io.ReadFull(sec.Open(), raw); err != nil {
		return Info{}, fmt.Errorf("kmod: read .modinfo: %w", err)
	}
	return parseModinfo(raw)
}

// parseModinfo reads "key=value" strings that NUL bytes end.
func parseModinfo(raw []byte) (Info, error) {
	var info Info
	for field := range bytes.SplitSeq(raw, []byte{0}) {
		key, value, ok := strings.Cut(string(field), "=")
		if !ok {
			continue
		}
		switch key {
		case "name":
			info.Name = Canonical(value)
		case "vermagic":
			info.Vermagic = value
		case "depends":
			for name := range strings.SplitSeq(value, ",") {
				if name != "" {
					info.Depends = append(info.Depends, Canonical(name))
				}
			}
		}
	}
	if !validName(info.Name) {
		return Info{}, fmt.Errorf("kmod: module name %q", info.Name)
	}
	for _, name := range info.Depends {
		if !validName(name) {
			return Info{}, fmt.Errorf("kmod: %s depends on %q", info.Name, name)
		}
	}
	return info, nil
}

// validName tells whether name is a canonical module name, which is also safe
// as a file name. MODULE_NAME_LEN is 56.
func validName(name string) bool {
	if name == "" || len(name) > 56 {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) < 0
}

// Order returns the modules named in wanted and all they depend on, each after
// what it depends on, in an order that wanted alone decides. info describes a
// module by its canonical name.
func Order(wanted []string, info func(name string) (Info, error)) ([]string, error) {
	const visiting, done = 1, 2
	state := map[string]int{}
	var order, path []string
	var visit func(name string) error
	visit = func(name string) error {
		switch state[name] {
		case done:
			return nil
		case visiting:
			return fmt.Errorf("kmod: modules depend on each other: %s", strings.Join(append(path, name), " → "))
		}
		state[name] = visiting
		path = append(path, name)
		m, err := info(name)
		if err != nil {
			return err
		}
		for _, dep := range slices.Sorted(slices.Values(m.Depends)) {
			if err := visit(dep); err != nil {
				return err
			}
		}
		path = path[:len(path)-1]
		state[name] = done
		order = append(order, name)
		return nil
	}
	for _, name := range wanted {
		if err := visit(Canonical(name)); err != nil {
			return nil, err
		}
	}
	return order, nil
}
