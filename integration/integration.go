// Package integration holds the tests that need a real guest: the kernel's
// own test programs, the agent's cases, and machines in their jails, on each
// kernel, with one and two processors and with little and much memory. They
// run natively and, as one test binary, in the lab.
//
// Kernels and images come from the cache (make kernel images); programs from
// $THAW_BIN, else they are built.
package integration
