package rootfs

import (
	"archive/zip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Bounds of one wheel: files in it and bytes unpacked. The largest of the lock
// has 2 000 files and 60 MiB.
const (
	maxWheelFiles = 50_000
	maxWheelBytes = 1 << 30
)

// unpackWheel unpacks a wheel into site, a site-packages directory, as
// "Binary distribution format" of the Python packaging guide has it: the
// archive's root, and the purelib and platlib folders of NAME.data. Scripts and
// data are left out: images run programs by `python3 -m`. Test suites are left
// out too: they are a third of all bytes.
func unpackWheel(wheel, site string) error {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return fmt.Errorf("rootfs: open wheel: %w", err)
	}
	defer z.Close()
	if len(z.File) > maxWheelFiles {
		return fmt.Errorf("rootfs: unpack %s: %d files, at most %d", filepath.Base(wheel), len(z.File), maxWheelFiles)
	}
	left := int64(maxWheelBytes)
	for _, f := range z.File {
		name, ok := wheelTarget(f.Name)
		if !ok || f.FileInfo().IsDir() {
			continue
		}
		if !fs.ValidPath(name) || !f.Mode().IsRegular() {
			return fmt.Errorf("rootfs: unpack %s: unsafe entry %q", filepath.Base(wheel), f.Name)
		}
		n, err := unpackFile(f, filepath.Join(site, filepath.FromSlash(name)), left)
		if err != nil {
			return fmt.Errorf("rootfs: unpack %s: %w", filepath.Base(wheel), err)
		}
		left -= n
	}
	return nil
}

// wheelTarget says where an entry goes below site-packages, and whether at all.
func wheelTarget(entry string) (string, bool) {
	first, rest, _ := strings.Cut(entry, "/")
	if strings.HasSuffix(first, ".data") {
		scheme, inner, _ := strings.Cut(rest, "/")
		return inner, inner != "" && (scheme == "purelib" || scheme == "platlib")
	}
	return entry, !isTestSuite(entry)
}

// isTestSuite tells a package's own tests. numpy.testing, which is API, imports
// one file of numpy's.
func isTestSuite(entry string) bool {
	if strings.HasPrefix(entry, "numpy/_core/tests/") {
		base := path.Base(entry)
		return base != "__init__.py" && base != "_natype.py"
	}
	return strings.Contains("/"+path.Dir(entry)+"/", "/tests/")
}

func unpackFile(f *zip.File, target string, limit int64) (int64, error) {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return 0, err
	}
	src, err := f.Open()
	if err != nil {
		return 0, err
	}
	defer src.Close()
	mode := fs.FileMode(0o644)
	if f.Mode()&0o111 != 0 {
		mode = 0o755
	}
	dst, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(dst, io.LimitReader(src, limit+1))
	if n > limit {
		err = fmt.Errorf("more than %d bytes", int64(maxWheelBytes))
	}
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	return n, err
}
