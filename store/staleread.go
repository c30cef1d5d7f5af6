package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/millrace/millrace/feed"
)

// A standby answers reads from its copy, which holds what the log held a moment ago: all of some LSN, and that is
// told with the answer. Two kinds of readers can do with it, and say so of a Container:
//
//	Eventual     a standby first: spares the owner     then the owner
//	InSession    the owner first: knows the newest     where it does not answer, a standby that holds the session's LSN
//
// Nothing else is asked of a standby. What it does not know, or not yet, it refuses with StatusUnavailable, and whoever asked
// goes on as if nobody were there.

// HeaderAtLeast is the header of a message to StandbySubject with the LSN, in decimal, that the answering copy must hold.
// Without it any will do.
const HeaderAtLeast = "Millrace-At-Least"

// StandbySubject is the NATS subject on which one of the standbys of p answers requests that read. It lies under
// ReadSubject: who may ask there may ask here.
func StandbySubject(p feed.Partition) string { return ReadSubject(p) + ".standby" }

// StandbyHandler answers reads from a copy of a physical partition; see Handler.
type StandbyHandler interface {
	// HandleAtLeast answers r from a state that holds all commits up to lsn. StatusUnavailable says that the copy is not
	// that far, or does not answer such requests.
	HandleAtLeast(ctx context.Context, r *Request, lsn feed.LSN) *Response
}

// consistency is what a Container promises of its reads; zero: that they see all that was acknowledged before.
type consistency struct {
	eventual bool
	session  map[uint32]feed.LSN // by the numbers of physical partitions
}

// Eventual returns the container with reads and queries that may lack the latest writes: a standby answers them where
// the container has some (Spec.Standbys), in the hope of one nearby, and the owner where none does. All else is as it was.
func (c *Container) Eventual() *Container {
	with := *c
	with.reads = consistency{eventual: true}
	return &with
}

// InSession returns the container with reads and queries that go on while a partition has no owner, or a silent one: a
// standby answers them then if it holds the LSN that the session has of the partition, by its number. So the session
// sees what it has written and read, and what its writes were refused for: see TransactResult.LSN and Error.LSN. What it has of a
// partition that was split since holds of each of its children. Partitions that are not in lsns are read from their owners alone.
func (c *Container) InSession(lsns map[uint32]feed.LSN) *Container {
	with := *c
	with.reads = consistency{session: lsns}
	return &with
}

// staleRead says how a request may be answered by a standby.
type staleRead struct {
	first bool     // before the owner is asked
	lsn   feed.LSN // that the standby must hold
}

// staleRead returns how a standby may answer a request; nil: not at all.
func (c *Container) staleRead(r *Request) *staleRead {
	info := c.present()
	if info.Spec.Standbys == 0 || !c.reads.eventual && c.reads.session == nil || !r.Stale() {
		return nil
	}
	if c.reads.eventual {
		return &staleRead{first: true}
	}
	lsn, ok := info.seenIn(r.Partition.Number, c.reads.session)
	if !ok {
		return nil
	}
	return &staleRead{lsn: lsn}
}

// seenIn returns what a session has seen of a partition, by what it has seen of each: also of those of which it is a part
// since they were split. All that a parent had is in its children, whose LSNs are greater, so the greatest counts.
func (i *ContainerInfo) seenIn(number uint32, session map[uint32]feed.LSN) (lsn feed.LSN, ok bool) {
	lsn, ok = session[number]
	span, _ := i.spanOf(number)
	for n := range i.Former {
		f := &i.Former[n]
		if at, seen := session[f.Number]; seen && covers(f.Range, span) {
			lsn, ok = max(lsn, at), true
		}
	}
	return lsn, ok
}

// Stale tells whether a standby answers such a request.
func (r *Request) Stale() bool {
	switch {
	case r.Transact != nil:
		return len(r.Transact.Ops) == 1 && r.Transact.Ops[0].Kind == OpRead && !r.Transact.Guarded
	case r.Read != nil:
		return !r.Read.Barrier
	case r.Scan != nil:
		return !r.Scan.Barrier
	}
	return r.Query != nil && len(r.Query.Functions) == 0 || r.Count != nil
}

