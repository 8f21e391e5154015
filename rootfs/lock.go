package rootfs

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"thaw/internal/cache"
)

//go:embed lock
var lockFS embed.FS

// Names of the lock files, in rootfs/lock and in a directory of Options.LockDir.
const (
	debianLockFile = "debian.json"
	pythonLockFile = "python.txt"
	npmLockFile    = "package-lock.json"
)

// maxLock bounds a lock file in bytes and maxPins the packages that it names.
const (
	maxLock = 4 << 20
	maxPins = 10_000
)

// debianPin is one Debian package of the lock.
type debianPin struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Architecture string `json:"architecture"`
	SHA256       string `json:"sha256"` // of the .deb
}

// debianLock is debian.json: the packages of each component beyond those of
// the components it stands on.
type debianLock struct {
	Suite      string                 `json:"suite"`
	Components map[string][]debianPin `json:"components"`
}

// pythonPin is one line of python.txt: NAME==VERSION --hash=sha256:HEX.
type pythonPin struct {
	name, version, sha256 string
}

// npmPin is one package of package-lock.json.
type npmPin struct {
	path      string // in the lock: "node_modules/NAME", maybe nested
	name      string
	version   string
	integrity string // Subresource Integrity: "sha512-BASE64"
	license   string
}

// locks are all lock files, parsed, with their bytes.
type locks struct {
	debian debianLock
	python []pythonPin
	npm    []npmPin
	raw    map[string][]byte
}

// loadLocks reads the lock files of dir, or the embedded ones when it is "".
func loadLocks(dir string) (*locks, error) {
	files, err := fs.Sub(lockFS, "lock")
	if err != nil {
		return nil, fmt.Errorf("rootfs: open embedded lock: %w", err)
	}
	if dir != "" {
		files = os.DirFS(dir)
	}
	l := &locks{raw: map[string][]byte{}}
	for _, name := range []string{debianLockFile, pythonLockFile, npmLockFile} {
		raw, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("rootfs: read lock: %w", err)
		}
		if len(raw) > maxLock {
			return nil, fmt.Errorf("rootfs: read lock %s: %w: %d bytes, at most %d", name, ErrLock, len(raw), maxLock)
		}
		l.raw[name] = raw
	}
	if l.debian, err = parseDebianLock(l.raw[debianLockFile]); err != nil {
		return nil, err
	}
	if l.python, err = parsePythonLock(l.raw[pythonLockFile]); err != nil {
		return nil, err
	}
	l.npm, err = parseNPMLock(l.raw[npmLockFile])
	return l, err
}

// digest is a key of the named lock file's content.
func (l *locks) digest(file string) string { return cache.Key(string(l.raw[file])) }

func parseDebianLock(raw []byte) (debianLock, error) {
	var l debianLock
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return l, fmt.Errorf("rootfs: %s: %w: %w", debianLockFile, ErrLock, err)
	}
	for component, pins := range l.Components {
		for _, p := range pins {
			if p.Name == "" || p.Version == "" || !isSHA256(p.SHA256) {
				return l, fmt.Errorf("rootfs: %s: %w: package %q of %s lacks a version or SHA-256", debianLockFile, ErrLock, p.Name, component)
			}
		}
	}
	return l, nil
}

