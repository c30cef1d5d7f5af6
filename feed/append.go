package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// appendOverhead is what subject, reply and headers may take of a message.
	appendOverhead = 1 << 10
	// contradictionsMax is how many times in a row a stream must contradict what is known
	// before it is believed: a new leader may have to catch up.
	contradictionsMax = 4
	// retryMin and retryMax bound the pause between tries.
	retryMin = 5 * time.Millisecond
	retryMax = 500 * time.Millisecond
	// lookMin is how long the first look for a stream without a listener waits for its answer. While
	// the stream has no leader nobody gives one, and the bytes are better sent again.
	lookMin = 20 * time.Millisecond
	// syncFailed begins the message of an error of the server's file store if the
	// system could not sync what it had taken: the name of the system call.
	syncFailed = "sync "
)

// Append adds data, the encoding of the commit id, after the commit at LSN
// after, zero for an empty log, and returns its LSN, after+1. It returns once
// the commit is as durable as the stream is: on disk, or on most replicas. It
// must not be called concurrently on one Log. data must not be changed before
// it returns.
//
// Where a try gets no answer in the time that answers take, or one that tells
// nothing, Append sends the same bytes again with the same expected sequence, and
// if that is refused looks whose commit stands there. It goes on until it knows
// or ctx ends.
//
// The error is ErrFenced if the last commit is not the one at after and the
// one behind it is not this: another process owns the partition and this one
// must stop serving it. It is ErrUnknown if ctx ended before the outcome was
// learned; call Append again with the same after, id and data before answering
// anyone. It is *MismatchError or *GapError if the log is not what it was, and
// ErrNoLog if it is gone; these are ErrUnknown too if a try may have been stored
// before that showed. With ErrStorage, ErrUnavailable, ErrTooLarge, and with
// ErrNoLog that is not ErrUnknown, nothing was appended, for certain.
func (l *Log) Append(ctx context.Context, after LSN, id CommitID, data []byte) (LSN, error) {
	nc := l.api.nc
	if limit := nc.MaxPayload(); limit > 0 && int64(len(data)+appendOverhead) > limit {
		return 0, fmt.Errorf("append to partition %s after LSN %d: %w: %d bytes, max_payload %d", l.p, after, ErrTooLarge, len(data), limit)
	}
	if l.answers == nil {
		answers, err := listen(nc)
		if err != nil {
			return 0, fmt.Errorf("append to partition %s after LSN %d: %w: %w", l.p, after, ErrUnavailable, err)
		}
		l.answers, l.appended = answers, l.cfg.Cache.hold(l.id)
	}
	l.answers.begin()
	most := l.cfg.AppendTimeout
	// A call that repeats an append of unknown outcome begins with an open try: the earlier
	// call's message may still be stored, so no refusal of this one is final.
	a := appending{
		l: l, after: after, id: id, retry: retryMin, patience: l.patience.first(len(data), most), looking: min(lookMin, most),
		waiting: map[string]time.Time{}, unresolved: id == l.unknown && !id.isZero(),
	}
	a.message = &nats.Msg{
		Header: nats.Header{headerExpected: {strconv.FormatUint(uint64(after), 10)}},
		Data:   data,
	}
	lsn, err := a.run(ctx)
	l.unknown = CommitID{}
	if errors.Is(err, ErrUnknown) {
		l.unknown = id
	}
	if err != nil {
		l.appended.stop(l) // somebody else may have appended, or this may be stored yet
		return 0, fmt.Errorf("append to partition %s after LSN %d: %w", l.p, after, err)
	}
	l.appended.add(l, lsn, data)
	return lsn, nil
}

// answers receives the answers to a log's appends. A channel of its own spares
// the goroutine that stands between connection and caller in a plain request.
type answers struct {
	subscription *nats.Subscription
	messages     chan *nats.Msg
	connected    chan nats.Status
	inbox        string
	count        uint64
}

func listen(nc *nats.Conn) (*answers, error) {
	a := &answers{messages: make(chan *nats.Msg, 64), inbox: nc.NewInbox() + "."}
	var err error
	if a.subscription, err = nc.ChanSubscribe(a.inbox+"*", a.messages); err != nil {
		return nil, err
	}
	a.connected = nc.StatusChanged(nats.CONNECTED)
	return a, nil
}

