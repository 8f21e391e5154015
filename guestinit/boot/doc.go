// Package boot is PID 1's way from the initramfs to a machine that serves
// jobs, and back down:
//
//	initramfs: /proc /sys /dev, kernel modules, settings
//	     │
//	     ├─ /lower   EROFS of vda, read only
//	     ├─ /rw      ext4 of vdb: upper/ work/ workspace/ tmp/
//	     └─ /newroot overlay of both, with /workspace, /tmp, /dev, /proc, /sys
//	     │
//	 switch root ─▶ cgroups, launcher, agent ─▶ ready ─▶ … ─▶ freeze disk, power off
//
// It is straight-line code: each step names itself, and the first error ends
// the machine with a line on the console that says which step it was.
//
// Every system call here is paid at each cold start (7 µs on a pvm host, and
// 20 µs for each byte on the console), so nothing is done that no job needs.
package boot
