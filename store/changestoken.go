package store

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/feed"
)

// continuation is how far a reader of changes has come: a container, and a
// position in each of some of its partitions. Its text is
//
//	c7k2x4ab/0@42,1@17.3
//
// the container's resource id, then for each partition its number and what was
// read: all up to commit 42, and all up to the first three changes of commit 17. A walk
// adds the item key, in base64url, up to which it has come, and its floor:
//
//	0@42!AYGo...!17.3           items behind that key are yet to come, but for those that
//	                            were last written up to 17.3
//	0@0!!t1732320000000         none has come yet; those that a client wrote last before
//	                            that time, in unix milliseconds, will not
//	0@42!AYGo...                all items behind that key are yet to come
//
// Earlier releases know no walks and refuse these; theirs are read as ever. A number may be that of a partition that was
// split since: changeslineage.go tells where it goes on.
type continuation struct {
	container feed.ResourceID
	positions []partitionPosition
}

type partitionPosition struct {
	number uint32
	after  feed.Position
	walk   *walkPlace // nil if after says all
}

// after returns the position in a partition.
func (c *continuation) after(number uint32) (feed.Position, bool) {
	for _, p := range c.positions {
		if p.number == number {
			return p.after, true
		}
	}
	return feed.Position{}, false
}

// String prints the continuation.
func (c *continuation) String() string {
	b := append([]byte(c.container), '/')
	for i, p := range c.positions {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(p.number), 10)
		b = append(b, '@')
		b = appendPlace(b, p.after)
		if p.walk == nil {
			continue
		}
		b = append(b, walkMark)
		b = base64.RawURLEncoding.AppendEncode(b, p.walk.cursor)
		switch w := p.walk; {
		case w.since > 0:
			b = strconv.AppendInt(append(b, walkMark, sinceMark), w.since, 10)
		case w.floor != (feed.Position{}):
			b = appendPlace(append(b, walkMark), w.floor)
		}
	}
	return string(b)
}

// What stands before a walk's parts in a continuation, and before a time.
const (
	walkMark  = '!'
	sinceMark = 't'
)

func appendPlace(b []byte, p feed.Position) []byte {
	b = strconv.AppendUint(b, uint64(p.LSN), 10)
	if p.Index > 0 {
		b = append(b, '.')
		b = strconv.AppendUint(b, uint64(p.Index), 10)
	}
	return b
}

// parseContinuation reads what String printed. The error is 400 if it is not that,
// or is of another container than the given one.
func parseContinuation(text string, container feed.ResourceID) (*continuation, error) {
	if text == "" {
		return &continuation{container: container}, nil
	}
	rid, rest, ok := strings.Cut(text, "/")
	if !ok {
		return nil, badContinuation(text)
	}
	if feed.ResourceID(rid) != container {
		return nil, Refuse(StatusBadRequest, "continuation %q is not of this container, which is %s: begin anew", text, container)
	}
	c := &continuation{container: container}
	if rest == "" {
		return c, nil // of a scope that has no partition
	}
	for part := range strings.SplitSeq(rest, ",") {
		p, err := parsePartitionPosition(part)
		if _, twice := c.after(p.number); err != nil || twice || len(c.positions) == PartitionsMax {
			return nil, badContinuation(text)
		}
		c.positions = append(c.positions, p)
	}
	// One form only: 0@042 and 0@42 would name one place, and clients compare texts.
	if c.String() != text {
		return nil, badContinuation(text)
	}
	return c, nil
}

func parsePartitionPosition(text string) (p partitionPosition, err error) {
	number, place, _ := strings.Cut(text, "@")
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return p, err
	}
	p.number = uint32(n)
	place, walk, walks := strings.Cut(place, string(walkMark))
	if p.after, err = parsePlace(place); err != nil || !walks {
		return p, err
	}
	p.walk, err = parseWalk(walk)
	return p, err
}

func parsePlace(text string) (p feed.Position, err error) {
	lsn, index, split := strings.Cut(text, ".")
	if p.LSN, err = feed.ParseLSN(lsn); err != nil || !split {
		return p, err
	}
	n, err := strconv.ParseUint(index, 10, 32)
	if p.Index = uint32(n); err == nil && p.LSN == 0 {
		err = feed.ErrSyntax
	}
	return p, err
}

// parseWalk reads what a walk adds to a position.
func parseWalk(text string) (w *walkPlace, err error) {
	w = &walkPlace{}
	cursor, floor, _ := strings.Cut(text, string(walkMark))
	if cursor != "" {
		if w.cursor, err = base64.RawURLEncoding.DecodeString(cursor); err != nil {
			return nil, err
		}
	}
	switch {
	case floor == "":
	case floor[0] == sinceMark:
		w.since, err = strconv.ParseInt(floor[1:], 10, 64)
	default:
		w.floor, err = parsePlace(floor)
	}
	return w, err
}

func badContinuation(text string) error {
	return Refuse(StatusBadRequest, "%q is not a continuation of a change feed; send one as it was received", text)
}

// logsMax bounds the logs that a client keeps open.
const logsMax = 1024

// feedRetry is the time between two tries to reach a log.
const feedRetry = time.Second

// logs are the logs that a client reads, each found once. Safe for concurrent use;
// the zero value is ready.
type logs struct {
	mu    sync.Mutex
	found map[feed.Partition]*foundLog // guarded by mu
}

type foundLog struct {
	*feed.Log
	plain feed.LSN // the last commit of which is known that it is no split commit
}

// open returns the log of a partition.
func (l *logs) open(ctx context.Context, c *Catalog, p feed.Partition) (*feed.Log, error) {
	l.mu.Lock()
	found := l.found[p]
	l.mu.Unlock()
	if found != nil {
		return found.Log, nil
	}
	log, err := feed.OpenLog(ctx, c.js, p, c.cfg.Log)
	if err != nil {
		return nil, l.readError(p, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.found == nil {
		l.found = map[feed.Partition]*foundLog{}
	}
	for other := range l.found { // any one: finding it again costs one request
		if len(l.found) < logsMax {
			break
		}
		delete(l.found, other)
	}
	l.found[p] = &foundLog{Log: log}
	return log, nil
}

// note tells whether a commit of a partition's log is a split commit, and remembers if it is none.
func (l *logs) note(p feed.Partition, c *feed.Commit) bool {
	if split, err := feed.SplitOf(c); split != nil || err != nil {
		return true // one of a later release is one
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if found := l.found[p]; found != nil {
		found.plain = c.LSN
	}
	return false
}

// plain tells whether a commit is known to be no split commit.
func (l *logs) plain(p feed.Partition, lsn feed.LSN) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := l.found[p]
	return found != nil && found.plain == lsn
}

// readError forgets the log of a partition, which may be another one now, and returns the error
// of reading it as one that callers know: a container that was deleted is 404, and JetStream
// that does not answer is 503.
func (l *logs) readError(p feed.Partition, err error) error {
	if trimmed, ok := errors.AsType[*feed.TrimmedError](err); ok {
		return fmt.Errorf("changes of %s: %w", p, trimmed) // the log is the right one
	}
	l.mu.Lock()
	delete(l.found, p)
	l.mu.Unlock()
	switch {
	case errors.Is(err, feed.ErrNoLog):
		return Refuse(StatusNotFound, "changes of %s: %v", p, err)
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrConnectionClosed):
		return &Error{Status: StatusUnavailable, Message: fmt.Sprintf("changes of %s: %v", p, err), RetryAfter: feedRetry}
	}
	return fmt.Errorf("changes of %s: %w", p, err)
}
