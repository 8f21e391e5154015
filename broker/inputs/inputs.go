// Package inputs keeps uploaded files until jobs have used them. A handle names
// a file of one tenant; for every other tenant it does not exist.
//
// Files live in a directory of the store's own, which is emptied at start: a
// handle is good for as long as the daemon runs, and for Options.TTL after its
// last use; its file goes within a minute of that.
package inputs

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Errors that callers branch on.
var (
	ErrNotFound = errors.New("inputs: no such input")
	ErrTooLarge = errors.New("inputs: larger than an input may be")
	ErrQuota    = errors.New("inputs: tenant holds as much as it may")
)

// Options bounds a store.
type Options struct {
	MaxBytes       int64         // of one input
	MaxTenantBytes int64         // of all inputs of a tenant
	MaxTenantFiles int           // number of inputs of a tenant
	TTL            time.Duration // after the last use
}

// Input describes a stored file.
type Input struct {
	ID     string
	SHA256 string // hex
	Size   int64  // bytes
}

type record struct {
	Input
	tenant string
	used   time.Time
	pins   int  // jobs that will still read it
	gone   bool // removed while pinned
}

// Store is safe for concurrent use.
type Store struct {
	dir  string
	opts Options

	mu      sync.Mutex
	records map[string]*record // protected by mu, as is the rest
	held    map[string]int64   // bytes of each tenant, with those being uploaded
	files   map[string]int     // likewise their number
	sweep   *time.Timer        // nil while there is nothing to sweep
	closed  bool
}

// sweepEvery is how late an expired input may go.
const sweepEvery = time.Minute

// Open makes an empty store in dir, removing what an earlier one left there.
func Open(dir string, opts Options) (*Store, error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("inputs: empty store: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("inputs: make store: %w", err)
	}
	return &Store{dir: dir, opts: opts, records: map[string]*record{}, held: map[string]int64{}, files: map[string]int{}}, nil
}

// Add stores what r gives. It reads at most one byte more than an input may have,
// and fails with ErrTooLarge or ErrQuota.
func (s *Store) Add(tenant string, r io.Reader) (Input, error) {
	limit, err := s.reserve(tenant)
	if err != nil {
		return Input{}, err
	}
	in, err := s.write(r, limit)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[tenant] -= limit - in.Size // the reservation shrinks to what was stored
	if err != nil {
		s.files[tenant]--
		s.forgetIdle(tenant)
		return Input{}, err
	}
	s.records[in.ID] = &record{Input: in, tenant: tenant, used: time.Now()}
	s.arm()
	return in, nil
}

// arm makes sure that a sweep comes. Preconditions: mu is held.
func (s *Store) arm() {
	if s.sweep == nil && !s.closed && len(s.records) > 0 {
		s.sweep = time.AfterFunc(min(s.opts.TTL, sweepEvery), s.swept)
	}
}

// swept is the timer's sweep, and orders the next one.
func (s *Store) swept() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep = nil
	if s.closed {
		return
	}
	s.expire(time.Now())
	s.arm()
}

// Close ends the sweeps. Files stay until the next Open.
func (s *Store) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.sweep != nil {
		s.sweep.Stop()
	}
}

// reserve takes the most that the next input may have from the tenant's quota.
func (s *Store) reserve(tenant string) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := min(s.opts.MaxBytes, s.opts.MaxTenantBytes-s.held[tenant])
	if left <= 0 || s.files[tenant] >= s.opts.MaxTenantFiles {
		return 0, ErrQuota
	}
	s.held[tenant] += left
	s.files[tenant]++
	return left, nil
}

// forgetIdle drops the counts of a tenant that holds nothing. Preconditions: mu
// is held.
func (s *Store) forgetIdle(tenant string) {
	if s.files[tenant] == 0 {
		delete(s.files, tenant)
		delete(s.held, tenant)
	}
}

// write stores up to limit bytes under a new id. On failure nothing stays and the
// returned size is 0.
func (s *Store) write(r io.Reader, limit int64) (in Input, err error) {
	in.ID = "in-" + rand.Text()[:16]
	path := s.path(in.ID)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return Input{}, fmt.Errorf("inputs: store input: %w", err)
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(r, limit+1))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	switch {
	case err == nil && n > s.opts.MaxBytes:
		err = ErrTooLarge
	case err == nil && n > limit:
		err = ErrQuota
	case err != nil:
		err = fmt.Errorf("inputs: store input: %w", err)
	}
	if err != nil {
		os.Remove(path)
		return Input{}, err
	}
	in.Size, in.SHA256 = n, hex.EncodeToString(sum.Sum(nil))
	return in, nil
}

func (s *Store) path(id string) string { return filepath.Join(s.dir, id) }

// Pin keeps an input from expiring or being removed until Unpin.
func (s *Store) Pin(tenant, id string) (Input, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[id]
	if r == nil || r.tenant != tenant || r.gone {
		return Input{}, ErrNotFound
	}
	r.pins++
	r.used = time.Now()
	return r.Input, nil
}

// Unpin undoes one Pin.
func (s *Store) Unpin(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[id]
	if r == nil || r.pins == 0 {
		return
	}
	r.pins--
	r.used = time.Now()
	if r.gone && r.pins == 0 {
		// A file that cannot be removed goes at the next start of the daemon.
		_ = s.drop(r)
	}
}

// Open opens a pinned input for reading.
func (s *Store) Open(id string) (*os.File, error) {
	s.mu.Lock()
	r := s.records[id]
	s.mu.Unlock()
	if r == nil {
		return nil, ErrNotFound
	}
	f, err := os.Open(s.path(r.ID))
	if err != nil {
		return nil, fmt.Errorf("inputs: open input: %w", err)
	}
	return f, nil
}

// Remove deletes a tenant's input, a pinned one once the last Pin is undone.
func (s *Store) Remove(tenant, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[id]
	if r == nil || r.tenant != tenant || r.gone {
		return ErrNotFound
	}
	if r.pins > 0 {
		r.gone = true
		return nil
	}
	return s.drop(r)
}

// drop deletes a record and its file. Preconditions: mu is held.
func (s *Store) drop(r *record) error {
	delete(s.records, r.ID)
	s.held[r.tenant] -= r.Size
	s.files[r.tenant]--
	s.forgetIdle(r.tenant)
	if err := os.Remove(s.path(r.ID)); err != nil {
		return fmt.Errorf("inputs: remove input: %w", err)
	}
	return nil
}

// expire deletes inputs that nobody has used for Options.TTL. Preconditions: mu is
// held.
func (s *Store) expire(now time.Time) {
	for _, r := range s.records {
		if r.pins == 0 && now.Sub(r.used) > s.opts.TTL {
			// A file that cannot be removed goes at the next start of the daemon.
			_ = s.drop(r)
		}
	}
}
