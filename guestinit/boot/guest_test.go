package boot

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/guestinit/guesttest"
)

// This test binary is also an /init: as PID 1 it boots the machine as
// thaw-init does, runs the guest suite against itself over vsock's loopback,
// says the result on the console and powers off. So the guest's half is tested
// by any VMM that boots a kernel; arguments behind "--" on the kernel command
// line are the test flags.

// guestResult starts the line that tells the host the exit code.
const guestResult = "guest tests: exit code"

var guest *Machine // the booted machine, or nil on a host

func TestMain(m *testing.M) {
	if os.Getpid() != 1 {
		os.Exit(m.Run())
	}
	var err error
	if guest, err = Boot(context.Background()); err != nil {
		Fatal(err)
	}
	l, err := vsock.ListenContextID(unix.VMADDR_CID_ANY, agentproto.Port, nil)
	if err != nil {
		Fatal(err)
	}
	go guest.Serve(l)
	guest.AnnounceReady(func() (net.Conn, error) { return vsock.Dial(vsock.Host, agentproto.ReadyPort, nil) })
	fmt.Println(guestResult, m.Run())
	guest.PowerOff()
}

func TestGuest(t *testing.T) {
	if guest == nil {
		t.Skip("not PID 1 of a guest")
	}
	c := agentclient.New(func(context.Context) (net.Conn, error) { return vsock.Dial(vsock.Local, agentproto.Port, nil) })
	defer c.Close()
	info, err := c.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range info.Phases {
		t.Logf("%10v %s", p.At, p.Name)
	}
	t.Logf("agent resident: %d KiB", info.AgentRSS>>10)
	guesttest.Run(t, c, guesttest.Options{})
}
