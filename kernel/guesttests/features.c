// SPDX-License-Identifier: GPL-2.0
/*
 * What the agent and jobs need of the kernel works: refusal of opens by
 * fanotify, process events, BPF, vsock, io_uring, userfaultfd, landlock,
 * namespaces, seccomp, file systems, cgroup controllers, pressure.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/landlock.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/fanotify.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guesttest.h"

static int failures;

/* Prints how an attempt ended and returns its result. */
static long check(const char *what, long result)
{
	if (result < 0) {
		failures++;
		printf("%s: FAILED, %s\n", what, strerror(errno));
	} else {
		printf("%s: ok\n", what);
	}
	return result;
}

/* The exit status of a child that fn runs in, as check wants it. */
static long in_child(int (*fn)(void))
{
	int status;

	fflush(stdout);
	pid_t pid = fork();

	if (!pid)
		_exit(fn());
	waitpid(pid, &status, 0);
	errno = status ? EPROTO : 0;
	return status ? -1 : 0;
}

/* This program's own file: one that is there in every guest. */
static char self[4096];

static int open_is_denied(void)
{
	return open(self, O_RDONLY) < 0 && errno == EPERM ? 0 : 1;
}

/* A watcher refuses an open before it happens, as exec policy does. */
static void fanotify_denies(void)
{
	struct fanotify_event_metadata event[8];
	struct fanotify_response answer;
	int status;
	int fan = check("fanotify with permission events",
			fanotify_init(FAN_CLASS_CONTENT, O_RDONLY));

	check("fanotify mark for exec",
	      fanotify_mark(fan, FAN_MARK_ADD, FAN_OPEN_EXEC_PERM, AT_FDCWD, self));
	check("fanotify mark for open",
	      fanotify_mark(fan, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, self));
	fflush(stdout);
	pid_t pid = fork();

	if (!pid)
		_exit(open_is_denied());
	check("fanotify event", read(fan, event, sizeof(event)));
	answer = (struct fanotify_response){ event[0].fd, FAN_DENY };
	check("fanotify answer", write(fan, &answer, sizeof(answer)));
	waitpid(pid, &status, 0);
	check("fanotify refuses the open", status ? -1 : 0);
	close(event[0].fd);
	close(fan);
}

/* Fork, exec and exit events of all processes. */
static void process_events(void)
{
	struct __attribute__((packed)) {
		struct nlmsghdr header;
		struct cn_msg message;
		enum proc_cn_mcast_op operation;
	} subscribe = {
		.header = { .nlmsg_len = sizeof(subscribe), .nlmsg_type = NLMSG_DONE },
		.message = { .id = { CN_IDX_PROC, CN_VAL_PROC },
			     .len = sizeof(enum proc_cn_mcast_op) },
		.operation = PROC_CN_MCAST_LISTEN,
	};
	struct sockaddr_nl address = { .nl_family = AF_NETLINK,
				       .nl_groups = CN_IDX_PROC,
				       .nl_pid = getpid() };
	char event[4096];
	int nl = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_CONNECTOR);
	struct pollfd poll_nl = { nl, POLLIN, 0 };

	check("proc connector", bind(nl, (struct sockaddr *)&address, sizeof(address)));
	check("proc connector subscription", send(nl, &subscribe, sizeof(subscribe), 0));
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	check("process event",
	      poll(&poll_nl, 1, 1000) == 1 ? recv(nl, event, sizeof(event), 0) : -1);
	waitpid(pid, NULL, 0);
	close(nl);
}

static long bpf(int command, union bpf_attr *attr)
{
	return syscall(SYS_bpf, command, attr, sizeof(*attr));
}

