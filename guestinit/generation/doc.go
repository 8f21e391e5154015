// Package generation makes a restored machine one of its own (requirements B8,
// B11): what it took from the checkpoint and must not share with others is
// replaced, in this order, while all jobs are frozen.
//
//	random       the host's seed into the kernel's generator, which is then
//	             reseeded (RNDADDENTROPY, RNDRESEEDCRNG): every getrandom,
//	             that of the vDSO included, gives other numbers from here on
//	clock        CLOCK_REALTIME
//	identity     machine id, hostname
//	connections  TCP to outside the machine (package sockdiag)
//	file         the number, for every process to read
//
// All of it is time between a restore and its first output, on hosts where a
// system call costs 7 µs and a page touched for the first time 23 µs. So
// descriptors are opened and buffers made ahead, no path is longer than
// needed, and a machine without a network device that is up has no connections
// to look for.
//
// What is not replaced, since nothing can: /proc/sys/kernel/random/boot_id,
// AT_RANDOM, hash secrets and address layout of running processes.
package generation
