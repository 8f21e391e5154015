package loopback

import (
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUp(t *testing.T) {
	var denied error
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked: the thread goes, and the namespace with it.
		runtime.LockOSThread()
		if denied = unix.Unshare(unix.CLONE_NEWNET); denied != nil {
			return
		}
		if c, err := net.Dial("udp", "127.0.0.1:9"); err == nil {
			c.Close()
			t.Error("loopback is up before")
		}
		for range 2 { // it may be up already
			if err := Up(); err != nil {
				t.Error(err)
			}
		}
		c, err := net.Dial("udp", "127.0.0.1:9")
		if err != nil {
			t.Error(err)
			return
		}
		c.Close()
	}()
	if <-done; denied != nil {
		t.Skipf("no network namespace to try it in: %v", denied)
	}
}
