package gateway

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// The levels of an account.
const (
	levelSession = "Session"
	levelStrong  = "Strong"
)

// consistent returns the container with the reads that a request asks for, or else the account. Where the container has no standbys all are
// answered by owners, which is stronger than what anybody can ask for.
//
//	Eventual, ConsistentPrefix       a standby where there is one, which spares the owner
//	Session, also as the account's,  the owner; where it does not answer, a standby that holds
//	with a session token             what the session has seen
//	Strong, BoundedStaleness, or     the owner
//	no token
func (c *collection) consistent(x *exchange, account string) *collection {
	if c.info.Spec.Standbys == 0 {
		return c
	}
	with := *c
	switch level := cmp.Or(x.header(headerConsistency), account); {
	case strings.EqualFold(level, "Eventual"), strings.EqualFold(level, "ConsistentPrefix"):
		with.Container = c.Eventual()
	case strings.EqualFold(level, levelSession):
		lsns := parseSession(x.header(headerSession))
		if len(lsns) == 0 {
			return c
		}
		with.Container = c.InSession(lsns)
	default:
		return c
	}
	return &with
}

// parseSession reads session tokens, joined by commas; see sessionToken. What is none, such as that of another server, is left
// out: the owner answers then, and sees more than any session.
func parseSession(text string) map[uint32]feed.LSN {
	lsns := map[uint32]feed.LSN{}
	for token := range strings.SplitSeq(text, ",") {
		number, rest, _ := strings.Cut(strings.TrimSpace(token), ":")
		version, lsn, ok := strings.Cut(rest, "#")
		n, err := strconv.ParseUint(number, 10, 32)
		at, err2 := strconv.ParseUint(lsn, 10, 64)
		if !ok || version != "-1" || err != nil || err2 != nil {
			continue
		}
		// A client may hold several of one partition, and has seen them all.
		lsns[uint32(n)] = max(lsns[uint32(n)], feed.LSN(at))
	}
	return lsns
}

// refusedAt returns the LSN of the state on which a refusal rests; 0 if it tells none. A client that learns that an id is
// taken has seen the item, as by a read.
func refusedAt(err error) feed.LSN {
	if refusal, ok := errors.AsType[*store.Error](err); ok {
		return refusal.LSN
	}
	return 0
}

// saw sets the session token of an answer that rests on one state of a partition; 0: it rests on none, or that is not known.
func (x *exchange) saw(p feed.Partition, lsn feed.LSN) {
	if lsn != 0 {
		x.session(sessionToken(p, lsn))
	}
}

// seenStates are the latest states of partitions that operations of one request have seen. The zero value is that none
// was. Safe for concurrent use.
type seenStates struct {
	mu   sync.Mutex
	lsns map[feed.Partition]feed.LSN
}

// note adds what one operation has seen; 0: nothing.
func (s *seenStates) note(p feed.Partition, lsn feed.LSN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lsns == nil {
		s.lsns = map[feed.Partition]feed.LSN{}
	}
	if lsn != 0 {
		s.lsns[p] = max(s.lsns[p], lsn)
	}
}

// tokens returns the session tokens, in order.
func (s *seenStates) tokens() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tokens []string
	for p, lsn := range s.lsns {
		tokens = append(tokens, sessionToken(p, lsn))
	}
	slices.Sort(tokens) // in one order, whatever that of the map
	return tokens
}
