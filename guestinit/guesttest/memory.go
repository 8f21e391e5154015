package guesttest

import (
	"fmt"
	"testing"
	"time"

	"thaw/guestinit/agentproto"
)

// creeper grows by 64 KiB a step. In between it touches the first %d bytes of
// each of Python's files, which are cache that can be reclaimed and is needed
// again at once: the kernel alone need not see that the group is out of memory.
const creeper = `
import glob, mmap, os
maps = []
for path in glob.glob('/usr/lib/python3*/lib-dynload/*.so') + ['/usr/bin/python3']:
    with open(path, 'rb') as f:
        maps.append(mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ))
held = []
while True:
    held.append(bytearray(b'x' * 65536))
    for m in maps:
        for at in range(0, min(len(m), %d), 4096):
            m[at]
`

// creep checks that who outgrows the limit in small steps ends by its cause,
// each time, and before the clock's.
func (s *suite) creep(t *testing.T) {
	s.needPython(t)
	for _, touch := range []int{0, 4096, 64 << 10} {
		for i := range 3 {
			req := agentproto.ExecRequest{Argv: []string{"python3", "-c", fmt.Sprintf(creeper, touch)}, Timeout: patience / 2}
			req.Limits.MemoryBytes = 64 << 20
			r := s.run(t, req, "")
			r.want(t, agentproto.CauseOOM)
			if r.Signal != 9 {
				t.Errorf("touching %d, run %d: signal %d", touch, i, r.Signal)
			}
			t.Logf("touching %d: %v %s", touch, r.Usage.Wall.Round(time.Millisecond), r.Detail)
		}
	}
}

// cacheAtLimit checks that who fills its limit with cache is let alone.
func (s *suite) cacheAtLimit(t *testing.T) {
	s.shell(t, "dd if=/dev/zero of=large bs=1048576 count=100 2>/dev/null")
	defer s.shell(t, "rm -f large copy")
	req := sh("i=0; while [ $i -lt 20 ]; do cat large >/dev/null; i=$((i+1)); done; cp large copy")
	req.Limits.MemoryBytes = 32 << 20
	r := s.run(t, req, "")
	r.want(t, agentproto.CauseExited)
	if r.Code != 0 {
		t.Errorf("code %d, %q", r.Code, r.err)
	}
}
