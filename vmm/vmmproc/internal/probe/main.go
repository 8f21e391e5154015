//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command probe is thaw-vmm with a machine that misbehaves as its kernel command line says. It runs in the real
// jail, so what it can and cannot do there is what a VMM under a guest's control could.
package main

import (
	"os"

	"thaw/vmm/vmmproc/vmmchild"
)

func main() { os.Exit(vmmchild.Main(newMachine)) }
