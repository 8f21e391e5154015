package rootfs

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/u-root/u-root/pkg/cpio"

	"thaw/internal/cache"
)

// Bounds of what goes into an initramfs: bytes of init and of one module, and
// the number of modules. All of it is unpacked into the guest's memory.
const (
	maxInit    = 64 << 20
	maxModule  = 32 << 20
	maxModules = 64
)

// initramfsFormat changes when the archive's layout does.
const initramfsFormat = "1"

// Initramfs returns an initramfs (newc cpio, uncompressed) with initPath as
// /init, from the cache or newly made:
//
//	/init                    0755
//	/dev/console c 5:1, /dev/null c 1:3
//	/dev /proc /sys /newroot
//	/modules/NAME.ko …       as given, with
//	/modules/order           their names in the order given, one a line
//
// The same content gives the same bytes, wherever the files lie. The init must be
// a statically linked program for x86-64 (ErrInit); modules must be uncompressed
// and for x86-64 (ErrModule).
func Initramfs(ctx context.Context, initPath string, modules []string) (string, error) {
	files, err := initramfsFiles(initPath, modules)
	if err != nil {
		return "", err
	}
	parts := []string{initramfsFormat}
	for _, f := range files {
		parts = append(parts, f.name, string(f.content))
	}
	dir, err := cache.Get(ctx, "initramfs", cache.Key(parts...), func(_ context.Context, dir string) error {
		return writeInitramfs(filepath.Join(dir, initramfsFile), files)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, initramfsFile), nil
}

const initramfsFile = "initramfs.cpio"

// initramfsEntry is a regular file of the archive.
type initramfsEntry struct {
	name    string
	perm    uint64
	content []byte
}

// initramfsFiles reads and checks everything that goes in.
func initramfsFiles(initPath string, modules []string) ([]initramfsEntry, error) {
	content, err := readBounded(initPath, maxInit)
	if err == nil {
		err = checkInit(content)
	}
	if err != nil {
		return nil, fmt.Errorf("rootfs: init %s: %w: %w", initPath, ErrInit, err)
	}
	files := []initramfsEntry{{"init", 0o755, content}}
	if len(modules) > maxModules {
		return nil, fmt.Errorf("rootfs: %w: %d modules, at most %d", ErrModule, len(modules), maxModules)
	}
	var order strings.Builder
	for _, path := range modules {
		base := filepath.Base(path)
		content, err := readBounded(path, maxModule)
		if err == nil {
			err = checkModule(base, content)
		}
		if err == nil && strings.Contains(order.String(), base+"\n") {
			err = errors.New("named twice")
		}
		if err != nil {
			return nil, fmt.Errorf("rootfs: module %s: %w: %w", path, ErrModule, err)
		}
		files = append(files, initramfsEntry{"modules/" + base, 0o644, content})
		order.WriteString(base + "\n")
	}
	if len(modules) > 0 {
		files = append(files, initramfsEntry{"modules/order", 0o644, []byte(order.String())})
	}
	return files, nil
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular():
		return nil, errors.New("not a regular file")
	case st.Size() > limit:
		return nil, fmt.Errorf("%d bytes, at most %d", st.Size(), limit)
	}
	content := make([]byte, st.Size())
	_, err = io.ReadFull(f, content)
	return content, err
}

// checkInit says why the kernel could not run content as /init.
func checkInit(content []byte) error {
	f, err := parseELF(content)
	if err != nil {
		return err
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN {
		return fmt.Errorf("is an ELF file of type %v, not a program", f.Type)
	}
	end := uint64(0)
	for _, p := range f.Progs {
		switch p.Type {
		case elf.PT_INTERP:
			return errors.New("is dynamically linked: there are no libraries in an initramfs")
		case elf.PT_LOAD:
			// The linker is told where data begin, and does not look whether code ends before.
			if p.Vaddr < end {
				return fmt.Errorf("has a segment at %#x, where the one before ends at %#x", p.Vaddr, end)
			}
			end = p.Vaddr + p.Memsz
		}
	}
	return nil
}

// checkModule says why the kernel could not load content as a module.
func checkModule(base string, content []byte) error {
	if filepath.Ext(base) != ".ko" {
		return errors.New("not an uncompressed .ko file")
	}
	f, err := parseELF(content)
	if err != nil {
		return err
	}
	if f.Type != elf.ET_REL {
		return fmt.Errorf("is an ELF file of type %v, not a module", f.Type)
	}
	return nil
}

func parseELF(content []byte) (*elf.File, error) {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("not a whole ELF file: %w", err)
	}
	if f.Class != elf.ELFCLASS64 || f.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("is for %v (%v), not for x86-64", f.Machine, f.Class)
	}
	return f, nil
}

// writeInitramfs writes the archive. Every record has time 0, owner root and an
// inode number that is its place in the archive.
func writeInitramfs(path string, files []initramfsEntry) error {
	records := []cpio.Record{
		cpio.Directory("dev", 0o755),
		cpio.CharDev("dev/console", 0o600, 5, 1),
		cpio.CharDev("dev/null", 0o666, 1, 3),
		cpio.Directory("newroot", 0o755),
		cpio.Directory("proc", 0o755),
		cpio.Directory("sys", 0o755),
	}
	for i, f := range files {
		if i == 1 {
			records = append(records, cpio.Directory("modules", 0o755))
		}
		records = append(records, cpio.StaticRecord(f.content, cpio.Info{Name: f.name, Mode: cpio.S_IFREG | f.perm}))
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
	if err != nil {
		return fmt.Errorf("rootfs: create initramfs: %w", err)
	}
	defer out.Close()
	w := cpio.Newc.Writer(out)
	for i, r := range records {
		r.Ino, r.NLink, r.MTime = uint64(i+1), 1, 0
		if err := w.WriteRecord(r); err != nil {
			return fmt.Errorf("rootfs: write initramfs: %w", err)
		}
	}
	if err := cpio.WriteTrailer(w); err != nil {
		return fmt.Errorf("rootfs: write initramfs: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("rootfs: close initramfs: %w", err)
	}
	return nil
}
