package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// apiTimeout bounds a request to JetStream's API whose context has no end.
	apiTimeout = 5 * time.Second
	// messageTimeout is apiTimeout for a request whose answer is a message of a log: the largest
	// has eight megabytes, and the link may be slow.
	messageTimeout = 15 * time.Second
	// askAgainMin and askAgainMax bound the time after which an unanswered question is asked
	// again. It doubles with each one. messageAgainMax is askAgainMax where the answer is a
	// message: what is asked for again while it is on its way comes once more over a link that
	// is slow already.
	askAgainMin     = 500 * time.Millisecond
	askAgainMax     = time.Second
	messageAgainMax = 8 * time.Second
	// answersMax is how many answers to one question may wait to be looked at. Further ones are
	// dropped: an answer that helps is taken at once, and the question is asked again.
	answersMax = 16
	// errorBytesMax bounds the answers that are looked at for an error: all errors are short.
	errorBytesMax = 1 << 10
)

// Headers of JetStream.
const (
	headerExpected = "Nats-Expected-Last-Sequence"
	headerStatus   = "Status"
	headerReason   = "Description"
	// statusNoResponders is the headerStatus of a message without data with which a server says
	// that nobody listens to what was asked.
	statusNoResponders = "503"

	headerPendingBytes = "Nats-Pending-Bytes"
	headerSequence     = "Nats-Sequence"
)

// api makes the few requests of JetStream's API that a log needs. It does not use the
// client library's layers, which hide who answered: a lagging replica may say that
// there is nothing, and only the leader's word on that counts.
type api struct {
	nc        *nats.Conn
	prefix    string // "$JS.API."
	locations [2]location
	at        *atomic.Uint32 // index of the location where the log is, as far as is known; copies of the api share it
	pinned    bool           // requests go to one location, whether the log is there or not
	again     time.Duration  // after which a question is asked again for the first time
}

// location is a stream that may hold a partition's log, and its one subject.
type location struct{ stream, subject string }

func (a *api) location() location { return a.locations[a.at.Load()] }
func (a *api) stream() string     { return a.location().stream }

func newAPI(js jetstream.JetStream, p Partition) api {
	// The requests are made here, so the prefix must be what the client library would
	// use: a leaf node's domain, or the account's own prefix.
	prefix := jetstream.DefaultAPIPrefix
	switch o := js.Options(); {
	case o.Domain != "":
		prefix = "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		prefix = strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return api{nc: js.Conn(), prefix: prefix, locations: p.locations(), at: &atomic.Uint32{}, again: askAgainMin}
}

// pin returns an api that asks one location, whether the log is there or not.
func (a *api) pin(index uint32) api {
	pinned := *a
	pinned.at, pinned.pinned = &atomic.Uint32{}, true
	pinned.at.Store(index)
	return pinned
}

// followMove is called when the log's stream is not there. It reports whether the log has
// moved to the new stream, and directs further requests there. A copy that is not
// complete is not labelled as a log, so it is not followed.
func (a *api) followMove(ctx context.Context) bool {
	if a.pinned || a.at.Load() == movedLocation {
		return false
	}
	next := a.pin(movedLocation)
	info, err := next.info(ctx)
	if err != nil {
		return false
	}
	if _, err := info.logID(); err != nil {
		return false
	}
	// A log moves once and never back, so this store can race only with an equal one.
	a.at.Store(movedLocation)
	return true
}

// streamInfo is the part of a stream's information that a log uses.
type streamInfo struct {
	Config struct {
		Metadata  map[string]string `json:"metadata"`
		DenyPurge bool              `json:"deny_purge"`
	} `json:"config"`
	State struct {
		First LSN `json:"first_seq"`
		Last  LSN `json:"last_seq"`
	} `json:"state"`
}

// logID is the identity that CreateLog wrote.
func (i *streamInfo) logID() (LogID, error) {
	text, ok := i.Config.Metadata[metadataLog]
	if !ok {
		return LogID{}, errors.New("stream has no metadata " + metadataLog)
	}
	id, err := ParseLogID(text)
	if err != nil {
		return LogID{}, fmt.Errorf("metadata %s: %w", metadataLog, err)
	}
	return id, nil
}

// info asks the stream's leader for its state. The error is ErrNoLog if there
// is no stream.
func (a *api) info(ctx context.Context) (*streamInfo, error) {
	var answer struct {
		Error *jetstream.APIError `json:"error"`
		streamInfo
	}
	stream := a.stream()
	m, err := a.request(ctx, "STREAM.INFO."+stream, nil)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return nil, fmt.Errorf("stream %s: answer: %w", stream, err)
	}
	if e := answer.Error; e != nil {
		if e.ErrorCode == codeStreamNotFound {
			// At most one more round: followMove answers false at the second location.
			if a.followMove(ctx) {
				return a.info(ctx)
			}
			return nil, fmt.Errorf("%w: stream %s is not there: restore it, or delete and make the container anew", ErrNoLog, stream)
		}
		return nil, fmt.Errorf("stream %s: %w", stream, e)
	}
	return &answer.streamInfo, nil
}

