package integration

import (
	"fmt"
	"testing"
	"time"

	"thaw/guestinit/agentproto"
	"thaw/internal/hostinfo"
	"thaw/kernel"
	"thaw/vmm/vmmproc"
)

// useMemory takes huge pages, looks at them, fills them and gives them back, twice, so
// that the second time most are ones that were filled. It prints how many bytes were not
// zero, and how many blocks the kernel did not clear in the first and in both.
const useMemory = `python3 -c '
import mmap
def spared():
    try:
        return int(open("/sys/module/page_reporting/parameters/spared").read())
    except FileNotFoundError:
        return 0
def use(n):
    m = mmap.mmap(-1, n, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    m.madvise(mmap.MADV_HUGEPAGE)
    wrong = sum(len(part) - part.count(0) for part in (m[i:i+65536] for i in range(0, n, 65536)))
    for i in range(0, n, 65536):
        m[i:i+65536] = b"\xa5" * 65536
    m.close()
    return wrong
before = spared()
wrong = use(100 << 20)
first = spared() - before
wrong += use(200 << 20)
print(wrong, first, spared() - before)
'`

// TestNewMemoryIsZero looks at new memory in a machine that was saved after its kernel
// had reported what is free, restored, and rolled back again and again after it filled
// that. The tuned kernel does not clear what it knows to be zero, and must be right.
func TestNewMemoryIsZero(t *testing.T) {
	list, rounds := []shape{{1, 512}, {2, 1024}}, 4
	if hostinfo.Detect().Kind == hostinfo.Lab {
		list, rounds = list[:1], 2
	}
	for _, k := range kernels(t) {
		for _, s := range list {
			t.Run(k.Manifest.Name+"/"+s.String(), func(t *testing.T) {
				var cold vmmproc.Spec
				g := bootGuest(t, k, s, "python", func(m *vmmproc.Spec) { cold = *m })
				use := func(what string, out string) {
					t.Helper()
					var wrong, first, both int
					if _, err := fmt.Sscan(out, &wrong, &first, &both); err != nil {
						t.Fatalf("%s: %q: %v", what, out, err)
					}
					t.Logf("%s: %d and %d blocks were not cleared", what, first, both-first)
					if wrong != 0 {
						t.Errorf("%s: %d bytes of new memory are not zero", what, wrong)
					}
					// Of 50 and 100. What was filled is not reported so soon, if the guest has no more.
					if k.Manifest.Name == kernel.NameTuned && first < 40 {
						t.Errorf("%s: only %d blocks of 50 were not cleared", what, first)
					}
				}
				shell(t, g.client, "true") // by then it has told that it is ready
				if _, err := g.client.Freeze(t.Context(), agentproto.FreezeRequest{Wait: 20 * time.Second, ReportFree: true}); err != nil {
					t.Fatal(err)
				}
				if err := g.client.Thaw(t.Context()); err != nil {
					t.Fatal(err)
				}
				image := saveCold(t, g, &cold)
				p, connect := shellOf(t, cold)
				if _, err := p.Restore(t.Context(), image); err != nil {
					t.Fatal(err)
				}
				for round := range rounds {
					if err := p.Resume(t.Context()); err != nil {
						t.Fatal(err)
					}
					client := connect()
					use(fmt.Sprintf("round %d", round), shell(t, client, useMemory))
					client.Close()
					if _, err := p.Rollback(t.Context(), image, nil); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}
