package boot

import (
	"errors"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/vmm/vmmproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConsoleTextIsSafe(t *testing.T) {
	got := LastLines([]byte("one\x1b[2J\r\ntwo \xff\u202e\n" + strings.Repeat("é", 1000)))
	lines := strings.Split(got, "\n")
	if len(lines) != 3 || lines[0] != "one·[2J" || lines[1] != "two ··" || len(lines[2]) > maxLineBytes+len("…") {
		t.Errorf("%q", got)
	}
	if n := strings.Count(LastLines([]byte(strings.Repeat("x\n", 1000))), "\n") + 1; n != maxLines {
		t.Errorf("%d lines", n)
	}
}

func TestGuestMemoryKeepsItsSize(t *testing.T) {
	f, err := guestMemory(4 * mib)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(mib); !errors.Is(err, unix.EPERM) {
		t.Errorf("shrink: %v", err)
	}
	if err := f.Truncate(8 * mib); !errors.Is(err, unix.EPERM) {
		t.Errorf("grow: %v", err)
	}
}

func TestScratchDiskHasNoName(t *testing.T) {
	dir := t.TempDir()
	f, err := ScratchDisk(dir, 64*mib)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if e, _ := os.ReadDir(dir); len(e) != 0 {
		t.Errorf("names: %v", e)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Size != 64*mib || st.Blocks != 0 {
		t.Errorf("size %d, blocks %d, %v", st.Size, st.Blocks, err)
	}
}

func TestFailuresOfAStartHaveCodes(t *testing.T) {
	var e *api.Error
	if err := explain(errors.New("x")); !errors.As(err, &e) || e.Code != api.CodeMaterialise {
		t.Errorf("got %v", err)
	}
	for reason, want := range map[vmmproc.Reason]api.Code{
		vmmproc.Killed: api.CodeVMMKilled, vmmproc.Crashed: api.CodeVMMFailed, vmmproc.GuestPanic: api.CodeGuestPanic, vmmproc.Poweroff: api.CodeGuestNotReady,
	} {
		if err := exitedEarly(vmmproc.Exit{Reason: reason}); !errors.As(err, &e) || e.Code != want {
			t.Errorf("%s: %v", reason, err)
		}
	}
	start := &vmmproc.StartError{Stage: "machine", Exit: vmmproc.Exit{Reason: vmmproc.StartFailed, Detail: "too little memory"}}
	if err := startError(t.Context(), start); !errors.As(err, &e) || e.Code != api.CodeVMMStart || !strings.Contains(e.Cause, "too little memory") {
		t.Errorf("got %v", err)
	}
}
