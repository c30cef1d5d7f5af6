// Package await waits for what is on its way: servers that are not up yet, a quorum
// that has no leader yet, partitions that have no owner yet.
//
// The processes of a cluster start in any order, and nobody starts them in the right
// one. So whoever needs another tries again every second, says what it waits for and
// why, and goes on by itself. An error that does not pass by itself, such as refused
// credentials, ends the wait at once.
package await

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

const (
	// every is the time from the beginning of one try to that of the next, unless the
	// try takes longer.
	every = time.Second
	// tellEvery is the time from one word about a wait to the next.
	tellEvery = 5 * time.Second
	// tryMin is what the first tries may take: a request that is lost costs no more.
	// After every lateMax tries that a slow machine did not finish they may take twice
	// as long, up to tryMax.
	tryMin  = 2 * time.Second
	tryMax  = 32 * time.Second
	lateMax = 3
)

// Tell is told of a wait: at once, then every few seconds, and when it is over, with
// a nil error.
type Tell func(what string, waited time.Duration, err error)

// Until does a step, named for what it needs, until it succeeds. The step must be
// safe to do again after any error. It is given a context that ends when a try has
// taken too long.
//
// The error is that of the last try when it does not pass by itself. When ctx has
// ended it is the last one that says why: that a try was cut off says nothing.
func Until(ctx context.Context, tell Tell, what string, step func(ctx context.Context) error) error {
	began, patience, late := time.Now(), tryMin, 0
	var told time.Time
	var why error
	for {
		next := time.After(every)
		try, cancel := context.WithTimeout(ctx, patience)
		err := step(try)
		cancel()
		waited := time.Since(began).Round(time.Millisecond)
		if why == nil || !errors.Is(err, context.DeadlineExceeded) {
			why = err
		}
		switch {
		case err == nil:
			if !told.IsZero() {
				tell(what, waited, nil)
			}
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("waited %s for %s: %w", waited, what, why)
		case !Passes(err):
			return err
		}
		if time.Since(told) >= tellEvery {
			told = time.Now()
			tell(what, waited, err)
		}
		if errors.Is(err, context.DeadlineExceeded) {
			if late++; late%lateMax == 0 {
				patience = min(2*patience, tryMax)
			}
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("waited %s for %s: %w", waited, what, why)
		}
	}
}

// passing are errors that tell of something that is not there yet, or not there for
// a moment.
var passing = []error{
	context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrNoServers, nats.ErrDisconnected,
	nats.ErrConnectionReconnecting, nats.ErrStaleConnection, nats.ErrReconnectBufExceeded, nats.ErrNoInfoReceived, io.EOF, io.ErrUnexpectedEOF,
	jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount, jetstream.ErrNoStreamResponse,
	// A bucket that somebody has just made, asked of a server that has not heard of it; one that
	// is lost is a DamageError.
	jetstream.ErrBucketNotFound,
	feed.ErrUnavailable, feed.ErrUnknown, store.ErrUnavailable, store.ErrUnknown,
}

// Codes of JetStream's API errors that pass, beside those of status 503.
const (
	codeNoPeers   jetstream.ErrorCode = 10005 // too few servers are up for the replicas
	codeResources jetstream.ErrorCode = 10023
)

// Passes says whether an error may pass by itself.
func Passes(err error) bool {
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
		return false
	}
	if _, damaged := errors.AsType[*store.DamageError](err); damaged {
		return false // somebody has to look
	}
	for _, p := range passing {
		if errors.Is(err, p) {
			return true
		}
	}
	// A server asks for a sign of life while a slow machine is still shaking hands with it.
	// nats.go takes that for a breach of the protocol, and has no error of its own for it.
	if strings.Contains(err.Error(), "expected 'PONG', got 'PING'") {
		return true
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return api.Code == 503 || api.ErrorCode == codeNoPeers || api.ErrorCode == codeResources
	}
	// What TLS does not accept is an OpError too, and does not pass.
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "read" || op.Op == "write")
}