// begin prepares for a new append. Answers to older appends are dropped: their outcomes are
// known by now.
func (a *answers) begin() {
	for len(a.messages) > 0 {
		<-a.messages
	}
	for len(a.connected) > 0 {
		<-a.connected
	}
}

// next returns the reply subject of a try: each has one of its own.
func (a *answers) next() (reply string) {
	a.count++
	return a.inbox + strconv.FormatUint(a.count, 10)
}

func (a *answers) close(nc *nats.Conn) {
	// The error says that the connection is closed, and the subscription with
	// it.
	_ = a.subscription.Unsubscribe()
	nc.RemoveStatusListener(a.connected)
}

// appending is one call of Append.
type appending struct {
	l        *Log
	after    LSN
	id       CommitID
	message  *nats.Msg
	retry    time.Duration // the next pause
	patience time.Duration // for which the next try waits for its answer
	looking  time.Duration // for which the next look for a stream without a listener does
	location location      // where the last try went
	early    *nats.Msg     // an answer that came between two tries; nil: none

	// waiting are the tries that may have been, or may yet be, stored, and are not answered: when
	// each was sent, by its reply subject. A refusal closes its own try and no other one.
	waiting map[string]time.Time
	// unresolved says that a try may have been, or may yet be, stored whose answer told nothing, or
	// that an earlier call made.
	unresolved bool
	// refusal is why the last try was not, if it is certain that it was not.
	refusal error
	// contradictions counts looks at a stream that contradicts what is known.
	contradictions int
}

var (
	// errAgain says that a try decided nothing.
	errAgain = errors.New("try again")
	// errPending says so too, and that the answer to a try before it is worth to be waited for.
	errPending = errors.New("wait on")
)

// open says that some try may have been, or may yet be, stored.
func (a *appending) open() bool { return a.unresolved || len(a.waiting) > 0 }

func (a *appending) run(ctx context.Context) (LSN, error) {
	for {
		lsn, err := a.try(ctx)
		switch {
		case err == nil:
			return lsn, nil
		case errors.Is(err, ErrFenced), errors.Is(err, ErrUnknown):
			return 0, err
		case !errors.Is(err, errAgain) && a.open():
			// Whatever this try has shown, one before it may be stored:
			//
			//	try 1  stored, and its answer is lost
			//	try 2  no such stream: the server cannot read its file, and can after its next start
			return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
		case !errors.Is(err, errAgain):
			return 0, err
		}
		meters.retries.Add(ctx, 1)
		if !a.pause(ctx) {
			return 0, a.contextEnded(ctx)
		}
	}
}

// contextEnded is the error when ctx ended first.
func (a *appending) contextEnded(ctx context.Context) error {
	if a.open() {
		return fmt.Errorf("%w: %w", ErrUnknown, context.Cause(ctx))
	}
	return fmt.Errorf("%w: %w: last try: %w", ErrUnavailable, context.Cause(ctx), a.refusal)
}

