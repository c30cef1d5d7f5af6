package processors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	storepace "github.com/millrace/millrace/store/pace"
)

// Limits of trying again.
const (
	// RetryFirst and RetryMax bound the pause between two attempts.
	RetryFirst = 10 * time.Millisecond
	RetryMax   = 5 * time.Second
	// AttemptsMax is how often a failure that may lie in the change itself is
	// tried before the change is given up. How often something was unavailable
	// meanwhile does not count.
	AttemptsMax = 8
	// StuckAttempts is after how many failures in a row a processor is stuck.
	StuckAttempts = 10
)

// ErrFenced says that the processor's lease has passed on: a write was refused
// because its epoch is old. The term ends.
var ErrFenced = errors.New("processors: the lease has passed on")

// FencedError is ErrFenced where what is written to tells the epoch that it has seen. Sinks return
// it; store.Error tells the same of a partition.
type FencedError struct {
	Seen uint64
}

// Error names the epoch.
func (e *FencedError) Error() string { return fmt.Sprintf("%v: epoch %d has begun", ErrFenced, e.Seen) }

// Is matches ErrFenced.
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// EpochOver is the epoch that no lease has. Recorded of a producer it says that the producer's
// generation is over: every epoch is older, and none can be raised above it.
const EpochOver = math.MaxUint64

// EpochSeen returns the epoch of which err says that a target has seen it, and so refuses an
// older one; 0 if err says nothing of the kind, or if the epoch is EpochOver.
func EpochSeen(err error) (seen uint64) {
	if fenced, ok := errors.AsType[*FencedError](err); ok {
		seen = fenced.Seen
	} else if refusal, ok := errors.AsType[*store.Error](err); ok && refusal.Status == store.StatusFenced {
		seen = refusal.Epoch
	}
	if seen == EpochOver {
		return 0
	}
	return seen
}

// tellLease returns err so that the lease is told of the epoch that has refused the term's
// writes. If the lease is still the term's, that epoch was lost, and the next term gets a greater
// one; see the package's comment.
func tellLease(err error) error {
	if seen := EpochSeen(err); seen > 0 {
		return behindError{err, seen}
	}
	return err
}

// behindError is an error that is a leases.EpochBehindError too.
type behindError struct {
	error
	seen uint64
}

func (e behindError) Unwrap() []error {
	return []error{e.error, &leases.EpochBehindError{Seen: e.seen}}
}

// permanentError marks a failure that no further attempt can change.
type permanentError struct{ error }

func (r permanentError) Unwrap() error { return r.error }

// Reject marks err as permanent: no further attempt can change it. The Host then looks for
// the change that causes it and gives it up.
func Reject(err error) error { return permanentError{err} }

// Failure says what an error asks for.
type Failure uint8

// The kinds of failures.
const (
	// Canceled: the context ended; nothing is wrong.
	Canceled Failure = iota + 1
	// Fenced: a newer holder of the lease has written; stop.
	Fenced
	// Unavailable: what is needed is not there now; try until it is.
	Unavailable
	// Transient: try AttemptsMax times in a row, leaving out what was Unavailable between, then
	// take it as Permanent.
	Transient
	// Permanent: trying again cannot help.
	Permanent
)

// FailureOf classifies err, which came from work under ctx. The order decides:
//
//	fenced, and ctx has ended too     Fenced: that a successor writes is worth telling
//	ctx has ended                     Canceled, whatever err says: a call that was cut
//	                                  off fails in many ways
//	none of what is known             Transient: tried some times, then given up
func FailureOf(ctx context.Context, err error) Failure {
	var refusal *store.Error
	var rejected permanentError
	switch {
	case errors.Is(err, ErrFenced), errors.Is(err, store.ErrFenced):
		return Fenced
	case ctx.Err() != nil:
		return Canceled
	case errors.As(err, &rejected):
		return Permanent
	case errors.Is(err, store.ErrUnknown), errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrNotOwner),
		errors.Is(err, store.ErrDiskFull), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrStaleConnection):
		return Unavailable
	case errors.As(err, &refusal):
		return failureOf(refusal)
	}
	return Transient
}

func failureOf(e *store.Error) Failure {
	switch {
	// An owner that says when to come again expects that it will pass.
	case e.Status == store.StatusTooManyRequests, e.RetryAfter > 0:
		return Unavailable
	// The owner may be at fault, and the next one not. Below 500 it is the request that is at
	// fault: it would be refused again.
	case e.Status >= store.StatusInternal:
		return Transient
	}
	return Permanent
}

// healsFor is how long a refusal that ends by itself is no news, such as that of an
// owner in which a pipeline's rule is not in force yet: at a normal start it lasts a
// second or two.
const healsFor = 30 * time.Second

// retryLevel is the level at which the log tells of a failure that is tried again and has
// lasted so long: debug while it heals by design, that is, while an owner says when to
// come again.
func retryLevel(err error, attempts int, lasts time.Duration) slog.Level {
	var refusal *store.Error
	heals := errors.As(err, &refusal) && refusal.Status == store.StatusUnavailable && refusal.RetryAfter > 0
	switch {
	case heals && lasts < healsFor:
		return slog.LevelDebug
	case attempts == StuckAttempts && !heals:
		return slog.LevelError
	}
	return slog.LevelWarn
}

// Pauses are the times between attempts: growing, with jitter, bounded by
// RetryMax. Not safe for concurrent use.
type Pauses struct{ b *backoff.ExponentialBackOff }

// NewPauses returns pauses that begin at RetryFirst.
func NewPauses() *Pauses {
	return &Pauses{backoff.NewExponentialBackOff(backoff.WithInitialInterval(RetryFirst),
		backoff.WithMaxInterval(RetryMax), backoff.WithMultiplier(2), backoff.WithMaxElapsedTime(0))}
}

// Wait waits for the next pause, or for as long as err asks, or until ctx ends,
// whose cause it then returns.
func (p *Pauses) Wait(ctx context.Context, err error) error {
	pause := p.b.NextBackOff()
	var refusal *store.Error
	if errors.As(err, &refusal) && refusal.RetryAfter > 0 {
		pause = refusal.RetryAfter
	}
	return storepace.Pause(ctx, pause)
}

// Reset begins again with short pauses.
func (p *Pauses) Reset() { p.b.Reset() }
