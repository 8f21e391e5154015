package lab

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is a child that dies with this program.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has been reaped
}

// startProcess starts argv with file as its descriptor 3 and log as its output.
func startProcess(argv []string, log, file *os.File) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.ExtraFiles = []*os.File{file}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL,
		// Not in the terminal's group: Ctrl-C is for the supervisor, which then
		// ends the lab in order.
		Setpgid: true,
	}
	started := make(chan error, 1)
	go func() {
		// The kernel sends the death signal when the *thread* that forked ends,
		// so this thread must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		// How a killed or crashed emulator ended is told by its log.
		_ = p.cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process and waits until it is gone.
func (p *process) kill() {
	// It may have ended by itself.
	_ = p.cmd.Process.Kill()
	<-p.done
}
