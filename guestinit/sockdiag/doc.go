// Package sockdiag ends connections by the kernel's socket diagnosis over
// netlink (sock_diag(7), INET_DIAG_DESTROY): what `ss --kill` does, in process,
// since after a restore the start of a program costs more than everything
// else that is done there.
//
// A machine that was restored, forked or rolled back has connections whose
// other ends know nothing of it, and two forks would both speak on one. So
// every connection to outside the machine is destroyed: the program that has
// it open gets ECONNABORTED at once. Listeners and connections within the
// machine stay.
//
//	dump TCP (both families, one request)  ──▶ inet_diag_msg …  NLMSG_DONE
//	dump connected UDP, IPv4 and IPv6      ──▶ inet_diag_msg …  NLMSG_DONE
//	SOCK_DESTROY for each that leads out   ──▶ error, or nothing
//	                     (the last with ACK) ──▶ NLMSG_ERROR 0
//
// The socket and the buffer are made ahead: a dump that finds nothing is two
// system calls and allocates nothing.
package sockdiag
