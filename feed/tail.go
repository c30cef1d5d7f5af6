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

	// BytesMax bounds what is read ahead, except that one message always fits,
	// however large. Default 4 MiB, at least 128 KiB.
	BytesMax int `yaml:"bytesMax"`

	// CommitsMax bounds the commits that are read ahead. Default 512.
	CommitsMax int `yaml:"commitsMax"`

	// WatchInterval is how long nothing may be delivered before the stream is
	// asked whether there is more. Default 1s.
	WatchInterval time.Duration `yaml:"watchInterval"`
}

// watchMax bounds the pause between two looks at a stream whose consumer stays
// silent.
const watchMax = 30 * time.Second

// Tail delivers the commits of a log in order, each once, with no gap, from an
// LSN of its own on and then as they are appended. It keeps its own cursor: a
// consumer that breaks, or is silent though the log goes on, is made anew from
// there. Every commit is checked against its checksum, the log's identity and
// its predecessor.
//
// A Tail has no goroutine. It is used, and closed, by one goroutine at a time.
type Tail struct {
	l   *Log
	opt TailOptions

	next LSN      // the next to be delivered
	prev Checksum // of the one before; zero if not known
	data []byte   // of the one before, as the log has it
	err  error    // why the tail has ended

	messages     chan *nats.Msg
	subscription *nats.Subscription
	connected    chan nats.Status
	stop         <-chan struct{} // closed with the hub that owns the tail; nil without one
	inbox        string

	stream   string // of the consumer
	consumer string // "" while there is none
	made     bool   // there was one before
	pulls    pulls
	suspect  LSN // arrived in place of next

	timer          *time.Timer
	active         time.Time     // when something was last delivered, asked or looked at
	patience       time.Duration // until the next look
	retry          time.Duration // until the next try to make a consumer
	contradictions int           // looks in a row at a stream that ends too early, or is not there
}

// Tail reads the log from LSN from, at least 1, on. It makes no request: an
// error of the log comes with Next.
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
	}
	base := max(opt.BytesMax/pullsMax, pullBytesMin)
	t.pulls = pulls{nc: nc, commits: max(opt.CommitsMax/pullsMax, 1), base: base, bytes: base}
	// Beside the messages of all requests each may bring a last word.
	t.messages = make(chan *nats.Msg, pullsMax*(t.pulls.commits+1)+64)
	var err error
	if t.subscription, err = nc.ChanSubscribe(t.inbox+".>", t.messages); err != nil {
		return nil, fmt.Errorf("tail partition %s: %w", l.p, err)
	}
	t.connected = nc.StatusChanged(nats.CONNECTED)
	return t, nil
}

// Next returns the next commit. It waits for one until ctx ends; then it
// returns the context's cause and the tail may be used further.
//
// Any other error is final: *GapError if commits are missing, *TrimmedError if
// the next one was trimmed before it was read, *MismatchError
// if the log is not what it was, *FormatError or *VersionError if a commit
// cannot be read, ErrNoLog if the stream is gone, ErrClosed. It is returned
// again by later calls.
func (t *Tail) Next(ctx context.Context) (*Commit, error) {
	for t.err == nil {
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
		if t.consumer == "" {
			t.begin(ctx)
			continue
		}
		t.ask()
		t.timer.Reset(max(t.patience-time.Since(t.active), 0))
		select {
		case m := <-t.messages:
			if c := t.take(m); c != nil {
				return c, nil
			}
		case <-t.connected:
			t.drop() // requests and messages may be lost
		case <-t.timer.C:
			if c := t.look(ctx); c != nil {
				return c, nil
			}
		case <-t.stop:
			t.fail(fmt.Errorf("tail of partition %s: %w", t.l.p, ErrClosed))
		case <-ctx.Done():
		}
	}
	return nil, t.err
}

// Data returns the bytes of the commit that Next returned last, as the log has them. The
// commit aliases them.
func (t *Tail) Data() []byte { return t.data }

// Close frees the consumer. Next then returns ErrClosed. It may be called
// twice.
func (t *Tail) Close() {
	if t.subscription == nil {
		return
	}
	t.drop()
	_ = t.subscription.Unsubscribe() // fails only where the connection is closed
	t.l.api.nc.RemoveStatusListener(t.connected)
	t.subscription = nil
	t.timer.Stop()
	if t.err == nil {
		t.err = fmt.Errorf("tail of partition %s: %w", t.l.p, ErrClosed)
	}
}

// ask keeps enough requests open.
func (t *Tail) ask() {
	asked, err := t.pulls.ask()
	if err != nil {
		t.drop()
	}
	if asked {
		t.active = time.Now()
	}
}

// buffered returns the next commit that has arrived, nil if none has.
func (t *Tail) buffered() *Commit {
	for t.err == nil && t.suspect == 0 {
		select {
		case m := <-t.messages:
			if c := t.take(m); c != nil {
				return c
			}
		default:
			return nil
		}
	}
	return nil
}

