package feed

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// pullsMax is how many requests a tail has open: while one is being served,
	// the next waits at the server.
	pullsMax = 2
	// pullExpiry is how long the server keeps a request that it cannot serve.
	pullExpiry = 30 * time.Second
	// inactiveThreshold is how long the server keeps a consumer that nobody
	// asks. A reader that pauses longer gets a new one from its cursor.
	inactiveThreshold = 2 * pullExpiry
	// pullBytesMin and pullBytesMax bound what one request asks for. A request
	// must have room for a whole message, and the largest has eight megabytes; but
	// nearly all are small, and what is asked for is what is held. So requests
	// begin small and grow when the server says that a message does not fit.
	pullBytesMin = 64 << 10
	pullBytesMax = 64 << 20
)

// pull is one open request for messages. The server says at reply when it is
// done; the messages themselves do not tell to which request they belong, as
// the server serves requests in turn.
type pull struct {
	reply string
	made  time.Time
	bytes int // that it asked for
}

// pulls are the open requests of one consumer. No more than what pullsMax
// requests ask for is ever on the way or buffered: the word that a request is
// done comes behind its messages. This is what bounds a tail's reading ahead.
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

// ask opens requests until there are enough, and reports whether it opened
// any.
func (p *pulls) ask() (bool, error) {
	if len(p.open) == pullsMax {
		return false, nil
	}
	now := time.Now()
	asked := false
	for len(p.open) < pullsMax {
		p.count++
		reply := p.inbox + strconv.FormatUint(p.count, 10)
		var buf [96]byte
		b := append(buf[:0], `{"batch":`...)
		b = strconv.AppendInt(b, int64(p.commits), 10)
		b = append(b, `,"max_bytes":`...)
		b = strconv.AppendInt(b, int64(p.bytes), 10)
		b = append(b, `,"expires":`...)
		b = strconv.AppendInt(b, int64(pullExpiry), 10)
		b = append(b, '}')
		if err := p.nc.PublishRequest(p.subject, reply, b); err != nil {
			return asked, err
		}
		p.open = append(p.open, pull{reply: reply, made: now, bytes: p.bytes})
		asked = true
	}
	return asked, nil
}

// shrink brings requests back to their base by and by, behind a large message.
func (p *pulls) shrink() { p.bytes = max(p.bytes/2, p.base) }

func (p *pulls) close(i int) { p.open = slices.Delete(p.open, i, i+1) }

// find returns the open request that a word of the server is about, -1 if it is
// none.
func (p *pulls) find(subject string) int {
	for i := range p.open {
		if p.open[i].reply == subject {
			return i
		}
	}
	return -1
}

// expire forgets requests that the server has forgotten without a word, which
// it does when a message takes exactly the last byte.
func (p *pulls) expire() {
	p.open = slices.DeleteFunc(p.open, func(o pull) bool { return time.Since(o.made) > pullExpiry+time.Second })
}

// status takes a message without content about request i and reports whether
// the consumer is still good.
func (p *pulls) status(i int, m *nats.Msg) (alive bool) {
	reason := m.Header.Get(headerReason)
	switch m.Header.Get(headerStatus) {
	case "100":
		return true
	case "408":
		p.close(i)
		return true
	case "409":
		switch {
		case strings.HasPrefix(reason, "Batch Completed"):
			p.shrink()
			p.close(i)
			return true
		case strings.HasPrefix(reason, "Message Size Exceeds"):
			// All of it unused: the next message is larger than the request. Else the
			// request was filled as far as messages allow.
			if unused, _ := strconv.Atoi(m.Header.Get(headerPendingBytes)); unused == p.open[i].bytes {
				p.bytes = max(p.bytes, min(2*unused, pullBytesMax))
			} else {
				p.shrink()
			}
			p.close(i)
			return true
		}
	}
	// No responders, consumer deleted, leadership change, server shutdown.
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
