package generation

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

// Names in the directory.
const (
	numberFile  = "generation"
	spareFile   = ".generation"
	machineFile = "machine-id"
)

// numberWidth is that of the number file: a decimal number, a newline, and
// spaces in front.
const numberWidth = 21

// files are what processes read. The number is replaced by exchanging two
// files that exist already: readers find the old or the new one, never half of
// one, and nothing is allocated. A reader must open the file each time, since
// the other one of the two is written again.
type files struct {
	dir     *os.File
	numbers [2]*os.File // the one with the name, and the spare
	machine *os.File
	buf     [64]byte
}

func openFiles(path string) (*files, error) {
	f := new(files)
	if err := f.open(path); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

func (f *files) open(path string) (err error) {
	if f.dir, err = os.Open(path); err != nil {
		return fmt.Errorf("generation: open directory: %w", err)
	}
	for i, name := range []string{numberFile, spareFile} {
		if f.numbers[i], err = create(filepath.Join(path, name)); err != nil {
			return err
		}
		if err := f.writeNumber(f.numbers[i], 0); err != nil {
			return err
		}
	}
	f.machine, err = create(filepath.Join(path, machineFile))
	return err
}

// create makes a file that everybody may read, whatever the umask.
func create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("generation: make file: %w", err)
	}
	if err := f.Chmod(0o444); err != nil {
		return nil, errors.Join(fmt.Errorf("generation: make file: %w", err), f.Close())
	}
	return f, nil
}

func (f *files) close() {
	for _, file := range []*os.File{f.dir, f.numbers[0], f.numbers[1], f.machine} {
		if file != nil {
			file.Close()
		}
	}
}

func (f *files) writeNumber(file *os.File, n uint64) error {
	b := f.buf[:numberWidth]
	for i := range b {
		b[i] = ' '
	}
	var digits [20]byte
	d := strconv.AppendUint(digits[:0], n, 10)
	copy(b[numberWidth-1-len(d):], d)
	b[numberWidth-1] = '\n'
	if _, err := unix.Pwrite(int(file.Fd()), b, 0); err != nil {
		return fmt.Errorf("generation: write number: %w", err)
	}
	return nil
}

// setNumber publishes the number.
func (f *files) setNumber(n uint64) error {
	if err := f.writeNumber(f.numbers[1], n); err != nil {
		return err
	}
	fd := int(f.dir.Fd())
	if err := unix.Renameat2(fd, spareFile, fd, numberFile, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("generation: publish number: %w", err)
	}
	f.numbers[0], f.numbers[1] = f.numbers[1], f.numbers[0]
	return nil
}

// setMachineID writes the id as machine-id(5) has it. Its readers are frozen,
// and it has one length.
func (f *files) setMachineID(id []byte) error {
	b := f.buf[:2*agentproto.MachineIDSize+1]
	hex.Encode(b, id)
	b[len(b)-1] = '\n'
	if _, err := unix.Pwrite(int(f.machine.Fd()), b, 0); err != nil {
		return fmt.Errorf("generation: write machine id: %w", err)
	}
	return nil
}
