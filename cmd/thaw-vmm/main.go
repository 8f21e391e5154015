// Fixed at build time because the environment of the jail says nothing about them: the runtime neither reads its
// cgroup's CPU limit nor keeps descriptors of it.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command thaw-vmm runs one virtual machine. The daemon starts it with a socket as descriptor 3, on which it gets the
// machine's description and every descriptor that it will use; then it jails itself (package jail) and runs the
// guest. It has no flags, reads no files and writes none.
package main

import (
	"os"

	"thaw/vmm/vmmproc/vmmchild"
)

func main() { os.Exit(vmmchild.Main(newMachine)) }
