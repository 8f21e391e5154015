package spawner

import (
	"slices"

	"golang.org/x/sys/unix"

	"thaw/vmm/jail"
)

// maxFree is how many namespaces are kept that no process is in: as many as may be born at once where as many have ended,
// such as a hundred forks. One holds 200 KiB of kernel memory, and takes 0.3 ms to make and as much again to take apart,
// so this is at most 25 MiB for as long as the spawner lives.
const maxFree = 128

// networks are the network namespaces of processes: one at a time has one to itself.
type networks struct {
	home jail.Network
	free []jail.Network
	used []lent
}

// lent is a namespace that a process is in, and the process.
type lent struct {
	network jail.Network
	pidfd   int
}

// take returns a namespace that nobody is in. It asks who has ended only when it has none left or has lent many: to ask
// costs time for each process that lives.
func (n *networks) take() (jail.Network, error) {
	if len(n.free) == 0 || len(n.used) > maxFree {
		if err := n.reclaim(); err != nil {
			return -1, err
		}
	}
	if last := len(n.free) - 1; last >= 0 {
		network := n.free[last]
		n.free = n.free[:last]
		return network, nil
	}
	return jail.MakeNetwork(n.home)
}

// lend notes who is in a namespace. pidfd stays the caller's; below zero: nobody, as it turned out.
func (n *networks) lend(network jail.Network, pidfd int) {
	if pidfd < 0 {
		n.free = append(n.free, network)
		return
	}
	own, err := unix.FcntlInt(uintptr(pidfd), unix.F_DUPFD_CLOEXEC, jail.FirstFile)
	if err != nil {
		network.Close() // it stays the process's, and ends with it
		return
	}
	n.used = append(n.used, lent{network, own})
}

// reclaim takes back what processes were in that have ended. A process has left its namespaces before its pidfd can be read
// (pidfd_open(2): when all of its threads are gone).
func (n *networks) reclaim() error {
	if len(n.used) == 0 {
		return nil
	}
	ends := make([]unix.PollFd, len(n.used))
	for i, u := range n.used {
		ends[i] = unix.PollFd{Fd: int32(u.pidfd), Events: unix.POLLIN}
	}
	for {
		if _, err := unix.Poll(ends, 0); err == nil {
			break
		} else if err != unix.EINTR {
			return err
		}
	}
	var still []lent
	for i, u := range n.used {
		switch {
		case ends[i].Revents == 0:
			still = append(still, u)
		case ends[i].Revents&unix.POLLIN != 0:
			unix.Close(u.pidfd)
			n.free = append(n.free, u.network)
		default: // nobody knows whether it has ended
			unix.Close(u.pidfd)
			u.network.Close()
		}
	}
	n.used = still
	for len(n.free) > maxFree {
		n.free[0].Close()
		n.free = slices.Delete(n.free, 0, 1)
	}
	return nil
}