// take judges a message: the commit if it is the next one, else nil.
func (t *Tail) take(m *nats.Msg) *Commit {
	if t.l.lose != nil && t.l.lose(m) {
		return nil
	}
	if len(m.Data) == 0 && m.Header.Get(headerStatus) != "" {
		if i := t.pulls.find(m.Subject); i >= 0 && !t.pulls.status(i, m) {
			t.drop()
		}
		return nil
	}
	consumer, lsn, ok := origin(m.Reply)
	switch {
	case !ok || consumer != t.consumer || lsn < t.next:
		return nil // of a consumer that was given up
	case lsn > t.next:
		t.suspect = lsn
		return nil
	}
	return t.deliver(m.Data)
}

// deliver verifies the commit at the cursor and moves the cursor behind it.
func (t *Tail) deliver(data []byte) *Commit {
	c, err := t.l.decode(t.next, data)
	if err != nil {
		t.fail(err)
		return nil
	}
	if (t.prev != 0 || t.next == 1) && c.Prev != t.prev {
		t.fail(&MismatchError{Partition: t.l.p, LSN: t.next, What: fmt.Sprintf("commit follows checksum %s, the one before has %s", c.Prev, t.prev)})
		return nil
	}
	t.next++
	t.prev, t.data = c.Sum, data
	t.active = time.Now()
	t.patience, t.retry, t.contradictions = t.opt.WatchInterval, retryMin, 0
	return c
}

// fail ends the tail.
func (t *Tail) fail(err error) {
	if t.err == nil {
		t.err = err
		t.drop()
	}
}

// drop gives the consumer up. The server forgets it by itself if the request
// to delete it is lost.
func (t *Tail) drop() {
	if t.consumer != "" {
		a := &t.l.api
		_ = a.nc.PublishRequest(a.prefix+"CONSUMER.DELETE."+t.stream+"."+t.consumer, t.inbox+".deleted", nil)
	}
	t.consumer, t.suspect = "", 0
	t.pulls.open = t.pulls.open[:0]
}

// begin makes a consumer that begins at the cursor. A second attempt in a row
// pauses first.
func (t *Tail) begin(ctx context.Context) {
	if t.retry > retryMin && !t.pause(ctx, t.retry) {
		return
	}
	if t.made {
		meters.restarts.Add(ctx, 1)
	}
	t.retry = min(2*t.retry, retryMax)
	if _, ok := t.reaches(ctx); !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	name, stream := "tail_"+rand.Text(), t.l.api.stream()
	_, err := t.l.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Name:              name,
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       uint64(t.next),
		AckPolicy:         jetstream.AckNonePolicy,
		ReplayPolicy:      jetstream.ReplayInstantPolicy,
		InactiveThreshold: inactiveThreshold,
		MemoryStorage:     true,
		Replicas:          1,
	})
	if err != nil {
		return // tried again; the context's end is seen by Next
	}
	t.stream, t.consumer, t.made = stream, name, true
	t.pulls.inbox = t.inbox + "." + name + "."
	t.pulls.subject = t.l.api.prefix + "CONSUMER.MSG.NEXT." + stream + "." + name
}

// reaches reports whether the stream is this log and reaches the cursor, and
// whether it has more. If it is not, it fails the tail; if need be after it has
// seen the same several times, because a new leader may have to catch up.
func (t *Tail) reaches(ctx context.Context) (more, ok bool) {
	info, err := t.l.verifiedInfo(ctx)
	t.active = time.Now()
	if err == nil && info.State.Last+1 >= t.next {
		t.contradictions = 0
		return info.State.Last >= t.next, true
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
		t.fail(t.l.movedBack(t.next-1, info.State.Last))
	}
	return false, false
}

// look asks whether a silent consumer has a reason to be. If the log has more,
// it reads the next commit itself and gives the consumer up.
func (t *Tail) look(ctx context.Context) *Commit {
	t.pulls.expire()
	more, ok := t.reaches(ctx)
	if !ok || !more || len(t.messages) > 0 {
		return nil
	}
	return t.fetch(ctx)
}

// fetch reads the commit at the cursor past the consumer, which has not brought
// it: it was lost on the way, or is missing from the log. The consumer is given
// up, and is given twice the time before it is next looked at, so that one
// which is merely slow gets a chance.
func (t *Tail) fetch(ctx context.Context) *Commit {
	t.drop()
	for range contradictionsMax {
		data, err := t.l.api.message(ctx, t.next)
		if err == nil {
			patience := min(2*t.patience, watchMax)
			c := t.deliver(data)
			t.patience = patience
			return c
		}
		if !errors.Is(err, ErrNotFound) || !t.pause(ctx, retryMin) {
			return nil
		}
	}
	got, err := t.l.api.after(ctx, t.next)
	if err != nil || got == t.next {
		return nil
	}
	// A consumer that is asked to begin before the first commit begins there without a word.
	err = t.l.missing(ctx, t.next, got)
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
