package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// qemuProgram is looked up in PATH.
const qemuProgram = "qemu-system-x86_64"

// ErrNoQEMU is wrapped when there is nothing to compare with.
var ErrNoQEMU = errors.New("qemu-system-x86_64 is not installed: apt-get install qemu-system-x86 (or `make deps`)")

// QEMU makes QEMU's microvm machines with the block and network back ends that
// need no help from the host's kernel, as Thaw's do.
type QEMU struct {
	Program string
	Version string
	PVM     bool
	AMD     bool
	// NoACPI leaves out ACPI, which QEMU's microvm has by default. It starts
	// sooner then, and its devices' interrupts are edges that need no
	// acknowledgement.
	NoACPI bool
}

// FindQEMU looks for QEMU.
func FindQEMU(ctx context.Context, pvm, amd bool) (*QEMU, error) {
	path, err := exec.LookPath(qemuProgram)
	if err != nil {
		return nil, fmt.Errorf("machine: %w", ErrNoQEMU)
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("machine: ask %s for its version: %w", path, err)
	}
	version, _, _ := strings.Cut(string(out), "\n")
	return &QEMU{Program: path, Version: version, PVM: pvm, AMD: amd}, nil
}

// Name implements Side.
func (q *QEMU) Name() string { return "qemu" }

// Arguments is the command line for a machine; file 3 is the tap.
func (q *QEMU) Arguments(b Boot) []string {
	cpu := "host"
	if q.AMD {
		cpu += ",-arch-capabilities" // else QEMU offers an MSR that such hosts refuse
	}
	acpi := "on"
	if q.NoACPI {
		acpi = "off"
	}
	args := []string{
		// No legacy timers, clock or interrupt controller, as in Thaw's machine.
		"-M", "microvm,accel=kvm,acpi=" + acpi + ",pit=off,pic=off,rtc=off,isa-serial=on", "-cpu", cpu,
		"-smp", fmt.Sprint(b.VCPUs), "-m", fmt.Sprintf("%dM", b.MemoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-serial", "stdio", "-no-reboot",
		"-kernel", b.Kernel, "-initrd", b.Initrd, "-append", cmdline(b, q.PVM),
	}
	for i, d := range b.Disks {
		mode := "off"
		if d.ReadOnly {
			mode = "on"
		}
		args = append(args,
			"-drive", fmt.Sprintf("if=none,id=d%d,file=%s,format=raw,aio=threads,cache=writeback,readonly=%s", i, d.Path, mode),
			"-device", fmt.Sprintf("virtio-blk-device,drive=d%d,serial=vd%c", i, 'a'+i))
	}
	if b.Tap != nil {
		args = append(args, "-netdev", "tap,id=n0,fd=3,vhost=off",
			"-device", fmt.Sprintf("virtio-net-device,netdev=n0,mac=%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]))
	}
	return args
}

// command makes the process. Cancelling ctx kills it, as does the end of bench.
func (q *QEMU) command(ctx context.Context, b Boot) *exec.Cmd {
	cmd := exec.CommandContext(ctx, q.Program, q.Arguments(b)...)
	// A group of its own: Ctrl-C is bench's to handle.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if b.Tap != nil {
		cmd.ExtraFiles = []*os.File{b.Tap}
	}
	return cmd
}

// UntilLine implements Side.
func (q *QEMU) UntilLine(ctx context.Context, b Boot, line string) (took time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := q.command(ctx, b)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("machine: qemu: %w", err)
	}
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("machine: qemu: %w", err)
	}
	end := func() { cancel(); cmd.Wait() } // kills it; then nobody writes to stderr
	defer end()
	var console []byte
	buf := make([]byte, 4<<10)
	for {
		n, err := out.Read(buf)
		console = append(console, buf[:n]...)
		if bytes.Contains(console, []byte(line)) {
			return time.Since(begin), nil
		}
		if err != nil {
			if ctx.Err() != nil { // killed for it
				err = fmt.Errorf("wait for %q: %w", line, context.Cause(ctx))
			} else {
				err = ErrNoLine
			}
			end()
			return 0, fmt.Errorf("machine: qemu: %w: %s %s", err, lastLines(console), stderr.String())
		}
	}
}

// UntilEnd implements Side.
func (q *QEMU) UntilEnd(ctx context.Context, b Boot) ([]byte, error) {
	cmd := q.command(ctx, b)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil { // killed for it
			err = fmt.Errorf("wait for the end: %w", context.Cause(ctx))
		}
		return nil, fmt.Errorf("machine: qemu: %w: %s %s", err, lastLines(stdout.Bytes()), stderr.String())
	}
	return stdout.Bytes(), nil
}
