package proc

import (
	"os"
	"testing"
)

func FuzzStill(f *testing.F) {
	f.Add([]byte("Name:\tpython3\nTracerPid:\t0\nThreads:\t1\nSigCgt:\t0000000000400000\n"))
	f.Fuzz(func(t *testing.T, status []byte) { _ = still(status) })
}

// What could run before the next cell is not still.
func TestStill(t *testing.T) {
	for _, c := range []struct {
		name, status string
		want         bool
	}{
		{"one thread, SIGURG", "Name:\tpython3\nTracerPid:\t0\nThreads:\t1\nSigCgt:\t0000000000400000\n", true},
		{"no handler", "TracerPid:\t0\nThreads:\t1\nSigCgt:\t0000000000000000\n", true},
		{"two threads", "TracerPid:\t0\nThreads:\t2\nSigCgt:\t0000000000400000\n", false},
		{"SIGALRM", "TracerPid:\t0\nThreads:\t1\nSigCgt:\t0000000000402000\n", false},
		{"name that looks like a field", "Name:\tThreads:\nTracerPid:\t0\nThreads:\t3\nSigCgt:\t0\n", false},
		{"traced", "TracerPid:\t7\nThreads:\t1\nSigCgt:\t0000000000400000\n", false},
		{"nobody knows whether traced", "Threads:\t1\nSigCgt:\t0000000000400000\n", false},
		{"no threads", "TracerPid:\t0\nSigCgt:\t0000000000400000\n", false},
		{"no signals", "TracerPid:\t0\nThreads:\t1\n", false},
		{"nothing", "", false},
		{"no number", "TracerPid:\t0\nThreads:\tx\nSigCgt:\tx\n", false},
	} {
		if got := still([]byte(c.status)); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if Still(os.Getpid()) {
		t.Error("this program, which has threads, is still")
	}
	if Still(-1) {
		t.Error("what is not there is still")
	}
}
