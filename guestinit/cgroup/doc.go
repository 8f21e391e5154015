// Package cgroup gives each exec a cgroup v2 of its own, by plain file access
// (Documentation/admin-guide/cgroup-v2.rst).
//
// All groups are children of one parent, so that the jobs together can never
// take the memory that the agent needs:
//
//	/sys/fs/cgroup           PID 1 (the root may hold processes)
//	└── jobs                 memory.max = machine - reserve
//	    ├── 1                one exec: memory.max, pids.max, cpu.max, oom.group
//	    └── 2                ...
//
// A hierarchy that lacks a controller still works: what cannot be enforced is
// named by Skipped. Thaw's own guests have all of them.
package cgroup
