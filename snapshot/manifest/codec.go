package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"thaw/snapshot/layer"
)

// Encode returns the manifest as it is stored.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("manifest: manifest of %s: %w: %w", m.ID, err, ErrInvalid)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("manifest: encode manifest: %w", err)
	}
	if b = Seal(b); len(b) > MaxSize {
		return nil, fmt.Errorf("manifest: manifest of %d bytes: merge the chain first: %w", len(b), ErrInvalid)
	}
	return b, nil
}

// The manifest's last field is the digest of all before it, so that a change of any byte
// is found: there is nothing above a manifest that could have its digest.
const (
	digestField = `,"digest":"`
	digestEnd   = "\"}\n"
	digestBytes = len(digestField) + 2*sha256.Size + len(digestEnd)
)

// Seal adds the digest to a JSON object.
func Seal(object []byte) []byte {
	body := bytes.TrimSuffix(object, []byte("}"))
	sum := sha256.Sum256(body)
	out := append(bytes.Clone(body), digestField...)
	return append(hex.AppendEncode(out, sum[:]), digestEnd...)
}

// unseal returns the object without its digest, which it verifies.
func unseal(b []byte) ([]byte, error) {
	if len(b) < digestBytes {
		return nil, fmt.Errorf("manifest: %d bytes: %w", len(b), ErrDamaged)
	}
	object := append(bytes.Clone(b[:len(b)-digestBytes]), '}')
	if !bytes.Equal(Seal(object), b) {
		return nil, fmt.Errorf("manifest: digest of the manifest: %w", ErrDamaged)
	}
	return object, nil
}

// Decode reads a manifest strictly: its digest is right, no unknown field, nothing after it,
// every value in its bounds. Errors wrap ErrDamaged.
func Decode(b []byte) (*Manifest, error) {
	if len(b) > MaxSize {
		return nil, fmt.Errorf("manifest: manifest of %d bytes: %w", len(b), ErrDamaged)
	}
	object, err := unseal(b)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(object))
	d.DisallowUnknownFields()
	var m Manifest
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("manifest: decode manifest: %w: %w", err, ErrDamaged)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("manifest: bytes after the manifest: %w", ErrDamaged)
	}
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("manifest: manifest: %w: %w", err, ErrDamaged)
	}
	return &m, nil
}

// validate checks what can be said of a manifest alone.
func (m *Manifest) validate() error {
	if m.Version != Version {
		return fmt.Errorf("version %d, not %d", m.Version, Version)
	}
	if !ValidID(m.ID) {
		return fmt.Errorf("id %q", m.ID)
	}
	switch {
	case m.Kind == Template && m.Parent != "":
		return errors.New("a template with a parent")
	case m.Kind == Checkpoint && !ValidID(m.Parent):
		return fmt.Errorf("a checkpoint of parent %q", m.Parent)
	case m.Kind == Checkpoint && m.Parent == m.ID:
		return fmt.Errorf("snapshot %s is its own parent: %w", m.ID, ErrCycle)
	case m.Kind != Template && m.Kind != Checkpoint:
		return fmt.Errorf("kind %q", m.Kind)
	}
	if err := m.validateText(); err != nil {
		return err
	}
	if m.Machine.VCPUs < 1 || m.Machine.VCPUs > 64 {
		return fmt.Errorf("%d vCPUs", m.Machine.VCPUs)
	}
	if b := m.Machine.MemoryBytes; b == 0 || b > MaxMemory || b%4096 != 0 {
		return fmt.Errorf("%d bytes of memory", b)
	}
	if err := m.validateFiles(); err != nil {
		return err
	}
	return m.validateLayers()
}

func (m *Manifest) validateText() error {
	if len(m.Labels) > MaxLabels {
		return fmt.Errorf("%d labels", len(m.Labels))
	}
	f := m.Fingerprint
	texts := []string{m.Tenant, m.Name, m.Record.Tracker, f.Format, f.VMM, f.Kernel, f.Image, f.CPU, f.CPUHash, f.Host, f.HostKrn}
	for k, v := range m.Labels {
		texts = append(texts, k, v)
	}
	for _, t := range texts {
		if len(t) > MaxText || !utf8.ValidString(t) || strings.ContainsFunc(t, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return fmt.Errorf("text %.40q", t)
		}
	}
	if len(m.Merged) > MaxLayers {
		return fmt.Errorf("%d merged snapshots", len(m.Merged))
	}
	for _, id := range append([]string{m.Origin}, m.Merged...) {
		if id != "" && !ValidID(id) {
			return fmt.Errorf("id %.40q", id)
		}
	}
	return nil
}