// message returns the message at lsn, from any replica that has it, or
// ErrNotFound if the leader says that there is none.
func (a *api) message(ctx context.Context, lsn LSN) ([]byte, error) {
	query := append(strconv.AppendUint([]byte(`{"seq":`), uint64(lsn), 10), '}')
	// A direct get is answered by any replica, which spares the leader. What it has is
	// right; what it does not have, or an error, proves nothing, so the leader is asked.
	m, err := a.requestMessage(ctx, "DIRECT.GET."+a.stream(), query)
	if err == nil && m.Header.Get(headerStatus) == "" {
		return m.Data, nil
	}
	_, data, err := a.leaderMessage(ctx, func(location) []byte { return query })
	return data, err
}

// firstFrom returns the LSN of the first message whose LSN is lsn or greater, 0 if there
// is none.
func (a *api) firstFrom(ctx context.Context, lsn LSN) (LSN, error) {
	got, _, err := a.leaderMessage(ctx, func(at location) []byte {
		return fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q}`, lsn, at.subject)
	})
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	return got, err
}

// leaderMessage asks the stream's leader for a message. The query is a function because
// the subject in it differs between the two locations. The error is ErrNotFound if there
// is no such message, and ErrNoLog if there is no stream.
func (a *api) leaderMessage(ctx context.Context, query func(location) []byte) (LSN, []byte, error) {
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Sequence LSN    `json:"seq"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	at := a.location()
	m, err := a.requestMessage(ctx, "STREAM.MSG.GET."+at.stream, query(at))
	if err != nil {
		return 0, nil, err
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return 0, nil, fmt.Errorf("stream %s: answer: %w", at.stream, err)
	}
	switch e := answer.Error; {
	case e == nil:
		return answer.Message.Sequence, answer.Message.Data, nil
	case e.ErrorCode == codeNoMessage:
		return 0, nil, ErrNotFound
	case e.ErrorCode == codeStreamNotFound:
		if a.followMove(ctx) {
			return a.leaderMessage(ctx, query)
		}
		return 0, nil, fmt.Errorf("%w: stream %s is not there", ErrNoLog, at.stream)
	default:
		return 0, nil, fmt.Errorf("stream %s: %w", at.stream, e)
	}
}

// request asks JetStream's API what changes nothing, until ctx ends, or for apiTimeout if it has
// no end. A question that nobody has answered for a moment is asked again, and the first answer
// to any of them counts:
//
//	the server that is to answer falls silent    no answer
//	another becomes the stream's leader          no answer to what was asked before
//	asked again                                  answered
//
// An answer that JetStream is unavailable is not the last word either: servers that are not the
// leader give it while nobody leads. It is returned when no better one has come.
func (a *api) request(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	return a.ask(ctx, subject, data, askAgainMax, apiTimeout)
}

// requestMessage is request where the answer is a message of the log, which may be large.
func (a *api) requestMessage(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	return a.ask(ctx, subject, data, messageAgainMax, messageTimeout)
}

// ask asks until ctx ends, or for timeout if it has no end, and again after againMax at most.
func (a *api) ask(ctx context.Context, subject string, data []byte, againMax, timeout time.Duration) (*nats.Msg, error) {
	ctx, cancel := apiContext(ctx, timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ask JetStream %s: %w", subject, err)
	}
	inbox := a.nc.NewInbox()
	// With a channel of our own: that of a synchronous subscription has room for 65,536
	// messages, which is half a megabyte for each question.
	answers := make(chan *nats.Msg, answersMax)
	sub, err := a.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, fmt.Errorf("ask JetStream %s: %w", subject, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only where the connection is closed
	var unavailable *nats.Msg
	for wait := a.again; ; wait = max(wait, min(2*wait, againMax)) {
		if err := a.nc.PublishRequest(a.prefix+subject, inbox, data); err != nil {
			return nil, fmt.Errorf("ask JetStream %s: %w", subject, err)
		}
		m, err := nextAnswer(ctx, answers, wait, &unavailable)
		switch {
		case err == nil:
			return m, nil
		case ctx.Err() != nil && unavailable != nil:
			return unavailable, nil
		case ctx.Err() != nil, !errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("ask JetStream %s: %w", subject, err)
		}
	}
}

// nextAnswer waits for an answer. It keeps one that JetStream is unavailable, and waits on. The
// error is nats.ErrNoResponders if nobody listens to the question.
func nextAnswer(ctx context.Context, answers <-chan *nats.Msg, wait time.Duration, unavailable **nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case m := <-answers:
			if len(m.Data) == 0 && m.Header.Get(headerStatus) == statusNoResponders {
				return nil, nats.ErrNoResponders
			}
			if !isUnavailable(m) {
				return m, nil
			}
			*unavailable = m
		}
	}
}

// isUnavailable reports whether an answer is the error that the cluster or the stream has no leader.
func isUnavailable(m *nats.Msg) bool {
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	return len(m.Data) <= errorBytesMax && json.Unmarshal(m.Data, &answer) == nil &&
		answer.Error != nil && answer.Error.ErrorCode == codeUnavailable
}

// requestOnce asks JetStream's API to change something. It is asked once.
func (a *api) requestOnce(ctx context.Context, subject string, data []byte) (*nats.Msg, error) {
	ctx, cancel := apiContext(ctx, apiTimeout)
	defer cancel()
	m, err := a.nc.RequestWithContext(ctx, a.prefix+subject, data)
	if err != nil {
		return nil, fmt.Errorf("ask JetStream %s: %w", subject, err)
	}
	return m, nil
}

// apiContext gives a request an end, if ctx has none.
func apiContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, timeout)
}
