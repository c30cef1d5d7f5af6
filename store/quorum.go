package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
)

const (
	// quorumAfter is how long a request waits before the client asks JetStream whether
	// it can be answered at all.
	quorumAfter = time.Second
	// quorumTimeout bounds that question: a server without a leader lets half a second
	// pass before it says so.
	quorumTimeout = 2 * time.Second
	// clusterUnavailable is the code of JetStream's error where a group of replicas has
	// no leader: JSClusterNotAvailErr in the server's errors.json.
	clusterUnavailable = 10008
)

// NoQuorumError says that JetStream has no leader for a partition's log, or for
// anything: fewer than half of the replicas' servers run and reach each other. Nothing
// can be written until they do.
type NoQuorumError struct {
	Partition feed.Partition
	Waited    time.Duration
	Err       error
}

func (e *NoQuorumError) Error() string {
	return fmt.Sprintf("partition %s cannot be written: JetStream has no quorum (%v), after %s; it goes on by itself when a majority of the NATS servers runs and reaches each other",
		e.Partition, e.Err, e.Waited.Round(time.Millisecond))
}

// Is matches ErrUnavailable.
func (e *NoQuorumError) Is(target error) bool { return target == error(ErrUnavailable) }

// quorum asks JetStream, once a moment for all requests that wait, whether a log has a
// leader. Safe for concurrent use.
type quorum struct {
	ask func(ctx context.Context, p feed.Partition) (*jetstream.StreamInfo, error)

	mu      sync.Mutex
	pending map[feed.Partition]*quorumAnswer
}

// quorumAnswer is a question that is under way, or its answer.
type quorumAnswer struct {
	done chan struct{}
	err  error // nil: there is one, or nobody knows
}

// lost returns JetStream's error if a partition's log has no leader, and nil if it has
// one or nobody can tell.
func (q *quorum) lost(ctx context.Context, p feed.Partition) error {
	// One question at a time for each partition: where a quorum is lost thousands of requests
	// wait, and JetStream would have to answer each of them. The first asks, with a time of its
	// own, because its request may end while the others still wait.
	q.mu.Lock()
	a := q.pending[p]
	if a == nil {
		a = &quorumAnswer{done: make(chan struct{})}
		q.pending[p] = a
		q.mu.Unlock()
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), quorumTimeout)
		info, err := q.ask(asking, p)
		cancel()
		a.err = leaderless(info, err)
		q.mu.Lock()
		delete(q.pending, p)
		q.mu.Unlock()
		close(a.done)
		return a.err
	}
	q.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return nil
	}
}

// leaderless returns why a log can have no leader, judged by what JetStream answered
// about its stream; nil if it has one, or the rest of its replicas can elect one.
func leaderless(info *jetstream.StreamInfo, err error) error {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == clusterUnavailable {
		return err
	}
	// A server that is left alone answers for the stream, and names no leader.
	if err != nil || info.Cluster == nil || info.Cluster.Leader != "" || len(info.Cluster.Replicas) < 2 {
		return nil //nolint:nilerr // from silence nothing follows
	}
	reached := 0
	for _, r := range info.Cluster.Replicas {
		if !r.Offline {
			reached++
		}
	}
	if all := info.Config.Replicas; 2*reached <= all {
		return fmt.Errorf("%d of %d replicas of its log are in reach", reached, all)
	}
	return nil // an election is on
}

// watch ends a request with a *NoQuorumError as soon as it is known that its partition's
// log has no leader. stop ends the watch.
func (q *quorum) watch(ctx context.Context, p feed.Partition) (watched context.Context, stop func()) {
	w := &quorumWatch{of: q, partition: p, began: time.Now()}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.mu.Lock() // until timer is set: look may run before AfterFunc returns, and resets it
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(quorumAfter, w.look)
	return w.ctx, w.stop
}

// quorumWatch is the watch of one request. Every request has one, so its variables are allocated together.
type quorumWatch struct {
	of        *quorum
	partition feed.Partition
	ctx       context.Context //nolint:containedctx // of the request, whose scope this is
	cancel    context.CancelCauseFunc
	began     time.Time

	mu    sync.Mutex // guards timer
	timer *time.Timer
}

// look asks for the leader, and again in a while if there is one.
func (w *quorumWatch) look() {
	if err := w.of.lost(w.ctx, w.partition); err != nil {
		w.cancel(&NoQuorumError{w.partition, time.Since(w.began), err})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() == nil {
		w.timer.Reset(quorumAfter)
	}
}

func (w *quorumWatch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.cancel(nil)
}
