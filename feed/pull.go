package feed

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// pullsMax is how many requests a tail keeps open: while one is being served, the
	// next one waits at the server, so that delivery does not pause for a round trip.
	pullsMax = 2
	// pullExpiry is how long the server keeps a request that it cannot serve.
	pullExpiry = 30 * time.Second
	// inactiveThreshold is how long the server keeps a consumer without requests. A reader
	// that pauses longer gets a new consumer at its cursor.
	inactiveThreshold = 2 * pullExpiry
	// pullBytesMin and pullBytesMax bound the bytes that one request asks for. A request
	// must have room for a whole message, and the largest has eight megabytes. But
	// nearly all are small, and the bytes that are asked for may all be held in memory. So
	// requests begin small, and grow when the server says that a message does not fit.
	pullBytesMin = 64 << 10
	pullBytesMax = 64 << 20
)

// pull is one open request for messages. The server sends a status to reply when the request
// is done. The messages themselves do not tell to which request they belong; the server
// serves requests one after the other.
type pull struct {
	reply string
	made  time.Time
	bytes int  // how many it asked for
	once  bool // the server ends it when it has sent what there is, and that is one message at least
	begun bool // a message came since it was made
}

// pulls are the open requests of one consumer. At most what pullsMax requests ask for is on
// the way or buffered, because a new request is made only when the status of an old one
// has arrived, and that comes after its messages. This bounds how far a tail reads ahead.
type pulls struct {
	nc      *nats.Conn
	subject string // of requests to the consumer
	inbox   string
	count   uint64
	commits int // messages per request
	base    int // bytes per request
	bytes   int // bytes of the next request: base, or more where a message needs it
	open    []pull
}

// openMissing opens requests until there are enough, and reports whether it opened
// any. If once, any that is open is enough, and the one that it opens asks once.
func (p *pulls) openMissing(once bool) (bool, error) {
	enough := pullsMax
	if once {
		enough = 1
	}
	if len(p.open) >= enough {
		return false, nil
	}
	now := time.Now()
	asked := false
	for len(p.open) < enough {
		p.count++
		reply := p.inbox + strconv.FormatUint(p.count, 10)
		var buf [96]byte // written by hand: encoding/json would allocate for each request
		b := append(buf[:0], `{"batch":`...)
		b = strconv.AppendInt(b, int64(p.commits), 10)
		b = append(b, `,"max_bytes":`...)
		b = strconv.AppendInt(b, int64(p.bytes), 10)
		b = append(b, `,"expires":`...)
		b = strconv.AppendInt(b, int64(pullExpiry), 10)
		if once { // because it expires too, it waits for the first message where there is none
			b = append(b, `,"no_wait":true`...)
		}
		b = append(b, '}')
		if err := p.nc.PublishRequest(p.subject, reply, b); err != nil {
			return asked, err
		}
		p.open = append(p.open, pull{reply: reply, made: now, bytes: p.bytes, once: once})
		asked = true
	}
	return asked, nil
}

// shrink halves the bytes of the next request down to the base, after a large message has
// raised them.
func (p *pulls) shrink() { p.bytes = max(p.bytes/2, p.base) }

func (p *pulls) close(i int) { p.open = slices.Delete(p.open, i, i+1) }

// came notes that a message of the consumer has come.
func (p *pulls) came() {
	for i := range p.open {
		p.open[i].begun = true
	}
}

// arriving says that messages are on the way, or the status behind them: the one open request asks once,
// and the server has begun to serve it.
func (p *pulls) arriving() bool { return len(p.open) == 1 && p.open[0].once && p.open[0].begun }

// find returns the index of the open request that a status at subject is about, -1 if there
// is none.
func (p *pulls) find(subject string) int {
	for i := range p.open {
		if p.open[i].reply == subject {
			return i
		}
	}
	return -1
}

// expire drops requests that the server has dropped without a status, which it does when a
// message takes exactly the last byte. The second more is for a status on the way.
func (p *pulls) expire() {
	p.open = slices.DeleteFunc(p.open, func(o pull) bool { return time.Since(o.made) > pullExpiry+time.Second })
}

// judgeStatus handles a message without content about request i. It reports whether the
// consumer is still usable:
//
//	100  idle heartbeat or flow control
//	404  the request asked once, and all that there was has been sent
//	408  the request expired before it was full
//	409  the request is done, or the consumer is gone; the reason tells which
//	503  nobody listens to the consumer's subject
func (p *pulls) judgeStatus(i int, m *nats.Msg) (alive bool) {
	reason := m.Header.Get(headerReason)
	switch m.Header.Get(headerStatus) {
	case "100":
		return true
	case "404", "408":
		p.close(i)
		return true
	case "409":
		switch {
		case strings.HasPrefix(reason, "Batch Completed"):
			p.shrink()
			p.close(i)
			return true
		case strings.HasPrefix(reason, "Message Size Exceeds"):
			// If all bytes are unused, the next message is larger than the request, so the
			// next request asks for more. Otherwise the request was filled as far as whole
			// messages allow.
			if unused, _ := strconv.Atoi(m.Header.Get(headerPendingBytes)); unused == p.open[i].bytes {
				p.bytes = max(p.bytes, min(2*unused, pullBytesMax))
			} else {
				p.shrink()
			}
			p.close(i)
			return true
		}
	}
	// No responders, consumer deleted, leadership change, server shutdown: a new consumer is
	// the one remedy for all.
	return false
}

// origin reads the consumer and the stream sequence of a message from the
// subject to which it would be acknowledged:
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.<pending>
//	$JS.ACK.<domain>.<account>.<stream>.<consumer>.<delivered>.<stream seq>.…
func origin(reply string) (consumer string, lsn LSN, ok bool) {
	rest, ok := strings.CutPrefix(reply, "$JS.ACK.")
	if !ok {
		return "", 0, false
	}
	// The second form, which has the account's domain before the stream, has more parts.
	// Cutting by hand does not allocate; this runs once a message.
	skip := 1
	if strings.Count(rest, ".") > 6 {
		skip = 3
	}
	for range skip {
		_, rest, _ = strings.Cut(rest, ".")
	}
	consumer, rest, _ = strings.Cut(rest, ".")
	_, rest, _ = strings.Cut(rest, ".")
	digits, _, _ := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(digits, 10, 64)
	return consumer, LSN(n), err == nil
}
