package floor

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/pagemap"
	"thaw/snapshot/layer"
	"thaw/snapshot/pageindex"
)

const (
	pageSize = pageindex.PageSize
	hugeSize = 2 << 20
	// batch is how many pages one system call writes (IOV_MAX).
	batch = 1024
)

// Restore takes n samples of what a restore in a generic shell takes at least: the
// template mapped, the state set, the processor entered.
func (f *Floor) Restore(n int) ([]time.Duration, error) {
	return f.each(n, f.newMachine, func(m *machine) error { return errors.Join(m.lay(), m.set(), m.enter()) })
}

// Enter takes n samples of what a restore in a rehearsed shell takes at least.
func (f *Floor) Enter(n int) ([]time.Duration, error) {
	return f.each(n, f.restored, (*machine).enter)
}

// each times do with n machines.
func (f *Floor) each(n int, newMachine func() (*machine, error), do func(*machine) error) ([]time.Duration, error) {
	var took []time.Duration
	for range n {
		m, err := newMachine()
		if err != nil {
			return nil, err
		}
		begin := time.Now()
		err = do(m)
		took = append(took, time.Since(begin))
		if err := errors.Join(err, m.close()); err != nil {
			return nil, err
		}
	}
	return took, nil
}

// Pause takes n samples of a checkpoint's pause: the changed pages found, compared
// and copied, the state read. With none it is what is left to do in the pause when
// all has been copied ahead: KVM's log of changed pages read.
func (f *Floor) Pause(n, pages int) ([]time.Duration, error) {
	m, err := f.restored()
	if err != nil {
		return nil, err
	}
	defer m.close()
	if pages == 0 {
		if err := m.vm.SetDirtyLog(0, true); err != nil {
			return nil, err
		}
	}
	var took []time.Duration
	for range n {
		if err := m.dirty(pages); err != nil {
			return nil, err
		}
		begin := time.Now()
		err := m.pause(pages)
		took = append(took, time.Since(begin))
		if err != nil {
			return nil, err
		}
	}
	return took, nil
}

func (m *machine) pause(pages int) error {
	if pages == 0 {
		if err := m.vm.DirtyLog(0, make([]uint64, m.f.size/pageSize/64)); err != nil {
			return err
		}
		return m.get()
	}
	out, err := layer.NewMemfd("floor-delta", int64(pages)*pageSize)
	if err != nil {
		return err
	}
	defer out.Close()
	private, err := pagemap.New(m.f.pages).Private(m.mem.Host(), nil)
	if err != nil {
		return err
	}
	host, at, iov := m.mem.Host(), int64(0), make([][]byte, 0, batch)
	flush := func() error {
		if len(iov) == 0 {
			return nil
		}
		k, err := unix.Pwritev2(int(out.Fd()), iov, at, 0)
		if err != nil || k != len(iov)*pageSize {
			return fmt.Errorf("floor: write pages: %d bytes: %w", k, err)
		}
		at, iov = at+int64(k), iov[:0]
		return nil
	}
	for _, r := range private {
		for page := uint64(r.First); page < uint64(r.First+r.Count); page++ {
			now := host[page*pageSize:][:pageSize]
			if bytes.Equal(now, m.f.mapping[page*pageSize:][:pageSize]) {
				continue
			}
			if iov = append(iov, now); len(iov) == batch {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return m.get()
}

// Rollback takes n samples of a rollback in place: private pages are found and
// compared, changed ones of them copied back, and the state set.
func (f *Floor) Rollback(n, private, changed int) ([]time.Duration, error) {
	m, err := f.restored()
	if err != nil {
		return nil, err
	}
	defer m.close()
	if err := m.dirty(private); err != nil {
		return nil, err
	}
	if err := m.rollback(); err != nil {
		return nil, err
	}
	var took []time.Duration
	for range n {
		if err := m.dirty(min(changed, private)); err != nil {
			return nil, err
		}
		begin := time.Now()
		err := m.rollback()
		took = append(took, time.Since(begin))
		if err != nil {
			return nil, err
		}
	}
	return took, nil
}

func (m *machine) rollback() error {
	private, err := pagemap.New(m.f.pages).Private(m.mem.Host(), nil)
	if err != nil {
		return err
	}
	host := m.mem.Host()
	for _, r := range private {
		for page := uint64(r.First); page < uint64(r.First+r.Count); page++ {
			now, then := host[page*pageSize:][:pageSize], m.f.mapping[page*pageSize:][:pageSize]
			if !bytes.Equal(now, then) {
				copy(now, then)
			}
		}
	}
	return errors.Join(m.set(), m.enter())
}

// Fork takes n samples of machines restored on as many threads as there are CPUs,
// all alive at the end; ahead of them are made before the clock starts.
func (f *Floor) Fork(n, machines, ahead, threads int) ([]time.Duration, error) {
	var took []time.Duration
	for range n {
		d, err := f.fork(machines, ahead, threads)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	return took, nil
}

func (f *Floor) fork(machines, ahead, threads int) (took time.Duration, err error) {
	all := make([]*machine, machines)
	defer func() {
		for _, m := range all {
			if m != nil {
				err = errors.Join(err, m.close())
			}
		}
	}()
	for i := range ahead {
		if all[i], err = f.newMachine(); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	err = parallel(threads, machines, func(i int) (err error) {
		if all[i] == nil {
			if all[i], err = f.newMachine(); err != nil {
				return err
			}
		}
		return errors.Join(all[i].lay(), all[i].set(), all[i].enter())
	})
	return time.Since(begin), err
}

// Jobs makes, restores and destroys machines on several threads, and returns how many
// a second.
func (f *Floor) Jobs(machines, threads int) (perSecond float64, err error) {
	begin := time.Now()
	err = parallel(threads, machines, func(int) error {
		m, err := f.restored()
		if err != nil {
			return err
		}
		return errors.Join(m.enter(), m.close())
	})
	return float64(machines) / time.Since(begin).Seconds(), err
}

// parallel calls do with 0 to n-1, on several threads.
func parallel(threads, n int, do func(int) error) error {
	next := make(chan int)
	errs := make([]error, threads)
	var wg sync.WaitGroup
	for t := range threads {
		wg.Go(func() {
			for i := range next {
				if errs[t] == nil {
					errs[t] = do(i)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// Touch takes n samples of new memory touched by this process, in huge pages: one byte
// of each page of 4096.
func Touch(n, size int) ([]time.Duration, error) {
	var took []time.Duration
	for range n {
		b, err := unix.Mmap(-1, 0, size+hugeSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, fmt.Errorf("floor: map memory: %w", err)
		}
		if err := unix.Madvise(b, unix.MADV_HUGEPAGE); err != nil {
			return nil, errors.Join(fmt.Errorf("floor: ask for huge pages: %w", err), unix.Munmap(b))
		}
		begin := time.Now()
		for at := 0; at < size; at += pageSize {
			b[at] = 1
		}
		took = append(took, time.Since(begin))
		if err := unix.Munmap(b); err != nil {
			return nil, fmt.Errorf("floor: unmap memory: %w", err)
		}
	}
	return took, nil
}
