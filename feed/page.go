package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
)

// pagePatience is how long ReadPage waits for one more message of its answer.
const pagePatience = messageTimeout

// ReadPage returns the commits from LSN from on: at most commitsMax, and no further one once
// their bytes, as they are when decompressed, exceed bytesMax. It makes one request and leaves no consumer at the server,
// which suits a caller that reads now and then. A caller that follows a log uses Tail.
//
// No commits and no error mean that the replica which answered has none at from or
// behind it. It may lag: Bounds asks the leader. The error is *GapError if the page does
// not begin at from or has a hole, *TrimmedError if the log was trimmed beyond from, and
// otherwise as of Read.
func (l *Log) ReadPage(ctx context.Context, from LSN, commitsMax, bytesMax int) ([]*Commit, error) {
	asked := l.api.location()
	page, err := l.readPage(ctx, from, commitsMax, bytesMax)
	// The log has moved meanwhile: readPage learned of the new stream when the old one did
	// not answer.
	if errors.Is(err, nats.ErrNoResponders) && l.api.location() != asked {
		return l.readPage(ctx, from, commitsMax, bytesMax)
	}
	return page, err
}

func (l *Log) readPage(ctx context.Context, from LSN, commitsMax, bytesMax int) ([]*Commit, error) {
	inbox := l.api.nc.NewRespInbox()
	sub, err := l.api.nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("read partition %s from LSN %d: %w", l.p, from, err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only where the connection is closed
	// The server counts the bytes of messages. The caller has to hold what they are
	// decompressed to, which may be a hundred times as much: so it is asked for as much less as
	// the page before was compressed, and what would be thrown away is not sent.
	asked := bytesMax
	if times := l.expansion.Load(); times > 100 {
		asked = max(bytesMax/int(times)*100, 1)
	}
	query := fmt.Appendf(nil, `{"seq":%d,"batch":%d,"max_bytes":%d}`, from, commitsMax, asked)
	if err := l.api.nc.PublishRequest(l.api.prefix+"DIRECT.GET."+l.api.stream(), inbox, query); err != nil {
		return nil, fmt.Errorf("read partition %s from LSN %d: %w", l.p, from, err)
	}
	var page []*Commit
	room, stored := bytesMax, 0
	defer func() {
		if stored > 0 {
			l.expansion.Store(int64(bytesMax-room) * 100 / int64(stored))
		}
	}()
	for {
		m, err := nextOfPage(ctx, sub)
		// A server that starts and a stream that is gone both have no responder. Asking for
		// the stream tells them apart, and finds a log that has moved.
		if errors.Is(err, nats.ErrNoResponders) {
			_, gone := l.verifiedInfo(ctx)
			err = cmp.Or(gone, err)
		}
		if err != nil {
			return nil, fmt.Errorf("read partition %s from LSN %d: %w", l.p, from+LSN(len(page)), err)
		}
		switch status := m.Header.Get(headerStatus); status {
		case "":
			c, bytes, err := l.pageCommit(m, page, from)
			if gap, ok := errors.AsType[*GapError](err); ok {
				err = l.missingError(ctx, gap.Want, gap.Got)
			}
			if err != nil {
				return nil, err
			}
			page = append(page, c)
			stored += len(m.Data)
			if room -= bytes; room < 0 {
				return page, nil
			}
		case "204", "404": // the end of the page, or nothing there
			return page, nil
		default:
			return nil, fmt.Errorf("read partition %s from LSN %d: JetStream answered %s %s", l.p, from, status, m.Header.Get(headerReason))
		}
	}
}

// nextOfPage waits for one more message. The time begins anew with each: on a slow link a page
// takes longer than a commit may.
func nextOfPage(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, pagePatience)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}

// pageCommit decodes the next commit of a page and checks that it follows the one before. It also
// returns how many bytes the commit has when it is not compressed.
func (l *Log) pageCommit(m *nats.Msg, page []*Commit, from LSN) (c *Commit, bytes int, err error) {
	want := from + LSN(len(page))
	n, err := strconv.ParseUint(m.Header.Get(headerSequence), 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("read partition %s at LSN %d: JetStream's header %s: %w", l.p, want, headerSequence, errors.Unwrap(err))
	}
	if got := LSN(n); got != want {
		return nil, 0, &GapError{Partition: l.p, Stream: l.api.stream(), Want: want, Got: got}
	}
	c, err = l.decode(want, m.Data)
	if err != nil {
		return nil, 0, err
	}
	if len(page) > 0 {
		if before := page[len(page)-1]; c.Prev != before.Sum {
			return nil, 0, &MismatchError{Partition: l.p, Stream: l.api.stream(), LSN: want, What: fmt.Sprintf("commit follows checksum %s, the one before has %s", c.Prev, before.Sum)}
		}
	}
	h, err := DecodeHeader(m.Data)
	return c, h.Bytes, err
}
