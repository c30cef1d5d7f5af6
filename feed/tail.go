package feed

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TailOptions tune a Tail. Zero fields take their defaults.
type TailOptions struct {
	// Prev is the checksum of the commit before the first that is asked for.
	// Zero leaves the first commit's predecessor unverified; from then on the
	// chain is.
	Prev Checksum `yaml:"-"`

	// BytesMax bounds what is read ahead, as it is stored, except that one message always
	// fits, however large. Default 4 MiB, at least 128 KiB.
	BytesMax int `yaml:"bytesMax"`

	// CommitsMax bounds the commits that are read ahead. Default 512.
	CommitsMax int `yaml:"commitsMax"`

	// WatchInterval is how long nothing may be delivered before the stream is
	// asked whether there is more. Default 1s.
	WatchInterval time.Duration `yaml:"watchInterval"`

	// Waits is called with a *RefusedError when the tail is refused a consumer, and not again
	// until it has had one or the reason is another. The tail goes on trying. Without Waits
	// Next returns that error after 5 s.
	Waits func(error) `yaml:"-"`

	// FromStream has all read from the stream, by who is to find out what that holds. Else commits that this process has
	// appended may come from LogConfig.Cache.
	FromStream bool `yaml:"-"`
}

// refusedMax is how long a tail without TailOptions.Waits tries to get a consumer that it is
// refused. One whose deletion is on its way makes room meanwhile.
const refusedMax = 5 * time.Second

// watchMax bounds the pause between two checks of a stream whose consumer stays silent.
const watchMax = 30 * time.Second

// Tail delivers the commits of a log in order, each once, with no gap: first those that are
// there from a given LSN on, and then each new one as it is appended, by a consumer of the stream or from
// LogConfig.Cache. It keeps its own cursor. A consumer that breaks, or is silent although the log grows, is replaced by
// a new one that begins at the cursor. Every commit is checked against its checksum, the
// log's identity and its predecessor.
//
// A Tail has no goroutine. It is used, and closed, by one goroutine at a time.
type Tail struct {
	// Set once by newTail. stop is set by the hub before the tail is used.
	l   *Log
	opt TailOptions

	// All that follows belongs to the goroutine that uses the tail. The NATS client only
	// sends to messages and connected.
	next LSN      // the LSN of the commit that is delivered next
	prev Checksum // of the commit before next; zero if not known
	data []byte   // the encoding of the commit before next
	err  error    // why the tail has ended

	cached *tailCursor // in what this process appends; nil without a cache

	messages     chan *nats.Msg
	subscription *nats.Subscription
	connected    chan nats.Status
	stop         <-chan struct{} // closed with the hub that owns the tail; nil without a hub
	inbox        string

	stream     string // of the consumer
	consumer   string // "" while there is none
	madeBefore bool   // there was one before
	pulls      pulls
	suspect    LSN // an LSN that arrived in place of next, so next was lost or is missing; 0 if none

	timer          *time.Timer
	active         time.Time     // when a commit was last delivered, a request sent, or the stream checked
	patience       time.Duration // how long after active a silent consumer is checked
	retry          time.Duration // the pause before the next try to make a consumer
	contradictions int           // checks in a row that found a stream that ends too early, or none
	refusal        string        // why a consumer is refused; "" if it is not
	refusedSince   time.Time
}

// Tail returns a Tail that begins at LSN from; zero counts as 1. It makes no request: errors
// of the log come from Next. The caller closes the tail.
func (l *Log) Tail(_ context.Context, from LSN, opt TailOptions) (*Tail, error) {
	return newTail(l, from, opt)
}

func newTail(l *Log, from LSN, opt TailOptions) (*Tail, error) {
	opt.BytesMax = cmp.Or(opt.BytesMax, 4<<20)
	opt.CommitsMax = cmp.Or(opt.CommitsMax, 512)
	opt.WatchInterval = cmp.Or(opt.WatchInterval, time.Second)
	nc := l.api.nc
	t := &Tail{
		l: l, opt: opt, next: max(from, 1), prev: opt.Prev,
		inbox: nc.NewInbox(), patience: opt.WatchInterval, retry: retryMin, timer: time.NewTimer(time.Hour),
		active: time.Now(),
	}
	base := max(opt.BytesMax/pullsMax, pullBytesMin)
	t.pulls = pulls{nc: nc, commits: max(opt.CommitsMax/pullsMax, 1), base: base, bytes: base}
	// Room for the messages of all requests, a closing status for each, and what was sent to
	// earlier consumers: the client drops what finds no room, and takes that for a slow
	// consumer.
	t.messages = make(chan *nats.Msg, pullsMax*(t.pulls.commits+1)+64)
	var err error
	if t.subscription, err = nc.ChanSubscribe(t.inbox+".>", t.messages); err != nil {
		return nil, fmt.Errorf("tail partition %s: %w", l.p, err)
	}
	t.connected = nc.StatusChanged(nats.CONNECTED)
	if !opt.FromStream {
		t.cached = l.cfg.Cache.hold(l.id).follow(t.next)
	}
	return t, nil
}

