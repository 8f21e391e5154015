package api

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestPrintError(t *testing.T) {
	coded := fmt.Errorf("wrapped: %w", Errorf(CodeNotFound, "no job").WithCause(errors.New("gone")).WithRemedy("look again"))
	for _, c := range []struct {
		err    error
		asJSON bool
		want   string
	}{
		{coded, false, "thaw: no job\n  cause: gone\n  remedy: look again\n"},
		{coded, true, `{"code":"not_found","message":"no job","cause":"gone","remedy":"look again"}` + "\n"},
		{errors.New("plain"), false, "thaw: plain\n"},
		{errors.New("plain"), true, `{"code":"internal","message":"plain"}` + "\n"},
	} {
		var out strings.Builder
		PrintError(&out, "thaw", c.err, c.asJSON)
		if out.String() != c.want {
			t.Errorf("got %q, want %q", out.String(), c.want)
		}
	}
}
