package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/query"
)

// The substatuses that clients look at.
const (
	subNotServed        = 1004 // 400: a query that clients must run by its plan
	subKeyMismatch      = 1001 // 400: the key of the header and that of the item differ
	subSessionAhead     = 1002 // 404: the session has seen more than there is
	subOwnerNotFound    = 1003 // 404: the container or database is missing
	subRangeGone        = 1002 // 410: the range is gone
	subAnswerTooLarge   = 3402 // 413: the answers of a bulk request are too large
	subConditionFailed  = 1110 // 412: a patch's condition is false
	subRequestRateLarge = 3200 // 429
)

// retryAfterDefault is how long a client is told to wait if the refusal itself does not say.
const retryAfterDefault = 100 * time.Millisecond

// failure is an error of the protocol.
type failure struct {
	status     int
	substatus  int // 0: none
	message    string
	retryAfter time.Duration // 0: none
	info       string        // what the body tells beside the message; "": nothing
}

func (f *failure) Error() string { return f.message }

// refuse returns a failure with a formatted message.
func refuse(status int, format string, args ...any) *failure {
	return &failure{status: status, message: fmt.Sprintf(format, args...)}
}

// refuseAs returns a failure with a substatus.
func refuseAs(status, substatus int, format string, args ...any) *failure {
	return &failure{status: status, substatus: substatus, message: fmt.Sprintf(format, args...)}
}

// readOnlySystem refuses a write to the database that Millrace keeps for itself, with any key.
// A client that could delete a dead letter, or make one up, could hide what a pipeline has
// not done.
func readOnlySystem(operation string) *failure {
	return refuse(http.StatusForbidden,
		"cannot %s: the database %s is Millrace's own and read-only for every key; millrace dead-letters retries and drops dead letters",
		operation, store.SystemDatabase)
}

// codeNames are the protocol's names of statuses.
var codeNames = map[int]string{
	http.StatusBadRequest:            "BadRequest",
	http.StatusUnauthorized:          "Unauthorized",
	http.StatusForbidden:             "Forbidden",
	http.StatusNotFound:              "NotFound",
	http.StatusMethodNotAllowed:      "MethodNotAllowed",
	http.StatusRequestTimeout:        "RequestTimeout",
	http.StatusConflict:              "Conflict",
	http.StatusGone:                  "Gone",
	http.StatusPreconditionFailed:    "PreconditionFailed",
	http.StatusRequestEntityTooLarge: "RequestEntityTooLarge",
	http.StatusFailedDependency:      "FailedDependency",
	http.StatusTooManyRequests:       "TooManyRequests",
	statusRetryWith:                  "RetryWith",
	http.StatusInternalServerError:   "InternalServerError",
	http.StatusNotImplemented:        "NotImplemented",
	http.StatusServiceUnavailable:    "ServiceUnavailable",
}

// statusRetryWith is the protocol's status for concurrent writes that conflict.
const statusRetryWith = 449

// statuses is the table from statuses of the store to failures of the protocol. A status that
// is not in it is the same in both.
var statuses = map[store.Status]failure{
	store.StatusGone:             {status: http.StatusServiceUnavailable, retryAfter: retryAfterDefault},
	store.StatusTooManyRequests:  {status: http.StatusTooManyRequests, substatus: subRequestRateLarge, retryAfter: retryAfterDefault},
	store.StatusUnavailable:      {status: http.StatusServiceUnavailable, retryAfter: retryAfterDefault},
	store.StatusUnknown:          {status: http.StatusRequestTimeout},
	store.StatusInsufficientDisk: {status: http.StatusServiceUnavailable, retryAfter: time.Second},
}

// translate is the table from errors to failures.
func translate(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if e, ok := errors.AsType[*store.Error](err); ok {
		return translateStatus(e.Status, e.Message, e.RetryAfter)
	}
	// From the particular to the general: a lost quorum with an unknown outcome is both
	// ErrUnknown and NoQuorumError, and the client must learn first that the write may have
	// happened.
	switch {
	case isType[*store.NoContainerError](err), isType[*store.NoDatabaseError](err):
		return refuseAs(http.StatusNotFound, subOwnerNotFound, "%v", err)
	case isType[*store.SplitError](err):
		// Clients read the ranges again, and go on in the children.
		return refuseAs(http.StatusGone, subRangeGone, "%v; read the ranges again", err)
	case isType[*store.DamageError](err):
		return &failure{status: http.StatusServiceUnavailable, message: err.Error(), retryAfter: time.Second}
	case errors.Is(err, store.ErrUnknown) && isType[*store.NoQuorumError](err):
		return refuse(http.StatusRequestTimeout, "the write may have happened or not; read it before you write again: %v", err)
	case isType[*store.NoOwnerError](err), isType[*store.NoQuorumError](err):
		return &failure{status: http.StatusServiceUnavailable, message: err.Error(), retryAfter: retryAfterDefault}
	case errors.Is(err, store.ErrUnknown):
		return refuse(http.StatusRequestTimeout, "the outcome of the write was not learned in time; read it before you write again: %v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return refuse(http.StatusRequestTimeout, "the request took too long: %v", err)
	case store.Unanswered(err):
		return &failure{status: http.StatusServiceUnavailable, message: "the log or the catalog cannot be reached now: " + err.Error(), retryAfter: retryAfterDefault}
	case errors.Is(err, context.Canceled):
		return &failure{status: http.StatusServiceUnavailable, message: "the request was given up: " + err.Error(), retryAfter: retryAfterDefault}
	case isType[*feed.TrimmedError](err):
		// Without a substatus: the ones that clients know make them read the ranges again and
		// then send the same request.
		trimmed, _ := errors.AsType[*feed.TrimmedError](err)
		if trimmed.First == 0 { // of a container that this one was restored from
			return refuse(http.StatusGone, "%v", err)
		}
		return refuse(http.StatusGone, "the change feed of range %d begins at LSN %d; what was before, LSN %d among it, was trimmed (changeFeed.retention): "+
			"begin anew, with the items or with the latest versions", trimmed.Partition.Number, trimmed.First, trimmed.Want)
	case isType[*query.SyntaxError](err):
		return refuse(http.StatusBadRequest, "the query is wrong: %v", err)
	case errors.Is(err, store.ErrBadRequest):
		return refuse(http.StatusBadRequest, "%v", err)
	case errors.Is(err, feed.ErrKey), errors.Is(err, feed.ErrSyntax):
		return refuse(http.StatusBadRequest, "%v", err)
	}
	return refuse(http.StatusInternalServerError, "%v", err)
}

func translateStatus(status store.Status, message string, retryAfter time.Duration) *failure {
	f, ok := statuses[status]
	if !ok {
		f = failure{status: int(status)}
	}
	f.message = message
	if retryAfter > 0 {
		f.retryAfter = retryAfter
	}
	return &f
}

// clip shortens a text from a client for a message.
func clip(text string) string { return document.Excerpt(text, 40) }

func isType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