// try sends the message once and waits for what becomes of it, or of one that was sent before.
func (a *appending) try(ctx context.Context) (LSN, error) {
	if ctx.Err() != nil {
		if a.refusal == nil {
			a.refusal = errors.New("none was made")
		}
		return 0, a.contextEnded(ctx)
	}
	if m := a.early; m != nil {
		a.early = nil
		if lsn, err := a.judgeAnswer(ctx, m); !errors.Is(err, errPending) {
			return lsn, err
		}
		return a.await(ctx)
	}
	// The log may have gone on in a new stream since the try before. What that one came to
	// shows there: it begins behind it, or holds it, or holds another's.
	a.location = a.l.api.location()
	a.message.Subject, a.message.Reply = a.location.subject, a.l.answers.next()
	if err := a.l.api.nc.PublishMsg(a.message); err != nil {
		a.refusal = err
		if errors.Is(err, nats.ErrConnectionClosed) && !a.open() {
			return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		return 0, errAgain
	}
	// From here on the message may be stored, whatever answer comes. Only an answer that
	// says "not stored" closes this try again, and it speaks of this try alone:
	//
	//	try 1  no answer                 open
	//	try 2  refused: no space left    still open, because of try 1
	//	try 3  wrong last sequence       look whose commit is there
	a.waiting[a.message.Reply] = time.Now()
	return a.await(ctx)
}

// await waits for an answer to any try.
func (a *appending) await(ctx context.Context) (LSN, error) {
	timer := time.NewTimer(a.patience)
	defer timer.Stop()
	for {
		select {
		case m := <-a.l.answers.messages:
			if a.ignores(m) {
				continue
			}
			if lsn, err := a.judgeAnswer(ctx, m); !errors.Is(err, errPending) {
				return lsn, err
			}
		case <-a.l.answers.connected:
			return 0, errAgain // an answer may have gone to the old connection
		case <-timer.C:
			a.patience = a.longer(a.patience)
			return 0, errAgain
		case <-ctx.Done():
			return 0, a.contextEnded(ctx)
		}
	}
}

// longer is the wait that follows one in vain: who is slow is not to be swamped.
func (a *appending) longer(wait time.Duration) time.Duration {
	return min(2*wait, a.l.cfg.AppendTimeout)
}

// ignores tells whether a message answers none of the tries that wait.
func (a *appending) ignores(m *nats.Msg) bool {
	_, ok := a.waiting[m.Subject]
	return !ok || a.l.lose != nil && a.l.lose(m)
}

// judgeAnswer judges an answer to a try that waits. While the outcome of another one is not known, a refusal
// of this one proves nothing yet.
func (a *appending) judgeAnswer(ctx context.Context, m *nats.Msg) (LSN, error) {
	sent := a.waiting[m.Subject]
	delete(a.waiting, m.Subject)
	// Nobody had the subject, so this try is not stored; those before may be.
	if m.Header.Get(headerStatus) == statusNoResponders {
		a.refusal = nats.ErrNoResponders
		return 0, a.noResponders(ctx)
	}
	var ack struct {
		Error    *jetstream.APIError `json:"error"`
		Stream   string              `json:"stream"`
		Sequence LSN                 `json:"seq"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		a.unresolved = true
		return 0, errAgain
	}
	e := ack.Error
	if e == nil {
		// JetStream checks the expected sequence, so this shows only where something else
		// answers for the stream: never call that acknowledged.
		if ack.Stream != a.location.stream || ack.Sequence != a.after+1 {
			a.unresolved = true
			return 0, &MismatchError{Partition: a.l.p, Stream: a.l.api.stream(), LSN: a.after + 1, What: fmt.Sprintf("stored at %d of stream %s", ack.Sequence, ack.Stream)}
		}
		a.l.patience.note(time.Since(sent))
		return ack.Sequence, nil
	}
	switch {
	case e.ErrorCode == codeWrongSequence || e.ErrorCode == codeWrongSequenceReplicated:
		lsn, err := a.resolveRefusal(ctx)
		if lsn == 0 {
			a.unresolved = true // what stands in the way may yet turn out to be ours
		}
		return lsn, err
	case e.ErrorCode == codeStoreFailed && strings.HasPrefix(e.Description, syncFailed):
		// The message was written, and perhaps is on the disk: that shows when the
		// server's store has been opened anew.
		a.unresolved = true
		return 0, errAgain
	// This try was refused for another reason, but one before may have been stored: to
	// say ErrStorage now would call a write failed that is in the log.
	case a.open():
		return 0, errAgain
	}
	a.refusal = e
	switch {
	case e.ErrorCode == codeMessageTooLarge:
		return 0, fmt.Errorf("%w: %w", ErrTooLarge, e)
	case e.Code == 429, e.Code == 503 && e.ErrorCode != codeInsufficientResources && e.ErrorCode != codeStoreFailed:
		return 0, errAgain // starting, electing a leader, or busy
	}
	return 0, fmt.Errorf("%w: stream %s: %w: free disk space or raise the limit, then write again", ErrStorage, a.location.stream, e)
}

// noResponders distinguishes a server that is starting from a stream that is gone. Both
// leave the subject without a listener, as does a stream without a leader, and of that nobody tells anything.
func (a *appending) noResponders(ctx context.Context) error {
	look, cancel := context.WithTimeout(ctx, a.looking)
	defer cancel()
	_, err := a.l.verifiedInfo(look)
	if look.Err() != nil {
		a.looking = a.longer(a.looking)
	}
	return a.finalOrAgain(err)
}

// finalOrAgain returns err if waiting does not heal it, else errAgain. A stream that is not
// there must have been missing several times in a row, because a server that starts, or a
// new leader, does not know its streams at once. Another log under the name is final.
func (a *appending) finalOrAgain(err error) error {
	if _, ok := errors.AsType[*MismatchError](err); ok {
		return err
	}
	if errors.Is(err, ErrNoLog) {
		if a.contradictions++; a.contradictions >= contradictionsMax {
			return err
		}
	}
	return errAgain
}

// resolveRefusal finds out whose commit made the stream refuse ours.
func (a *appending) resolveRefusal(ctx context.Context) (LSN, error) {
	// The server that should answer may be gone, and another one answers the next question. So the
	// questions are bounded by the time that a try has.
	ctx, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	lsn, err := a.lookBehind(ctx)
	if ctx.Err() != nil {
		a.patience = a.longer(a.patience)
	}
	return lsn, err
}

// lookBehind looks what the stream holds behind the commit at after.
func (a *appending) lookBehind(ctx context.Context) (LSN, error) {
	lsn := a.after + 1
	data, err := a.l.api.message(ctx, lsn)
	if err == nil {
		h, err := DecodeHeader(data)
		switch {
		// What cannot be read is not ours, since ours can be: somebody else appended.
		case err != nil:
			return 0, fmt.Errorf("%w: LSN %d: %w", ErrFenced, lsn, err)
		// An earlier try of ours was stored and its answer was lost.
		case h.ID == a.id && h.Log == a.l.id:
			return lsn, nil
		}
		return 0, fmt.Errorf("%w: LSN %d is commit %s of %q, epoch %d", ErrFenced, lsn, h.ID, h.Owner, h.Epoch)
	}
	if !errors.Is(err, ErrNotFound) {
		return 0, a.finalOrAgain(err)
	}
	info, err := a.l.verifiedInfo(ctx)
	if err != nil {
		return 0, a.finalOrAgain(err)
	}
	// Nothing is at after+1. Where the stream ends tells why:
	//
	//	last == after   the commit that was in our way is not stored yet, or came to nothing: send again
	//	last < after    the stream lost what was acknowledged, or a new leader lags
	//	last > after    there is a gap at after+1, or the look came before the write
	last := info.State.Last
	if last == a.after {
		// If a try before this one waits, it is most likely what is in the way, and not yet stored. Its
		// answer is the sooner to come the less is sent meanwhile.
		if len(a.waiting) > 0 {
			return 0, errPending
		}
		return 0, errAgain
	}
	if a.contradictions++; a.contradictions < contradictionsMax {
		return 0, errAgain
	}
	if last < a.after {
		return 0, a.l.movedBack(a.after, last)
	}
	got, err := a.l.api.firstFrom(ctx, lsn)
	if err != nil {
		return 0, errAgain
	}
	err = a.l.missingError(ctx, lsn, got)
	if trimmed, ok := errors.AsType[*TrimmedError](err); ok {
		// Another owner has appended and trimmed since. Whether ours was among what is
		// gone nobody can tell any more.
		return 0, fmt.Errorf("%w: %w", ErrUnknown, trimmed)
	}
	if _, gap := errors.AsType[*GapError](err); !gap {
		return 0, errAgain
	}
	return 0, err
}

// pause waits before the next try, longer each time, and not in step with
// others, or until an answer comes. It is false if ctx ended.
func (a *appending) pause(ctx context.Context) bool {
	timer := time.NewTimer(a.retry/2 + rand.N(a.retry/2))
	defer timer.Stop()
	a.retry = min(2*a.retry, retryMax)
	for {
		select {
		case m := <-a.l.answers.messages:
			if a.ignores(m) {
				continue
			}
			a.early = m
			return true
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}
