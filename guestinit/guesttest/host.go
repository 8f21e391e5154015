package guesttest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// reexecEnv marks a test process that HostMain started.
const reexecEnv = "THAW_GUESTTEST_USERNS"

// HostMain runs the tests of a package that starts jobs on the host. PID 1 of
// a guest sets the limits of jobs of another user, which takes
// CAP_SYS_RESOURCE; containers often withhold that from root. Then the tests
// run again inside a user namespace with the same ids, where it is theirs.
func HostMain(m *testing.M) {
	if os.Geteuid() != 0 || hasResourceCap() || os.Getenv(reexecEnv) != "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), reexecEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
		GidMappingsEnableSetgroups: true, Pdeathsig: syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "guesttest: run tests in a user namespace:", err)
		os.Exit(1)
	}
}

func hasResourceCap() bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	return unix.Capget(&hdr, &data[0]) == nil && data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// CgroupMount finds where cgroup v2 is mounted, with or without controllers,
// and skips the test where it is not.
func CgroupMount(t testing.TB) string {
	t.Helper()
	for _, path := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(path, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return path
		}
	}
	t.Skip("no cgroup v2 hierarchy is mounted")
	return ""
}
