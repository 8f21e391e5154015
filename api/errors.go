package api

import (
	"fmt"
	"net/http"
	"strings"
)

// Code names a kind of failure. Codes are stable: clients branch on them.
type Code string

// The codes of the interface, with the HTTP status each is sent with.
const (
	CodeBadRequest       Code = "bad_request"        // 400: not parseable at all
	CodeRequestInvalid   Code = "request_invalid"    // 422: unknown field, wrong type, bad value
	CodeLimitImpossible  Code = "limit_impossible"   // 422: a limit outside what this host can give
	CodeUnknownProfile   Code = "unknown_profile"    // 422: image not in the catalogue
	CodeNetworkDenied    Code = "network_denied"     // 422: network profile not in the catalogue
	CodeScriptMissing    Code = "script_missing"     // 422: script is not among the inputs
	CodeUnknownInput     Code = "unknown_input"      // 422: input handle not known to this tenant
	CodeInputTooLarge    Code = "input_too_large"    // 413
	CodeUploadStalled    Code = "upload_stalled"     // 408: no byte of an upload came for a while
	CodeQuotaExceeded    Code = "quota_exceeded"     // 429: the tenant's inputs or jobs are at their bound
	CodeQueueFull        Code = "queue_full"         // 429
	CodeNotFound         Code = "not_found"          // 404: also for what belongs to another tenant
	CodeConflict         Code = "conflict"           // 409: the job is not in a state that allows this
	CodeShuttingDown     Code = "shutting_down"      // 503
	CodeForbidden        Code = "forbidden"          // 403: the caller cannot be identified
	CodeInternal         Code = "internal"           // 500
	CodeDaemonDown       Code = "daemon_unreachable" // made by clients: no daemon answers
	CodeSocketInUse      Code = "socket_in_use"      // made by thawd at start
	CodeStateInUse       Code = "state_dir_in_use"   // made by thawd at start
	CodeHostUnfit        Code = "host_unfit"         // made by thawd at start: something required is missing
	CodeAssetMissing     Code = "asset_missing"      // 503: kernel, image or initramfs not found
	CodeAssetInvalid     Code = "asset_invalid"      // 503: kernel, image or initramfs is not what it should be
	CodeVMMStart         Code = "vmm_start"          // job: the machine could not be started
	CodeVMMKilled        Code = "vmm_killed"         // job: thaw-vmm was killed
	CodeVMMFailed        Code = "vmm_failed"         // job: thaw-vmm ended by its own fault
	CodeGuestPanic       Code = "guest_panic"        // job: the guest kernel panicked
	CodeGuestEnded       Code = "guest_ended"        // job: the guest powered off or reset under the job
	CodeGuestNotReady    Code = "guest_not_ready"    // job: the guest was not ready in time
	CodeAgentFailed      Code = "agent_failed"       // job: the guest's agent broke the protocol or failed
	CodeInputRejected    Code = "input_rejected"     // job: the guest could not take an input (disk full, …)
	CodeCollectFailed    Code = "collect_failed"     // job: outputs could not be collected
	CodeTimedOut         Code = "timed_out"          // job: wall clock over
	CodeCancelled        Code = "cancelled"          // job: on request
	CodeDaemonStopping   Code = "daemon_stopping"    // job: the daemon was told to stop
	CodeMaterialise      Code = "materialise_failed" // job: the host could not provide memory, disk or cgroup
	CodeResponseTooLarge Code = "response_too_large" // made by clients

	CodeSandboxNotFound      Code = "sandbox_not_found"           // 404: also for what belongs to another tenant
	CodeSandboxState         Code = "sandbox_state"               // 409: the sandbox is paused, ended, or busy with another cell
	CodeSandboxExpired       Code = "sandbox_expired"             // sandbox: its lifetime is over
	CodeRolledBack           Code = "rolled_back"                 // run: the sandbox was rolled back under the program
	CodeExecFailed           Code = "exec_failed"                 // run: the guest could not start the program
	CodeNoInterpreter        Code = "no_interpreter"              // 422: the sandbox has no warm interpreter of this runtime
	CodeTemplatesOff         Code = "templates_off"               // 409: the daemon makes no sandboxes
	CodeTemplateFailed       Code = "template_failed"             // 500: the template of an image could not be made
	CodeRestoreFailed        Code = "restore_failed"              // 500: a machine could not be made from a snapshot
	CodeCheckpointFailed     Code = "checkpoint_failed"           // 500: the machine could not be saved
	CodeRollbackFailed       Code = "rollback_failed"             // 500: the machine could not be put back
	CodeFreezeTimeout        Code = "freeze_timeout"              // 409: the guest's processes did not stand still in time
	CodeNotAcknowledged      Code = "generation_not_acknowledged" // 500: the guest did not take its generation and was destroyed
	CodeSnapshotNotFound     Code = "snapshot_not_found"          // 404: also for what belongs to another tenant
	CodeSnapshotInUse        Code = "snapshot_in_use"             // 409: a machine needs it
	CodeSnapshotChildren     Code = "snapshot_has_children"       // 409: other snapshots need it
	CodeSnapshotIncompatible Code = "snapshot_incompatible"       // 409: of another CPU, kernel, image or program
	CodeSnapshotDamaged      Code = "snapshot_damaged"            // 409: its files are not what they were
	CodeSnapshotAmbiguous    Code = "snapshot_ambiguous"          // 409: several snapshots are meant
	CodeSnapshotInvalid      Code = "snapshot_invalid"            // 422: an archive or a request that makes no sense
	CodeNoSpace              Code = "no_space"                    // 507: the disk, or the snapshots' share of it, is full
)