// Names of files that every snapshot has.
const (
	FileName   = "manifest.json"
	StateName  = "state"
	IndexName  = "index"
	MemoryName = "memory"
	DiskPrefix = "disk."
	SumSuffix  = ".sum" // of the file with a layer's digests
)

func (m *Manifest) validateFiles() error {
	if len(m.Files) > 4+4*MaxDisks {
		return fmt.Errorf("%d files", len(m.Files))
	}
	seen := map[string]bool{}
	for _, f := range m.Files {
		base := BaseName(f.Name)
		isLayer := base == MemoryName || strings.HasPrefix(base, DiskPrefix) && ValidDisk(base[len(DiskPrefix):])
		if !validFileName(f.Name) || seen[f.Name] || isLayer != f.Layer || !isLayer && base != StateName && base != IndexName {
			return fmt.Errorf("file %.40q", f.Name)
		}
		seen[f.Name] = true
		if f.Size < 0 || f.Size > layer.MaxSize || !f.Layer && f.Size > MaxIndex || !ValidDigest(f.Digest) {
			return fmt.Errorf("file %s of %d bytes, digest %.70q", f.Name, f.Size, f.Digest)
		}
	}
	if m.StateFile() == "" || m.IndexFile() == "" {
		return errors.New("not one state and one index")
	}
	return nil
}

func (m *Manifest) validateLayers() error {
	if len(m.Memory) == 0 {
		return errors.New("no memory")
	}
	if b := m.Memory[0]; b.Size != int64(m.Machine.MemoryBytes) {
		return fmt.Errorf("template of %d bytes in a machine of %d", b.Size, m.Machine.MemoryBytes)
	}
	for _, r := range m.Memory {
		if r.External != "" || r.Size%4096 != 0 {
			return fmt.Errorf("memory in %q of %d bytes", r.External, r.Size)
		}
	}
	if len(m.Disks) > MaxDisks {
		return fmt.Errorf("%d disks", len(m.Disks))
	}
	seen := map[string]bool{}
	for _, d := range m.Disks {
		if !ValidDisk(d.ID) || seen[d.ID] || d.Size < 0 || d.Size > layer.MaxSize || len(d.Layers) == 0 || len(d.Layers) > MaxLayers {
			return fmt.Errorf("disk %.40q of %d bytes in %d layers", d.ID, d.Size, len(d.Layers))
		}
		seen[d.ID] = true
	}
	if len(m.Memory) > MaxLayers {
		return fmt.Errorf("%d layers of memory", len(m.Memory))
	}
	var err error
	m.EachRef(func(r Ref) {
		if e := m.validateRef(r); e != nil && err == nil {
			err = e
		}
	})
	return err
}

func (m *Manifest) validateRef(r Ref) error {
	if r.Size < 0 || r.Size > layer.MaxSize || !ValidDigest(r.Digest) {
		return fmt.Errorf("layer of %d bytes, digest %.70q", r.Size, r.Digest)
	}
	if r.External != "" {
		if r.Snapshot != "" || r.File != "" || len(r.External) > MaxText || !utf8.ValidString(r.External) {
			return fmt.Errorf("external layer %.40q", r.External)
		}
		return nil
	}
	if !ValidID(r.Snapshot) || !validFileName(r.File) {
		return fmt.Errorf("layer %.40q of %.40q", r.File, r.Snapshot)
	}
	if r.Snapshot == m.ID {
		if f, ok := m.File(r.File); !ok || !f.Layer || f.Size != r.Size || f.Digest != r.Digest {
			return fmt.Errorf("own layer %s is not among the files", r.File)
		}
	}
	return nil
}

// validFileName says whether a file of a snapshot may have this name: it is one
// element of a path, and neither hidden nor the manifest.
func validFileName(name string) bool {
	if name == "" || len(name) > 64 || name[0] == '.' || name == FileName || strings.HasSuffix(name, SumSuffix) {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

// ValidDisk says whether a disk may have this id: vda, vdb, …
func ValidDisk(id string) bool {
	if id == "" || len(id) > 16 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func ValidDigest(d string) bool {
	_, err := ParseDigest(d)
	return err == nil
}

func ParseDigest(s string) (layer.Digest, error) {
	var d layer.Digest
	if len(s) != 2*len(d) || strings.ToLower(s) != s {
		return d, fmt.Errorf("manifest: digest of %d characters: %w", len(s), ErrDamaged)
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return d, fmt.Errorf("manifest: digest: %w: %w", err, ErrDamaged)
	}
	return d, nil
}