// Next returns the next commit. It waits for one until ctx ends; then it
// returns the context's cause and the tail may be used further.
//
// Any other error is final: *GapError if commits are missing, *TrimmedError if
// the next one was trimmed before it was read, *MismatchError
// if the log is not what it was, *FormatError or *VersionError if a commit
// cannot be read, ErrNoLog if the stream is gone, *RefusedError if this client may
// not have a consumer, ErrClosed. It is returned again by later calls.
func (t *Tail) Next(ctx context.Context) (*Commit, error) { return t.await(ctx, false) }

// await is Next. If once, it asks the server for what there is, or for the first commit that comes, and for no more until
// it is called again: see Reader.Rests.
func (t *Tail) await(ctx context.Context, once bool) (*Commit, error) {
	for t.err == nil {
		// What has arrived is delivered even if ctx has ended: it costs no waiting.
		if c := t.buffered(); c != nil || t.err != nil {
			return c, t.err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if t.suspect != 0 {
			if c := t.fetch(ctx); c != nil {
				return c, nil
			}
			continue
		}
		appended, follows := t.cached.await()
		switch {
		case follows && t.contradictions == 0: // else the stream is asked sooner again than it is about silence
			t.leaveConsumer()
		case t.consumer == "":
			t.makeConsumer(ctx)
			continue
		default:
			t.keepPullsOpen(once)
		}
		t.timer.Reset(max(t.patience-time.Since(t.active), 0))
		select {
		case <-appended:
		case m := <-t.messages:
			if c := t.receive(m); c != nil {
				return c, nil
			}
		case <-t.connected:
			t.dropConsumer() // requests and messages may have been lost with the old connection
		case <-t.timer.C:
			if c := t.checkSilence(ctx); c != nil {
				return c, nil
			}
		case <-t.stop:
			t.fail(fmt.Errorf("tail of partition %s: %w", t.l.p, ErrClosed))
		case <-ctx.Done():
		}
	}
	return nil, t.err
}

// Data returns the encoded bytes of the commit that Next returned last, which must not be changed: the commit aliases
// them unless it is compressed, and so may those of other tails.
func (t *Tail) Data() []byte { return t.data }

// Close frees the consumer. Next then returns ErrClosed. It may be called
// twice.
func (t *Tail) Close() {
	if t.subscription == nil {
		return
	}
	t.dropConsumer()
	t.cached.close()
	_ = t.subscription.Unsubscribe() // fails only where the connection is closed
	t.l.api.nc.RemoveStatusListener(t.connected)
	t.subscription = nil
	t.timer.Stop()
	if t.err == nil {
		t.err = fmt.Errorf("tail of partition %s: %w", t.l.p, ErrClosed)
	}
}

// keepPullsOpen keeps enough requests open.
func (t *Tail) keepPullsOpen(once bool) {
	asked, err := t.pulls.openMissing(once)
	if err != nil {
		t.dropConsumer()
	}
	if asked {
		t.active = time.Now()
	}
}

// buffered returns the next commit that has arrived, nil if none has.
func (t *Tail) buffered() *Commit {
	for t.err == nil && t.suspect == 0 {
		if data := t.cached.get(); data != nil {
			if t.l.cfg.Cache.hasRoom() { // or it may need the consumer for the next one
				t.leaveConsumer()
			}
			return t.deliver(data)
		}
		select {
		case m := <-t.messages:
			if c := t.receive(m); c != nil {
				return c
			}
		default:
			return nil
		}
	}
	return nil
}

// arrived is buffered, but it waits for the rest of what the server was asked for once and is sending: the server tells
// the end of it, so no more than one answer is on its way.
func (t *Tail) arrived(ctx context.Context) *Commit {
	for {
		if c := t.buffered(); c != nil || t.err != nil || t.suspect != 0 || !t.pulls.arriving() {
			return c
		}
		t.timer.Reset(max(t.patience-time.Since(t.active), 0))
		select {
		case m := <-t.messages:
			if c := t.receive(m); c != nil {
				return c
			}
		case <-t.connected:
			t.dropConsumer() // as in await
		case <-t.timer.C:
			return nil // it is time to check the silence, which await does
		case <-t.stop:
			return nil // await says so
		case <-ctx.Done():
			return nil
		}
	}
}

// receive handles one message. It returns the commit if the message is the next one, else
// nil.
func (t *Tail) receive(m *nats.Msg) *Commit {
	if t.l.lose != nil && t.l.lose(m) {
		return nil
	}
	// A message without content is a status of a request, whose reply subject it has. A
	// commit always has content.
	if len(m.Data) == 0 && m.Header.Get(headerStatus) != "" {
		if i := t.pulls.find(m.Subject); i >= 0 && !t.pulls.judgeStatus(i, m) {
			t.dropConsumer()
		}
		return nil
	}
	consumer, lsn, ok := origin(m.Reply)
	switch {
	case !ok || consumer != t.consumer || lsn < t.next:
		return nil // from a consumer that was dropped
	case lsn > t.next:
		// One consumer delivers in order, so next will not come from it any more. Next
		// fetches it from the stream, which also tells loss on the way from a gap.
		t.suspect = lsn
		return nil
	}
	t.pulls.came()
	return t.deliver(m.Data)
}

// deliver verifies the commit at the cursor and moves the cursor behind it.
func (t *Tail) deliver(data []byte) *Commit {
	c, err := t.l.decode(t.next, data)
	if err != nil {
		t.fail(err)
		return nil
	}
	// The predecessor of the first commit is known to be none: zero is compared there.
	if (t.prev != 0 || t.next == 1) && c.Prev != t.prev {
		t.fail(&MismatchError{Partition: t.l.p, Stream: t.l.api.stream(), LSN: t.next, What: fmt.Sprintf("commit follows checksum %s, the one before has %s", c.Prev, t.prev)})
		return nil
	}
	t.next++
	t.cached.move(t.next)
	t.prev, t.data = c.Sum, data
	t.active = time.Now()
	t.patience, t.retry, t.contradictions = t.opt.WatchInterval, retryMin, 0
	return c
}

// fail ends the tail.
func (t *Tail) fail(err error) {
	if t.err == nil {
		t.err = err
		t.dropConsumer()
		t.cached.close()
	}
}

// dropConsumer deletes the consumer. It does not wait for an answer: if the request is lost,
// the server deletes the consumer after inactiveThreshold.
func (t *Tail) dropConsumer() {
	if t.consumer != "" {
		a := &t.l.api
		_ = a.nc.PublishRequest(a.prefix+"CONSUMER.DELETE."+t.stream+"."+t.consumer, t.inbox+".deleted", nil)
	}
	t.consumer, t.suspect = "", 0
	t.pulls.open = t.pulls.open[:0]
}

// leaveConsumer drops the consumer of a tail that has no need of one: what comes next is in the cache, or will be.
func (t *Tail) leaveConsumer() {
	if t.consumer == "" {
		return
	}
	t.dropConsumer()
	t.madeBefore, t.refusal = false, ""
	for len(t.messages) > 0 {
		<-t.messages // they would take the room of what the next consumer sends
	}
}

// makeConsumer makes a consumer that begins at the cursor. Each further attempt in a row is
// preceded by a pause.
func (t *Tail) makeConsumer(ctx context.Context) {
	if t.retry > retryMin && !t.pause(ctx, t.retry) {
		return
	}
	if t.madeBefore {
		meters.restarts.Add(ctx, 1)
	}
	t.retry = min(2*t.retry, retryMax)
	// JetStream gives a consumer that starts beyond the end, or in another log of the same
	// name, without an error. So the stream is checked before.
	if _, ok := t.reaches(ctx, time.Now()); !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	name, stream := "tail_"+rand.Text(), t.l.api.stream()
	_, err := t.l.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Name:          name,
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:   uint64(t.next),
		// No acknowledgements, memory, one replica: the cursor is here, so a consumer that
		// is lost loses nothing and is cheap to replace.
		AckPolicy:         jetstream.AckNonePolicy,
		ReplayPolicy:      jetstream.ReplayInstantPolicy,
		InactiveThreshold: inactiveThreshold,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		t.noteRefused(stream, err)
		return // tried again; the context's end is seen by Next
	}
	t.refusal = ""
	t.stream, t.consumer, t.madeBefore = stream, name, true
	t.pulls.inbox = t.inbox + "." + name + "."
	t.pulls.subject = t.l.api.prefix + "CONSUMER.MSG.NEXT." + stream + "." + name
}

