package launch

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"thaw/broker"
	"thaw/vmm/vmmproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMachineExit(t *testing.T) {
	for reason, want := range map[vmmproc.Reason]broker.ExitReason{
		vmmproc.Poweroff: broker.ExitPoweroff, vmmproc.Reset: broker.ExitPoweroff, vmmproc.GuestPanic: broker.ExitPanic,
		vmmproc.TripleFault: broker.ExitPanic, vmmproc.Signalled: broker.ExitKilled, vmmproc.Killed: broker.ExitKilled,
		vmmproc.Hung: broker.ExitFailed, vmmproc.Crashed: broker.ExitFailed, vmmproc.SeccompViolation: broker.ExitFailed,
		vmmproc.ProtocolError: broker.ExitFailed, "something new": broker.ExitFailed,
	} {
		if got := machineExit(vmmproc.Exit{Reason: reason}); got.Reason != want {
			t.Errorf("%s: %s, want %s", reason, got.Reason, want)
		}
	}
}

func TestMergeEnv(t *testing.T) {
	got := mergeEnv([]string{"HOME=/workspace", "A=1"}, []string{"A=2=3", "B="})
	if fmt.Sprint(got) != "[A=2=3 B= HOME=/workspace]" {
		t.Errorf("%v", got)
	}
}
