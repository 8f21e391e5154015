package vmmchild

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"thaw/internal/unixfd"
	"thaw/vmm/jail"
	"thaw/vmm/protect"
	"thaw/vmm/vmmproto"
)

// numberHandler gives a shell's socket to its handler of write faults the number at which the jail's filter lets
// descriptors through.
func numberHandler(files map[string]*os.File) error {
	f := files["handler"]
	if f == nil {
		return nil
	}
	defer f.Close()
	number, err := unixfd.Number(f)
	if err != nil {
		return err
	}
	if err := unix.Dup3(number, jail.Handler, unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("vmmchild: number the handler's socket: %w", err)
	}
	files["handler"] = os.NewFile(jail.Handler, "handler")
	return nil
}

// handle jails the process and has it answer the write faults of the machine at the other end of conn, until that
// ends. It returns the exit code.
func handle(h *vmmproto.Handle, conn, memory *os.File) int {
	_, err := jail.Enter(jail.Options{
		Name: "thaw-faults", OpenFiles: 64, FileBytes: h.MemoryBytes, Threads: 1024, Handler: true,
	})
	if err == nil {
		err = protect.Serve(conn, memory)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	return exitEnded
}
