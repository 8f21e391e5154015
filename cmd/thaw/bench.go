package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"thaw/api"
)

// benchProgram is built from a module of its own, whose libraries stay out of
// this program.
const benchProgram = "thaw-bench"

// benchCommand becomes thaw-bench, which has the flags, the help and the exit
// code.
func (a *app) benchCommand() *cobra.Command {
	return &cobra.Command{
		Use: "bench", Short: "Measure Thaw: `bench start` (beside QEMU), `bench checkpoint`, `bench trajectory`",
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			exe, err := os.Executable()
			if err != nil {
				return fmt.Errorf("thaw: find %s: %w", benchProgram, err)
			}
			path := filepath.Join(filepath.Dir(exe), benchProgram)
			err = syscall.Exec(path, append([]string{benchProgram}, args...), os.Environ())
			if errors.Is(err, fs.ErrNotExist) {
				return api.Errorf(api.CodeInternal, "%s is not there", path).WithRemedy("run `make build`")
			}
			return fmt.Errorf("thaw: run %s: %w", path, err)
		},
	}
}
