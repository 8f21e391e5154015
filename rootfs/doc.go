// Package rootfs makes what a guest boots from besides its kernel: the
// read-only root images (EROFS), the empty template of the writable disk (ext4)
// and the initramfs that carries PID 1.
//
// An image is put together from layers, each made once and cached by what
// decides it:
//
//	debian    a Debian tree by mmdebstrap, stripped          ┐
//	wheels    PyPI's wheels, unpacked                        │ merged in this
//	bytecode  .pyc files and the font list, made by the      │ order, with fixed
//	          image's own interpreter in a chroot            │ times and owners
//	node      the node binary and utility packages by npm    ┘
//
// The recipe (recipe/) says what goes in, the lock (lock/) which versions with
// which digests; both are embedded. README.md says what happens when Debian's
// mirror has moved on from the lock. The same packages give the same image, bit
// for bit.
package rootfs
