package guesttest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// isolation checks what C2 says that a job must not have.
func (s *suite) isolation(t *testing.T) {
	// Without a shell, which may change signals itself.
	status := s.run(t, agentproto.ExecRequest{Argv: []string{"cat", "/proc/self/status"}}, "").out
	line := func(name string) string {
		for l := range strings.Lines(status) {
			if rest, ok := strings.CutPrefix(l, name+":"); ok {
				return strings.Join(strings.Fields(rest), " ")
			}
		}
		return ""
	}
	ignored := "0000000000000000"
	if s.opts.NoMachine != "" {
		// On a host the agent may have been started with signals ignored, as
		// nohup does, and hands that on. Nobody does it to a guest's PID 1.
		ignored = line("SigIgn")
	}
	for name, want := range map[string]string{
		"Uid": "10001 10001 10001 10001", "Gid": "10001 10001 10001 10001", "Groups": "",
		"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
		"CapBnd": "0000000000000000", "CapAmb": "0000000000000000",
		"NoNewPrivs": "1", "Seccomp": "2", "TracerPid": "0", "Umask": "0022",
		"SigBlk": "0000000000000000", "SigIgn": ignored,
	} {
		if got := line(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	t.Run("Descriptors", func(t *testing.T) {
		// The directory that ls reads is its own 3.
		if got := strings.Fields(s.shell(t, "ls /proc/self/fd")); strings.Join(got, " ") != "0 1 2 3" {
			t.Errorf("descriptors are %v", got)
		}
	})
	t.Run("OtherUser", func(t *testing.T) {
		r := s.run(t, agentproto.ExecRequest{Argv: []string{"id", "-u"}, UID: 12345, GID: 12346, Cwd: "/"}, "")
		if r.out != "12345\n" {
			t.Errorf("id gave %q, %q", r.out, r.err)
		}
	})
	t.Run("Session", func(t *testing.T) {
		// Fields 5 and 6 of stat are process group and session.
		out := strings.Fields(s.shell(t, "cut -d' ' -f5,6 /proc/$$/stat; echo $$"))
		if len(out) != 3 || out[0] != out[2] || out[1] != out[2] {
			t.Errorf("process group, session and pid are %v", out)
		}
	})
	t.Run("Cgroup", func(t *testing.T) {
		out := s.shell(t, "grep ^0:: /proc/self/cgroup")
		if strings.Count(out, "/") < 2 {
			t.Errorf("cgroup is %q", out)
		}
		if again := s.shell(t, "grep ^0:: /proc/self/cgroup"); again == out {
			t.Errorf("two execs share the cgroup %q", out)
		}
	})
	t.Run("AgentOutOfReach", func(t *testing.T) {
		// The parent is the agent: PID 1 in a guest.
		s.shell(t, `p=$PPID; ! kill -0 $p 2>/dev/null && ! cat /proc/$p/environ 2>/dev/null && ! ls /proc/$p/fd 2>/dev/null`)
	})
	t.Run("SetuidGivesNothing", func(t *testing.T) {
		r := s.run(t, sh("mkdir -p own && cp /bin/sh own/sh && chmod 4755 own/sh && own/sh -c 'grep ^CapEff /proc/self/status'"), "")
		if !strings.Contains(r.out, "0000000000000000") {
			t.Errorf("got %q, %q", r.out, r.err)
		}
	})
}

// seccomp tries what the filter denies: with the usual tools, or where an image
// lacks one, by the call that it would make.
func (s *suite) seccomp(t *testing.T) {
	for _, c := range []struct{ name, script, call string }{
		{"Mount", "mount -t tmpfs none /tmp", "165, 0, 0, 0, 0, 0"},
		{"Umount", "umount /proc", "166, 0, 0"},
		{"Unshare", "unshare -U true", "272, 0x10000000"},
		{"Chroot", "chroot / true", "161, 0"},
		{"Dmesg", "dmesg", "103, 3, 0, 0"},
		{"Hostname", "hostname other", "170, 0, 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tool, _, _ := strings.Cut(c.script, " ")
			if r := s.run(t, sh("command -v "+tool), ""); r.Code != 0 {
				s.needPython(t)
				s.refused(t, []rawCall{{tool, c.call}}, "")
				return
			}
			if r := s.run(t, sh(c.script), ""); r.Code == 0 && r.err == "" {
				t.Errorf("%q succeeded: %q", c.script, r.out)
			}
		})
	}
	t.Run("Python", s.seccompPython)
}

// rawCall is a system call: its number and arguments as Python writes them.
type rawCall struct{ name, args string }

// seccompPython makes raw system calls, where the image has Python.
func (s *suite) seccompPython(t *testing.T) {
	s.needPython(t)
	s.refused(t, []rawCall{
		{"bpf", "321, 0, 0, 0"}, {"perf_event_open", "298, 0, 0, 0, 0, 0"}, {"userfaultfd", "323, 0"},
		{"io_uring_setup", "425, 1, 0"}, {"keyctl", "250, 0, 0"}, {"add_key", "248, 0, 0, 0, 0, 0"},
		{"process_vm_readv", "310, 1, 0, 0, 0, 0, 0"}, {"ptrace attach", "101, 16, 1, 0, 0"},
		{"ptrace high bits", "101, (1<<32)|16, 1, 0, 0"}, {"unshare user", "272, 0x10000000"},
		{"vsock", "41, 40, 1, 0"}, {"vsock high bits", "41, (1<<32)|40, 1, 0"}, {"packet", "41, 17, 3, 0"},
		{"alg", "41, 38, 5, 0"}, {"netlink audit", "41, 16, 3, 9"}, {"finit_module", "313, 0, 0, 0"},
		{"setns", "308, 0, 0"}, {"clone newuser", "56, 0x10000011, 0, 0, 0, 0"}, {"mount", "165, 0, 0, 0, 0, 0"},
		{"umount2", "166, 0, 0"}, {"pivot_root", "155, 0, 0"}, {"open_tree_attr", "467, 0, 0, 0, 0, 0"},
		{"reboot", "169, 0, 0, 0, 0"}, {"kexec_load", "246, 0, 0, 0, 0"},
	},
		// And what must still work.
		"import socket,os,threading\nsocket.socket(socket.AF_INET6).close(); socket.socketpair(); socket.if_nameindex()\n"+
			"t=threading.Thread(target=os.getpid); t.start(); t.join()\nif os.fork()==0: os._exit(0)\nos.wait()\n")
}

// refused makes calls that must each fail with EPERM, and then runs what must
// work.
func (s *suite) refused(t *testing.T, calls []rawCall, works string) {
	t.Helper()
	script := "import ctypes,errno\nl=ctypes.CDLL(None,use_errno=True).syscall\nl.argtypes=[ctypes.c_ulong]*7\n"
	for _, c := range calls {
		n := 6 - strings.Count(c.args, ",")
		script += fmt.Sprintf("ctypes.set_errno(0); r=l(%s%s); print(%q, r, errno.errorcode.get(ctypes.get_errno()), sep='|')\n",
			c.args, strings.Repeat(", 0", n), c.name)
	}
	script += works + "print('fine')\n"
	r := s.run(t, agentproto.ExecRequest{Argv: []string{"python3", "-"}}, script)
	for _, c := range calls {
		if !strings.Contains(r.out, c.name+"|-1|EPERM\n") {
			t.Errorf("%s was not refused with EPERM", c.name)
		}
	}
	if !strings.HasSuffix(r.out, "fine\n") {
		t.Errorf("ordinary calls fail: %q", r.err)
	}
	if t.Failed() {
		t.Logf("output: %s", r.out)
	}
}

// machine checks the guest as PID 1 set it up (C1).
func (s *suite) machine(t *testing.T) {
	s.needMachine(t)
	for _, c := range []struct{ name, script, want string }{
		{"Devices", "for d in null zero full random urandom tty ptmx; do test -c /dev/$d || echo no $d; done", ""},
		{"DeviceWrite", "echo x >/dev/null && head -c 4 /dev/zero | wc -c", "4\n"},
		{"DevLinks", "for l in fd stdin stdout stderr; do test -L /dev/$l || echo no $l; done; echo hi >/dev/stdout", "hi\n"},
		{"NoOtherDevices", "ls /dev | sort | tr '\\n' ' '", "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero "},
		{"Shm", "echo x >/dev/shm/x && cat /dev/shm/x && rm /dev/shm/x", "x\n"},
		{"Hostname", "cat /proc/sys/kernel/hostname", "sandbox\n"},
		{"HugePages", "cat /sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"},
		{"HugePagesNotBehindBack", "cat /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "4294967295\n"},
		{"SysReadOnly", "grep -c ' /sys sysfs ro' /proc/mounts", "1\n"},
		{"RootWritable", "touch /tmp/x && rm /tmp/x && test ! -w /etc && echo yes", "yes\n"},
		{"TmpSticky", "stat -c %a /tmp", "1777\n"},
		{"HidePid", "test ! -e /proc/1/status && echo hidden", "hidden\n"},
		{"Loopback", "cat /sys/class/net/lo/operstate; grep -c lo: /proc/net/dev", "unknown\n1\n"},
		{"NoUserNamespaces", "cat /proc/sys/user/max_user_namespaces", "0\n"},
		{"Ptrace", "cat /proc/sys/kernel/yama/ptrace_scope", "2\n"},
		{"Dmesg", "cat /proc/sys/kernel/dmesg_restrict", "1\n"},
		{"NoSuidMounts", "grep -E ' (/|/workspace|/tmp|/dev/shm) ' /proc/mounts | grep -vc nosuid", "0\n"},
		{"CgroupReadOnly", "test ! -w /sys/fs/cgroup/cgroup.procs && echo yes", "yes\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r := s.run(t, sh(c.script), ""); r.out != c.want {
				t.Errorf("%q gave %q, want %q (stderr %q)", c.script, r.out, c.want, r.err)
			}
		})
	}
}

// shutdown ends the machine.
func (s *suite) shutdown(t *testing.T) {
	// A running exec must not hold it up.
	p, err := s.c.Exec(context.Background(), sh("trap '' TERM; while :; do sleep 1; done"), agentclient.ExecIO{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.c.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if st, err := p.Wait(); err == nil && st.Cause != agentproto.CauseCancelled {
		t.Errorf("the running exec ended by %s", st.Cause)
	}
}
