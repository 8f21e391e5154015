package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"thaw/internal/cache"
	"thaw/internal/hostcmd"
)

const (
	sourcePackage = "linux-source-6.12"
	// where the package has its archive and, when installed, its digests
	sourceArchive = "usr/src/linux-source-6.12.tar.xz"
	dpkgDigests   = "/var/lib/dpkg/info/linux-source-6.12.md5sums"
)

// source is the kernel source to compile.
type source struct {
	pkg     Package
	archive string // the .tar.xz
	md5     string // of archive, as the package says
}

var missingSource = MissingError{
	What: "package " + sourcePackage,
	Remedy: "it is in Debian 13 and in bookworm-security for Debian 12: " +
		"add one of them to apt's sources and run apt-get update",
}

// findSource returns the installed source package, which needs no apt at all,
// or else fetches the package into the cache without installing it.
func findSource(ctx context.Context, progress io.Writer) (*source, error) {
	s, err := installedSource(ctx)
	if err != nil || s != nil {
		return s, err
	}
	return withLists(ctx, progress, missingSource, func() (*source, error) {
		r, err := offered(ctx, sourcePackage)
		if err != nil {
			return nil, err
		}
		return fetchSource(ctx, r, progress)
	})
}

// installedSource describes the installed package by dpkg's own records; nil if
// it is not installed.
func installedSource(ctx context.Context) (*source, error) {
	out, err := output(ctx, "dpkg-query", "-W", "-f", "${db:Status-Status} ${Version}", sourcePackage)
	if hostcmd.ExitCode(err) == 1 { // unknown to dpkg
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	status, version, _ := strings.Cut(strings.TrimSpace(out), " ")
	if status != "installed" || version == "" {
		return nil, nil
	}
	list, err := os.ReadFile(dpkgDigests)
	if err != nil {
		return nil, fmt.Errorf("kernel: read digests of %s: %w", sourcePackage, err)
	}
	archive := "/" + sourceArchive
	if _, err := os.Stat(archive); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // removed by hand; fetch it
	}
	return newSource(version, archive, string(list))
}

// fetchSource unpacks the package of r into the cache.
func fetchSource(ctx context.Context, r debRecord, progress io.Writer) (*source, error) {
	dir, err := cache.Get(ctx, "kernel-source", cache.Key("kernel-source", r.Version, r.SHA256), func(ctx context.Context, dir string) error {
		deb, err := download(ctx, r, dir, progress)
		if err != nil {
			return err
		}
		if _, err := output(ctx, "dpkg-deb", "--raw-extract", deb, dir); err != nil {
			return err
		}
		return os.Remove(deb)
	})
	if err != nil {
		return nil, err
	}
	list, err := os.ReadFile(filepath.Join(dir, "DEBIAN/md5sums"))
	if err != nil {
		return nil, fmt.Errorf("kernel: read digests of %s: %w", sourcePackage, err)
	}
	return newSource(r.Version, filepath.Join(dir, sourceArchive), string(list))
}

// newSource finds the archive's digest in list, the package's md5sums file. The
// same archive has the same identity whether installed or fetched.
func newSource(version, archive, list string) (*source, error) {
	for line := range strings.Lines(list) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.TrimSpace(name) == sourceArchive && isHex(sum, 32) {
			return &source{
				pkg:     Package{Name: sourcePackage, Version: version, Digest: "md5:" + sum},
				archive: archive,
				md5:     sum,
			}, nil
		}
	}
	return nil, fmt.Errorf("kernel: the digests of %s %s do not name %s", sourcePackage, version, sourceArchive)
}

// unpack extracts the verified source into dir.
func (s *source) unpack(ctx context.Context, dir string) error {
	sum, err := md5File(s.archive)
	if err != nil {
		return err
	}
	if sum != s.md5 {
		return fmt.Errorf("kernel: %s is damaged: MD5 %s, the package says %s", s.archive, sum, s.md5)
	}
	_, err = output(ctx, "tar", "-xJf", s.archive, "-C", dir, "--strip-components=1")
	return err
}