/* A map, and a program that is loaded and run. */
static void bpf_works(void)
{
	struct bpf_insn return_7[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .imm = 7 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	union bpf_attr map = { .map_type = BPF_MAP_TYPE_HASH,
			       .key_size = 4,
			       .value_size = 8,
			       .max_entries = 16 };
	union bpf_attr load = { .prog_type = BPF_PROG_TYPE_SOCKET_FILTER,
				.insns = (uintptr_t)return_7,
				.insn_cnt = 2,
				.license = (uintptr_t)"GPL" };
	char packet[64] = { 0 };

	check("bpf map", bpf(BPF_MAP_CREATE, &map));
	int program = check("bpf program", bpf(BPF_PROG_LOAD, &load));
	union bpf_attr run = { .test = { .prog_fd = program,
					 .data_in = (uintptr_t)packet,
					 .data_size_in = sizeof(packet) } };

	check("bpf program run", bpf(BPF_PROG_TEST_RUN, &run));
	check("bpf program result", run.test.retval == 7 ? 0 : -1);
}

static void vsock_loopback(void)
{
	struct sockaddr_vm address = { .svm_family = AF_VSOCK,
				       .svm_port = 1234,
				       .svm_cid = VMADDR_CID_ANY };
	int listener = socket(AF_VSOCK, SOCK_STREAM, 0);
	int client = socket(AF_VSOCK, SOCK_STREAM, 0);

	check("vsock bind", bind(listener, (struct sockaddr *)&address, sizeof(address)));
	check("vsock listen", listen(listener, 1));
	address.svm_cid = VMADDR_CID_LOCAL;
	check("vsock loopback", connect(client, (struct sockaddr *)&address, sizeof(address)));
	close(client);
	close(listener);
}

static int all_namespaces(void)
{
	return unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
		       CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) != 0;
}

/* A filter that makes getppid fail with an error of its own. */
static int seccomp_filters(void)
{
	enum { MARK = 99 };
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* seccomp_data.nr */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | MARK),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 1;
	errno = 0;
	syscall(SYS_getppid);
	return errno == MARK ? 0 : 2;
}

/* Whether a line of the file at path has word as its nth field, from 0. */
static int has_word(const char *path, int nth, const char *word)
{
	char line[1024];
	int found = 0;
	FILE *file = fopen(path, "r");

	while (file && !found && fgets(line, sizeof(line), file)) {
		char *field = strtok(line, "\t\n ");
		for (int i = 0; field && i < nth; i++)
			field = strtok(NULL, "\t\n ");
		found = field && !strcmp(field, word);
	}
	if (file)
		fclose(file);
	errno = found ? 0 : ENOENT;
	return found;
}

static void file_systems(void)
{
	static const char *const on_disk[] = { "erofs", "ext4" };
	static const char *const without_disk[] = { "overlay", "tmpfs", "cgroup2" };
	char what[64];

	for (int i = 0; i < 2; i++) {
		snprintf(what, sizeof(what), "file system %s", on_disk[i]);
		check(what, has_word("/proc/filesystems", 0, on_disk[i]) - 1);
	}
	for (int i = 0; i < 3; i++) { /* these lines begin with "nodev" */
		snprintf(what, sizeof(what), "file system %s", without_disk[i]);
		check(what, has_word("/proc/filesystems", 1, without_disk[i]) - 1);
	}
}

static void controllers(void)
{
	static const char *const names[] = { "memory", "pids", "cpu", "cpuset", "blkio" };
	char what[64];

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(what, sizeof(what), "cgroup controller %s", names[i]);
		check(what, has_word("/proc/cgroups", 0, names[i]) - 1);
	}
	check("pressure", access("/proc/pressure/memory", R_OK));
}

int main(void)
{
	struct io_uring_params ring = { 0 };

	check("path of this program", readlink("/proc/self/exe", self, sizeof(self) - 1));
	fanotify_denies();
	process_events();
	check("audit socket", socket(AF_NETLINK, SOCK_RAW, NETLINK_AUDIT));
	bpf_works();
	vsock_loopback();
	check("inet6", socket(AF_INET6, SOCK_STREAM, 0));
	check("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* user mode only */));
	check("io_uring", syscall(SYS_io_uring_setup, 8, &ring));
	check("landlock", syscall(SYS_landlock_create_ruleset, NULL, 0,
				  LANDLOCK_CREATE_RULESET_VERSION));
	check("namespaces", in_child(all_namespaces));
	check("seccomp filter", in_child(seccomp_filters));
	file_systems();
	controllers();
	return verdict("features", failures);
}