// noteRefused says that a consumer is refused, or fails the tail if nobody listens. Other errors
// heal by themselves: a server that starts, a stream without a leader.
func (t *Tail) noteRefused(stream string, err error) {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.ErrorCode != codeRefused {
		return
	}
	refused := &RefusedError{Partition: t.l.p, Stream: stream, Reason: api.Description}
	if t.refusal == "" {
		t.refusedSince = time.Now()
	}
	switch {
	case t.opt.Waits == nil && time.Since(t.refusedSince) > refusedMax:
		t.fail(refused)
	case t.opt.Waits != nil && t.refusal != refused.Reason:
		t.opt.Waits(refused)
	}
	t.refusal = refused.Reason
}

// reaches reports whether the stream is this log and ends no earlier than one before the
// cursor, and whether it has the commit at the cursor. It fails the tail if the stream
// is another log at once, and if it ends too early or is gone after contradictionsMax
// checks in a row, because a new leader may have to catch up.
//
// The answer to another reader's request serves too, if that began at since or later.
func (t *Tail) reaches(ctx context.Context, since time.Time) (more, ok bool) {
	b := t.l.boundsSince(ctx, since)
	t.active = b.ended // not now: a commit that is lost is missed no later for what another asked
	err := b.err
	if err == nil && b.last+1 >= t.next {
		t.contradictions = 0
		return b.last >= t.next, true
	}
	_, mismatch := errors.AsType[*MismatchError](err)
	gone := errors.Is(err, ErrNoLog)
	if gone || err == nil {
		t.contradictions++
	}
	switch {
	case mismatch:
		t.fail(err)
	case t.contradictions < contradictionsMax:
	case gone:
		t.fail(fmt.Errorf("tail of partition %s: %w", t.l.p, err))
	case err == nil:
		t.fail(t.l.movedBack(t.next-1, b.last))
	}
	return false, false
}

