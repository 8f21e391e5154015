package agentproto

import (
	"errors"
	"fmt"
	"syscall"
)

// Code names a failure for programs; Message is for people.
type Code string

// The codes of an Error.
const (
	CodeBadRequest  Code = "bad_request"  // the request is not valid
	CodeNotFound    Code = "not_found"    // no such file, directory or program
	CodePermission  Code = "permission"   // not executable, or not allowed
	CodeNotRegular  Code = "not_regular"  // not a regular file
	CodeSymlink     Code = "symlink"      // the path leads through a symbolic link
	CodeNoSpace     Code = "no_space"     // the disk or its quota is full
	CodeTooLarge    Code = "too_large"    // over the bound that the request set
	CodeNotExecable Code = "not_execable" // the kernel cannot load the program
	CodeBusy        Code = "busy"         // too many execs, frozen, or shutting down
	CodeInternal    Code = "internal"     // the agent's own failure

	CodeFreezeTimeout Code = "freeze_timeout" // the processes did not stand still in time
	CodeStale         Code = "stale"          // the generation is not newer than the last one
	CodeLingering     Code = "lingering"      // connections to outside are left that cannot be ended
	CodeUnsupported   Code = "unsupported"    // not on this kind of machine
)

// Error is a failure that the agent reports. errors.Is compares by Code with
// the Err… values.
type Error struct {
	Code    Code   `cbor:"1,keyasint"`
	Message string `cbor:"2,keyasint"`
	Errno   int32  `cbor:"3,keyasint,omitempty"` // the kernel's, if any
}

// Values to compare with errors.Is.
var (
	ErrBadRequest  = &Error{Code: CodeBadRequest}
	ErrNotFound    = &Error{Code: CodeNotFound}
	ErrPermission  = &Error{Code: CodePermission}
	ErrNotRegular  = &Error{Code: CodeNotRegular}
	ErrSymlink     = &Error{Code: CodeSymlink}
	ErrNoSpace     = &Error{Code: CodeNoSpace}
	ErrTooLarge    = &Error{Code: CodeTooLarge}
	ErrNotExecable = &Error{Code: CodeNotExecable}
	ErrBusy        = &Error{Code: CodeBusy}
	ErrInternal    = &Error{Code: CodeInternal}

	ErrFreezeTimeout = &Error{Code: CodeFreezeTimeout}
	ErrStale         = &Error{Code: CodeStale}
	ErrLingering     = &Error{Code: CodeLingering}
	ErrUnsupported   = &Error{Code: CodeUnsupported}
)

// Error returns the message.
func (e *Error) Error() string {
	if e.Message == "" {
		return "agent: " + string(e.Code)
	}
	return fmt.Sprintf("agent: %s (%s)", e.Message, e.Code)
}

// Is compares by code.
func (e *Error) Is(target error) bool {
	var t *Error
	return errors.As(target, &t) && t.Code == e.Code
}

// Validate bounds what a guest may claim.
func (e *Error) Validate() error {
	if e.Code == "" || len(e.Code) > 32 || len(e.Message) > 4096 {
		return errors.New("error is out of bounds")
	}
	return nil
}

// FromErr makes an Error of err: an *Error in its chain is kept, an errno
// picks the code, all else is internal.
func FromErr(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	e = &Error{Code: CodeInternal, Message: truncate(err.Error(), 4096)}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		e.Errno, e.Code = int32(errno), codeOf(errno)
	}
	if errors.Is(err, ErrProtocol) {
		e.Code = CodeBadRequest
	}
	return e
}

func codeOf(errno syscall.Errno) Code {
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR:
		return CodeNotFound
	case syscall.EACCES, syscall.EPERM:
		return CodePermission
	case syscall.ELOOP, syscall.EXDEV:
		return CodeSymlink
	case syscall.ENOSPC, syscall.EDQUOT:
		return CodeNoSpace
	case syscall.EFBIG:
		return CodeTooLarge
	case syscall.ENOEXEC, syscall.ELIBBAD:
		return CodeNotExecable
	case syscall.E2BIG, syscall.ENAMETOOLONG:
		return CodeBadRequest
	case syscall.EISDIR:
		return CodeNotRegular
	case syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		return CodeBusy
	}
	return CodeInternal
}

func truncate(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
