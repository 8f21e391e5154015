package block

import "sync"

// poolSize is how many requests can wait for the host's storage at a time.
const poolSize = 16

// pool runs requests on goroutines that are started as they are needed and
// end with the pool.
type pool struct {
	run     func(*request)
	work    chan *request
	started int // only the submitter uses it
	wg      sync.WaitGroup
}

func (p *pool) init(run func(*request)) {
	p.run = run
	p.work = make(chan *request, queueSize)
}

// submit hands over a request. busy is how many are with the pool, this one
// included. It is called by one goroutine.
func (p *pool) submit(r *request, busy int) {
	if busy > p.started && p.started < poolSize {
		p.started++
		p.wg.Go(func() {
			for r := range p.work {
				p.run(r)
			}
		})
	}
	p.work <- r
}

// close ends the goroutines. Preconditions: no request is with the pool.
func (p *pool) close() {
	close(p.work)
	p.wg.Wait()
}

// submit hands a request to the pool.
func (s *server) submit(r *request) {
	s.dev.metrics.Pooled.Add(1)
	s.mu.Lock()
	s.inFlight++
	busy := s.inFlight
	s.mu.Unlock()
	s.pool.submit(r, busy)
}

// runPooled does what may block, answers the request and gives it back.
func (s *server) runPooled(r *request) {
	m := &s.dev.metrics
	if r.kind == typeFlush {
		r.setStatus(s.finish(s.disk.Sync(), nil, 0))
	} else {
		err := s.disk.Read(&r.data, r.offset+r.data.Done())
		r.setStatus(s.finish(err, &m.ReadBytes, r.data.Done()))
	}
	s.mu.Lock()
	s.push(r)
	interrupt := s.queue.Publish()
	s.mu.Unlock()
	if interrupt {
		s.interrupt.Used()
	}
	// Only now may a pause end: the interrupt is out.
	s.mu.Lock()
	s.returned = append(s.returned, r)
	s.inFlight--
	s.back.Broadcast()
	s.mu.Unlock()
}