var statusOf = map[Code]int{
	CodeBadRequest: http.StatusBadRequest, CodeForbidden: http.StatusForbidden, CodeNotFound: http.StatusNotFound,
	CodeConflict: http.StatusConflict, CodeInputTooLarge: http.StatusRequestEntityTooLarge,
	CodeUploadStalled: http.StatusRequestTimeout, CodeRequestInvalid: http.StatusUnprocessableEntity, CodeLimitImpossible: http.StatusUnprocessableEntity,
	CodeUnknownProfile: http.StatusUnprocessableEntity, CodeNetworkDenied: http.StatusUnprocessableEntity,
	CodeScriptMissing: http.StatusUnprocessableEntity, CodeUnknownInput: http.StatusUnprocessableEntity,
	CodeQuotaExceeded: http.StatusTooManyRequests, CodeQueueFull: http.StatusTooManyRequests,
	CodeShuttingDown: http.StatusServiceUnavailable, CodeAssetMissing: http.StatusServiceUnavailable,
	CodeAssetInvalid: http.StatusServiceUnavailable,

	CodeSandboxNotFound: http.StatusNotFound, CodeSnapshotNotFound: http.StatusNotFound,
	CodeSandboxState: http.StatusConflict, CodeTemplatesOff: http.StatusConflict, CodeFreezeTimeout: http.StatusConflict,
	CodeSnapshotInUse: http.StatusConflict, CodeSnapshotChildren: http.StatusConflict, CodeSnapshotIncompatible: http.StatusConflict,
	CodeSnapshotDamaged: http.StatusConflict, CodeSnapshotAmbiguous: http.StatusConflict,
	CodeNoInterpreter: http.StatusUnprocessableEntity, CodeSnapshotInvalid: http.StatusUnprocessableEntity,
	CodeNoSpace: http.StatusInsufficientStorage,
}

// Error is the one shape of every failure: of a request, of a job, of a program's start.
type Error struct {
	Code    Code   `json:"code" doc:"Stable name of the kind of failure" example:"limit_impossible"`
	Message string `json:"message" doc:"What failed, in one sentence"`
	Cause   string `json:"cause,omitempty" doc:"Why, as far as known: the underlying error, or the last console lines of a guest"`
	Remedy  string `json:"remedy,omitempty" doc:"What the caller or operator can do"`

	status int // overrides the code's status, for errors that the HTTP framework made
	wraps  error
}

// Errorf makes an error with a code and a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithCause returns a copy whose cause is err's text and which wraps err; nil leaves e as it is.
func (e *Error) WithCause(err error) *Error {
	if err == nil {
		return e
	}
	c := *e
	c.Cause, c.wraps = err.Error(), err
	return &c
}

// WithRemedy returns a copy with a remedy.
func (e *Error) WithRemedy(format string, args ...any) *Error {
	c := *e
	c.Remedy = fmt.Sprintf(format, args...)
	return &c
}

// WithStatus returns a copy that is sent with an HTTP status other than its code's.
func (e *Error) WithStatus(status int) *Error {
	c := *e
	c.status = status
	return &c
}

// Error implements error in one line: message, then cause.
func (e *Error) Error() string {
	if e.Cause == "" {
		return e.Message
	}
	return e.Message + ": " + e.Cause
}

// Unwrap gives the error that WithCause was given.
func (e *Error) Unwrap() error { return e.wraps }

// Is reports whether target is an Error of the same code, for errors.Is.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// GetStatus is the HTTP status that the error is sent with.
func (e *Error) GetStatus() int {
	if e.status != 0 {
		return e.status
	}
	if s, ok := statusOf[e.Code]; ok {
		return s
	}
	return http.StatusInternalServerError
}

// Text renders the error for people: message, cause and remedy, each on its own lines.
func (e *Error) Text() string {
	var b strings.Builder
	b.WriteString(e.Message)
	if e.Cause != "" {
		b.WriteString("\n  cause: " + strings.ReplaceAll(strings.TrimRight(e.Cause, "\n"), "\n", "\n    "))
	}
	if e.Remedy != "" {
		b.WriteString("\n  remedy: " + strings.ReplaceAll(e.Remedy, "\n", "\n    "))
	}
	return b.String()
}
