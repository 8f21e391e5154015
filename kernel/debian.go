package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"thaw/internal/hostcmd"
)

// MissingError says what the machine lacks to make a kernel, and what to do
// about it.
type MissingError struct {
	What   string
	Remedy string
	Err    error // what was tried, if anything
}

func (e *MissingError) Error() string {
	s := fmt.Sprintf("kernel: missing %s; %s", e.What, e.Remedy)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *MissingError) Unwrap() error { return e.Err }

// errUnavailable is in what newer package lists may mend: a package that no
// source offers, or that is gone from the mirror.
var errUnavailable = errors.New("not available from apt's sources")

// debRecord is what apt knows about a package that can be downloaded.
type debRecord struct {
	Package, Version, SHA256 string
}

// parseRecords reads the output of "apt-cache show": stanzas that blank lines
// part, of fields "Name: value" with continuation lines that begin with a
// space. Stanzas without a digest (packages that are installed but offered by
// no source) are left out.
func parseRecords(text string) []debRecord {
	var records []debRecord
	var r debRecord
	flush := func() {
		if r.Package != "" && r.Version != "" && isHex(r.SHA256, 64) {
			records = append(records, r)
		}
		r = debRecord{}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			flush()
			continue
		}
		key, value, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, " ") {
			continue
		}
		value = strings.TrimSpace(value)
		switch key {
		case "Package":
			r.Package = value
		case "Version":
			r.Version = value
		case "SHA256":
			r.SHA256 = strings.ToLower(value)
		}
	}
	flush()
	return records
}

func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

// offered returns the version of the package that apt would install, going by
// the package lists as they are on this machine.
func offered(ctx context.Context, name string) (debRecord, error) {
	out, err := output(ctx, "apt-cache", "show", "--no-all-versions", name)
	if err != nil && hostcmd.ExitCode(err) != 100 { // 100: no package of that name
		return debRecord{}, err
	}
	records := parseRecords(out)
	if len(records) == 0 {
		return debRecord{}, fmt.Errorf("kernel: find %s: %w", name, errUnavailable)
	}
	return records[0], nil
}

// newest returns the record with the highest version by dpkg's ordering.
func newest(ctx context.Context, records []debRecord) (debRecord, error) {
	best := records[0]
	for _, r := range records[1:] {
		_, err := output(ctx, "dpkg", "--compare-versions", r.Version, "gt", best.Version)
		switch hostcmd.ExitCode(err) {
		case 1: // not greater
			continue
		case -1:
			if err != nil {
				return debRecord{}, err
			}
			best = r
		default:
			return debRecord{}, err
		}
	}
	return best, nil
}

// withLists calls look, and once more after "apt-get update" if that can help:
// machines fresh from an image have no package lists, and old lists name files
// that are gone. Only root can update; others get missing back.
func withLists[T any](ctx context.Context, progress io.Writer, missing MissingError, look func() (T, error)) (T, error) {
	found, err := look()
	if !errors.Is(err, errUnavailable) {
		return found, err
	}
	if os.Geteuid() == 0 {
		say(progress, "%s: updating apt's package lists", missing.What)
		if err := hostcmd.UpdateLists(ctx); err != nil {
			missing.Err = err
			return found, &missing
		}
		if found, err = look(); !errors.Is(err, errUnavailable) {
			return found, err
		}
	}
	missing.Err = err
	return found, &missing
}

// download fetches the package of r with apt into dir and returns the path of
// the file, whose digest is checked.
func download(ctx context.Context, r debRecord, dir string, progress io.Writer) (string, error) {
	say(progress, "downloading %s %s", r.Package, r.Version)
	_, err := run(ctx, hostcmd.Command{Dir: dir, Argv: []string{"apt-get", "-q", "download", r.Package + "=" + r.Version}})
	if err != nil {
		return "", fmt.Errorf("%w: %w", errUnavailable, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("kernel: apt-get download left %d files", len(files))
	}
	sum, _, err := digestFile(files[0])
	if err != nil {
		return "", err
	}
	if sum != r.SHA256 {
		return "", fmt.Errorf("kernel: %s has SHA-256 %s, the package list says %s", filepath.Base(files[0]), sum, r.SHA256)
	}
	return files[0], nil
}

// tool is something a build needs, found by a file or by a program's name.
type tool struct {
	pkg, program, file string
}

// compileTools are what the guest tests need, which link statically.
var compileTools = []tool{
	{pkg: "gcc", program: "gcc"},
	{pkg: "binutils", program: "ld"},
	{pkg: "libc6-dev", file: "/usr/include/stdlib.h"},
}

// unpackTools are what Debian's packages are packed with.
var unpackTools = []tool{{pkg: "xz-utils", program: "xz"}}

// kernelTools are what the kernel's build needs with this configuration.
var kernelTools = slices.Concat(compileTools, unpackTools, []tool{
	{pkg: "make", program: "make"},
	{pkg: "flex", program: "flex"},
	{pkg: "bison", program: "bison"},
	{pkg: "bc", program: "bc"},
	{pkg: "patch", program: "patch"},
	// objtool links with it
	{pkg: "libelf-dev", file: "/usr/include/gelf.h"},
})

func (t tool) present() bool {
	if t.file != "" {
		_, err := os.Stat(t.file)
		return err == nil
	}
	return hostcmd.Installed(t.program)
}

// requireDebian fails where there is no apt and dpkg to get packages with.
func requireDebian() error {
	for _, program := range []string{"apt-get", "apt-cache", "dpkg", "dpkg-deb", "dpkg-query"} {
		if !(tool{program: program}).present() {
			return &MissingError{
				What:   program,
				Remedy: "kernels are made from Debian's packages: do it on Debian 12 or 13",
			}
		}
	}
	return nil
}

// ensureTools installs the packages of the tools that are not there. Only root
// can; others are told what to install.
func ensureTools(ctx context.Context, tools []tool, progress io.Writer) error {
	var packages []string
	for _, t := range tools {
		if !t.present() {
			packages = append(packages, t.pkg)
		}
	}
	if len(packages) == 0 {
		return nil
	}
	slices.Sort(packages)
	names := strings.Join(packages, " ")
	missing := MissingError{
		What:   "build tools (" + names + ")",
		Remedy: "install them: sudo apt-get install " + names,
	}
	if os.Geteuid() != 0 {
		return &missing
	}
	say(progress, "installing %s", names)
	if err := hostcmd.Install(ctx, packages...); err != nil {
		missing.Err = err
		return &missing
	}
	return nil
}