const (
	// standbyTime bounds one question to a standby for an item; for a query it is half of what an attempt may take.
	standbyTime = time.Second
	// silentPause is for how long a standby that did not answer is not asked before the owner.
	silentPause = 5 * time.Second
)

// sendStale is send of a request that a standby may answer too; not, if stale is nil.
func (a *attempts) sendStale(ctx context.Context, stale *staleRead) (*Response, error) {
	c, r := a.c, a.r
	// The owner in this process is as near as any standby, and knows more.
	if stale != nil && stale.first && c.cfg.Local.find(r.Partition) == nil && !c.standbySilent(r.Partition) {
		if resp := c.askStandby(ctx, r, stale.lsn, 3); resp != nil { // a third of what is left
			return resp, resp.refusal()
		}
	}
	return a.send(ctx, stale)
}

// standbySilent says whether the standby of a partition did not answer a moment ago.
func (c *Client) standbySilent(p feed.Partition) bool {
	until, ok := c.silent.Load(p)
	return ok && time.Now().Before(until.(time.Time))
}

// askStandby returns what a standby answers, in one part of so many of the time that is left; nil if none does.
func (c *Client) askStandby(ctx context.Context, r *Request, lsn feed.LSN, parts int) *Response {
	within := max(standbyTime, r.attemptTime(c.cfg.Timeout)/2)
	if ends, ok := ctx.Deadline(); ok {
		left := time.Until(ends)
		within = min(within, left/time.Duration(parts))
		// Before the owner is asked: a query that takes as long at the standby has the owner's attempt before it.
		if rest := left - r.attemptTime(c.cfg.Timeout) - lastAttempt; parts > 1 && r.slow() && rest > 0 {
			within = min(within, rest)
		}
	}
	asking, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	resp, err := c.standbyOnce(asking, r, lsn)
	if err != nil {
		// A query may take longer than this, so it tells nothing of the standby.
		if asking.Err() != nil && ctx.Err() == nil && !r.slow() {
			c.silent.Store(r.Partition, time.Now().Add(silentPause))
		}
		return nil
	}
	if resp.Err != nil && resp.Err.Status != StatusNotFound {
		return nil // whatever it lacks, the owner may have
	}
	trace.SpanFromContext(ctx).SetAttributes(AttrStandby.Bool(true))
	return resp
}

func (c *Client) standbyOnce(ctx context.Context, r *Request, lsn feed.LSN) (*Response, error) {
	if h := c.cfg.Local.findStandby(r.Partition); h != nil {
		if resp := h.HandleAtLeast(ctx, r, lsn); resp.Err == nil || resp.Err.Status == StatusNotFound {
			return resp, nil
		}
	}
	if c.nc.IsClosed() {
		return nil, nats.ErrConnectionClosed
	}
	data := AppendRequest(make([]byte, 0, 1024), r)
	msg, err := c.ask(ctx, &nats.Msg{
		Subject: StandbySubject(r.Partition), Header: nats.Header{HeaderAtLeast: {strconv.FormatUint(uint64(lsn), 10)}}, Data: data,
	}, r)
	if err != nil {
		return nil, fmt.Errorf("%s on a standby of %s: %w", r.name(), r.Partition, err)
	}
	return DecodeResponse(msg.Data)
}

func (l *Local) findStandby(p feed.Partition) StandbyHandler {
	if l == nil {
		return nil
	}
	h, ok := l.standbys.Load(p)
	if !ok {
		return nil
	}
	return h.(StandbyHandler)
}

// unanswered tells whether an attempt ended without anybody who decided the request. An owner may be there that cannot
// answer, because its engine is made anew, or its log is damaged.
func unanswered(err error) bool {
	return errors.Is(err, ErrNotOwner) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, errNoAnswer) || errors.Is(err, ErrUnavailable)
}

// refusal is Err as an error.
func (r *Response) refusal() error {
	if r.Err == nil {
		return nil
	}
	return r.Err
}