// checkSilence asks the stream whether a silent consumer has something to deliver. If it has,
// and nothing has arrived meanwhile, the next commit is read without the consumer, which
// is dropped.
func (t *Tail) checkSilence(ctx context.Context) *Commit {
	t.pulls.expire()
	// Processors measure their lag once a second, by the same Log: most often one of them has
	// asked since the silence began.
	more, ok := t.reaches(ctx, t.active)
	if !ok || !more || len(t.messages) > 0 {
		return nil
	}
	return t.fetch(ctx)
}

// fetch reads the commit at the cursor directly, because the consumer did not deliver it: it
// was lost on the way, or it is missing from the log. The consumer is dropped. The next
// one has twice the time before it is checked, so that a consumer which is merely slow
// is not replaced again and again.
func (t *Tail) fetch(ctx context.Context) *Commit {
	t.dropConsumer()
	for range contradictionsMax {
		data, err := t.l.api.message(ctx, t.next)
		if err == nil {
			patience := min(2*t.patience, watchMax)
			c := t.deliver(data) // sets patience back to its start
			t.patience = patience
			return c
		}
		if !errors.Is(err, ErrNotFound) {
			t.patience = min(2*t.patience, watchMax) // it did not come in time this way either
			return nil
		}
		if !t.pause(ctx, retryMin) {
			return nil
		}
	}
	got, err := t.l.api.firstFrom(ctx, t.next)
	if err != nil || got == t.next {
		return nil
	}
	// A consumer that is asked to begin before the first commit begins at that one without an
	// error, so a trim comes to light here, like a gap.
	err = t.l.missingError(ctx, t.next, got)
	_, gap := errors.AsType[*GapError](err)
	_, trimmed := errors.AsType[*TrimmedError](err)
	_, later := errors.AsType[*VersionError](err)
	if gap || trimmed || later {
		t.fail(err)
	}
	return nil
}

// pause waits and reports whether it waited to the end.
func (t *Tail) pause(ctx context.Context, d time.Duration) bool {
	t.timer.Reset(d)
	select {
	case <-t.timer.C:
		return true
	case <-t.stop:
		t.fail(fmt.Errorf("tail of partition %s: %w", t.l.p, ErrClosed))
	case <-ctx.Done():
	}
	return false
}