// pythonLine is what pip's hash-checking mode wants, and no more: options such
// as --index-url have no place in a lock.
var pythonLine = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.+!_-]+) --hash=sha256:([0-9a-f]{64})$`)

func parsePythonLock(raw []byte) ([]pythonPin, error) {
	var pins []pythonPin
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		m := pythonLine.FindStringSubmatch(line)
		if m == nil || len(pins) == maxPins {
			return nil, fmt.Errorf("rootfs: %s line %d: %w: want NAME==VERSION --hash=sha256:HEX", pythonLockFile, n, ErrLock)
		}
		pins = append(pins, pythonPin{m[1], m[2], m[3]})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("rootfs: %s: %w: %w", pythonLockFile, ErrLock, err)
	}
	return pins, nil
}

// npmPath is where a lock may put a package: below node_modules, never above.
var npmPath = regexp.MustCompile(`^node_modules/(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*(/node_modules/(@[a-z0-9][a-z0-9._-]*/)?[A-Za-z0-9][A-Za-z0-9._-]*)*$`)

func parseNPMLock(raw []byte) ([]npmPin, error) {
	var l struct {
		LockfileVersion int `json:"lockfileVersion"`
		Packages        map[string]struct {
			Version   string `json:"version"`
			Integrity string `json:"integrity"`
			License   any    `json:"license"` // a string; in old packages an object
		} `json:"packages"`
	}
	if err := json.Unmarshal(raw, &l); err != nil {
		return nil, fmt.Errorf("rootfs: %s: %w: %w", npmLockFile, ErrLock, err)
	}
	if l.LockfileVersion != 3 || len(l.Packages) > maxPins {
		return nil, fmt.Errorf("rootfs: %s: %w: version %d with %d packages, want version 3", npmLockFile, ErrLock, l.LockfileVersion, len(l.Packages))
	}
	var pins []npmPin
	for where, p := range l.Packages {
		if where == "" {
			continue // the project itself
		}
		if _, err := sriHex(p.Integrity); err != nil || p.Version == "" || !npmPath.MatchString(where) {
			return nil, fmt.Errorf("rootfs: %s: %w: package %q lacks a version or sha512 integrity", npmLockFile, ErrLock, where)
		}
		license, _ := p.License.(string)
		name := where[strings.LastIndex("/"+where, "/node_modules/")+len("node_modules/"):]
		pins = append(pins, npmPin{where, name, p.Version, p.Integrity, license})
	}
	slices.SortFunc(pins, func(a, b npmPin) int { return strings.Compare(a.path, b.path) })
	return pins, nil
}

// sriHex returns the SHA-512 of a Subresource Integrity string in hex.
func sriHex(integrity string) (string, error) {
	b64, ok := strings.CutPrefix(integrity, "sha512-")
	if !ok {
		return "", fmt.Errorf("rootfs: integrity %q is not sha512", integrity)
	}
	sum, err := base64.StdEncoding.DecodeString(b64)
	if err != nil || len(sum) != 64 {
		return "", fmt.Errorf("rootfs: integrity %q is not a sha512 digest", integrity)
	}
	return hex.EncodeToString(sum), nil
}

func isSHA256(s string) bool {
	sum, err := hex.DecodeString(s)
	return err == nil && len(sum) == 32
}

// pins returns the locked packages of components.
func (l debianLock) pins(components []string) []debianPin {
	var all []debianPin
	for _, c := range components {
		all = append(all, l.Components[c]...)
	}
	return all
}

// drift compares what was installed for components with the lock.
func (l debianLock) drift(components []string, installed []debianPin) []Drift {
	locked := map[string]debianPin{}
	for _, p := range l.pins(components) {
		locked[path.Join(p.Name, p.Architecture)] = p
	}
	var drift []Drift
	for _, p := range installed {
		id := path.Join(p.Name, p.Architecture)
		was, ok := locked[id]
		delete(locked, id)
		switch {
		case !ok:
			drift = append(drift, Drift{Package: p.Name, Actual: p.Version})
		case was.Version != p.Version:
			drift = append(drift, Drift{Package: p.Name, Locked: was.Version, Actual: p.Version})
		case was.SHA256 != p.SHA256:
			drift = append(drift, Drift{Package: p.Name, Locked: was.Version, Actual: p.Version, SHA256: true})
		}
	}
	for _, p := range locked {
		drift = append(drift, Drift{Package: p.Name, Locked: p.Version})
	}
	slices.SortFunc(drift, func(a, b Drift) int { return strings.Compare(a.Package+a.Actual, b.Package+b.Actual) })
	return drift
}
