package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
)

// Limits of one page of changes.
const (
	// ChangesMax is the default and the limit of ChangesRequest.ItemsMax.
	ChangesMax = 1000
	// ChangesBytesMax bounds the items of a page. A transaction that is larger
	// makes a page by itself.
	ChangesBytesMax = 4 << 20
	// changesCommitsMax and changesReadMax bound what is read of the logs for one
	// page, whatever it holds: commits and bytes.
	changesCommitsMax = 4096
	changesReadMax    = 16 << 20
	// What one request to a log asks for: few commits at first, more while they
	// hold little of what is wanted.
	chunkCommitsMin = 16
	chunkCommitsMax = 512
	chunkBytesMax   = 4 << 20
)

// ChangesRequest asks for a page of a container's change feed.
type ChangesRequest struct {
	// Scope restricts what is read; the zero ChangeScope is the whole container.
	Scope ChangeScope
	// AllVersions asks for every change, deletes and expiries too. Without it each
	// item comes once, as it is now, at the place of its last write; one that is
	// gone does not come. Of a log that is long, or that was trimmed behind the reader's
	// place, the items that are there come in the order of their keys first, each as a
	// create at the time of its last write by a client.
	AllVersions bool
	// Start is where to begin if Continuation is "".
	Start feed.Start
	// Continuation is that of the page before.
	Continuation string
	// ItemsMax bounds the changes of a page. Default and limit ChangesMax.
	ItemsMax int
}

// ChangeScope selects changes of a container. Its parts hold together.
type ChangeScope struct {
	// Partitions are numbers of physical partitions; nil is all of them.
	Partitions []uint32
	// Range is one of effective partition keys; the zero Range is all of them.
	Range feed.Range
	// Key is one logical partition; zero is all of them.
	Key feed.PartitionKey
}

// ChangesPage is a page of changes, those of each physical partition in order.
type ChangesPage struct {
	Changes []ItemChange
	// Continuation asks for what comes behind this page.
	Continuation string
	// End says that nothing was behind the page when it was read. A page that is
	// empty and not the end looked as far as one request may.
	End bool
	// Reached are the last commits that were looked at, one of each partition in
	// the scope.
	Reached []PartitionLSN
}

// PartitionLSN is a commit of a physical partition of some container.
type PartitionLSN struct {
	Number uint32
	LSN    feed.LSN
}

// ItemChange is one change of one item.
type ItemChange struct {
	Op feed.Op
	// Item is what the change left. Its Body is nil if the item is gone; its ETag
	// is the position of the change.
	Item Item
	// Time is that of the commit in unix milliseconds.
	Time int64
	// Previous is the ETag of what was replaced or removed; zero for a create.
	Previous ETag
}

// Changes reads a page of the change feed. A transaction of a client is never
// split: a page ends before one that it has no room for, and one that is larger
// than a page makes a page by itself. The page of a fan-out is split as it comes.
//
// Whoever reads an item after its change sees that change or a later one. With
// latest versions, "now" is the moment of the call: a client that calls between
// two writes sees both.
//
// The error is 400 if the continuation is not one, is of another container or of
// other partitions than the scope, or if a log does not hold what comes behind it;
// 410 if the scope names a partition that the container has not. It is
// *feed.TrimmedError if the continuation is of the container that this one was restored from. Parts of a scope
// that have nothing in common have no changes.
func (c *Container) Changes(ctx context.Context, r ChangesRequest) (*ChangesPage, error) {
	token, err := parseContinuation(r.Continuation, c.info.ID)
	if err != nil {
		return nil, c.ofOrigin(r.Continuation, err)
	}
	itemsMax := ChangesMax
	if r.ItemsMax > 0 {
		itemsMax = min(r.ItemsMax, ChangesMax)
	}
	page := &changesPage{ct: c, r: &r, room: itemsMax, bytes: ChangesBytesMax, commits: changesCommitsMax, read: changesReadMax}
	reached := continuation{container: c.info.ID}
	for _, number := range r.Scope.Partitions {
		if !slices.ContainsFunc(c.info.Partitions, func(p PartitionInfo) bool { return p.Number == number }) {
			return nil, Refuse(StatusGone, "container %s/%s has no partition %d", c.info.Database, c.info.Name, number)
		}
	}
	// Where the page after this one begins: with the partitions that this one had no room
	// for, or of which nothing could be read any more, so that a busy one does not keep the
	// others away. But a walk that has begun goes on until it is done: its place is long, and
	// so a continuation holds one at most.
	end, turn := true, -1
	for i, from := range c.begin(&r, token) {
		if from == nil {
			return nil, Refuse(StatusBadRequest, "continuation %q is not of the partitions that are asked for: begin anew", r.Continuation)
		}
		at, atEnd, err := page.readPartition(ctx, feed.Partition{Container: c.info.ID, Number: from.number}, *from)
		if err != nil {
			return nil, err
		}
		reached.positions = append(reached.positions, at)
		end = end && atEnd
		switch {
		case turn >= 0:
		case at.walk != nil && at.walk.cursor != nil:
			turn = i
		case page.spent():
			turn = i + 1
		}
	}
	turn = max(turn, 0)
	reached.positions = append(slices.Clone(reached.positions[turn:]), reached.positions[:turn]...)
	result := &ChangesPage{Changes: page.changes, Continuation: reached.String(), End: end}
	for _, p := range reached.positions {
		result.Reached = append(result.Reached, PartitionLSN{p.number, p.after.LSN})
	}
	return result, nil
}

// ofOrigin returns a *feed.TrimmedError in place of err if a continuation is of the
// container that this one was restored from: its changes are in no log any more.
func (c *Container) ofOrigin(continuation string, err error) error {
	if c.info.Origin == nil {
		return err
	}
	token, parseErr := parseContinuation(continuation, c.info.Origin.ID)
	if parseErr != nil || len(token.positions) == 0 {
		return err
	}
	of := token.positions[0]
	return fmt.Errorf("continuation %q is of the container from which this one was restored: begin anew: %w", continuation,
		&feed.TrimmedError{Partition: feed.Partition{Container: c.info.ID, Number: of.number}, Want: of.after.LSN + 1})
}

// partitionsIn returns the numbers of the partitions that hold a scope, in order
// of their ranges.
func (c *Container) partitionsIn(s *ChangeScope) []uint32 {
	var numbers []uint32
	for _, p := range c.info.Partitions {
		switch {
		case s.Partitions != nil && !slices.Contains(s.Partitions, p.Number):
		case !s.Key.IsZero() && c.info.number(s.Key) != p.Number:
		case s.Range != (feed.Range{}) && (s.Range.Max <= p.Range.Min || s.Range.Min >= p.Range.Max):
		default:
			numbers = append(numbers, p.Number)
		}
	}
	return numbers
}

// begin returns where a request begins in each partition of its scope, in the order
// of the continuation if there is one; nil for one that the continuation lacks.
func (c *Container) begin(r *ChangesRequest, token *continuation) []*partitionPosition {
	numbers := c.partitionsIn(&r.Scope)
	from := make([]*partitionPosition, 0, len(numbers))
	if r.Continuation == "" {
		for _, number := range numbers {
			from = append(from, &partitionPosition{number: number})
		}
		return from
	}
	for i := range token.positions {
		if slices.Contains(numbers, token.positions[i].number) {
			from = append(from, &token.positions[i])
		}
	}
	return from[:len(numbers):len(numbers)]
}

// covers reports whether all of a partition's keys are in the scope.
func (s *ChangeScope) covers(r feed.Range) bool {
	return s.Key.IsZero() && (s.Range == feed.Range{} || s.Range.Min <= r.Min && r.Max <= s.Range.Max)
}

// holds reports whether a key is in the scope.
func (s *ChangeScope) holds(key feed.PartitionKey) bool {
	if !s.Key.IsZero() && s.Key != key {
		return false
	}
	return s.Range == feed.Range{} || s.Range.Contains(key.Hash())
}

// changesPage is a page that is being filled.
type changesPage struct {
	ct      *Container
	r       *ChangesRequest
	changes []ItemChange
	room    int // changes that still fit
	bytes   int // bytes of items that still fit
	commits int // that may still be read
	read    int // bytes of logs that may still be read
	full    bool
	// passed, while a walk reads the log, is the item key up to which it has come: changes
	// of items behind it are left out.
	passed []byte
}

// readPartition adds the changes behind a place in a partition, and returns how far it
// came and whether that is the end. Where there is no continuation it begins as the request
// says.
func (g *changesPage) readPartition(ctx context.Context, p feed.Partition, at partitionPosition) (partitionPosition, bool, error) {
	log, err := g.ct.client.logs.open(ctx, g.ct.client.catalog, p)
	if err != nil {
		return at, false, err
	}
	if g.r.Continuation == "" {
		if err := g.start(ctx, log, &at); err != nil {
			return at, false, g.ct.client.logs.readError(p, err)
		}
	}
	for again := false; ; again = true {
		begun := len(g.changes)
		reached, end, err := g.readFrom(ctx, p, log, at)
		if _, trimmed := errors.AsType[*feed.TrimmedError](err); !trimmed || g.r.AllVersions || again {
			return reached, end, err
		}
		// The log was trimmed between the look at its beginning and the reading of it. The
		// next look sees that.
		if len(g.changes) > begun {
			return reached, false, nil
		}
		at = reached
	}
}

// start sets the place where a request without a continuation begins in a partition.
func (g *changesPage) start(ctx context.Context, log *feed.Log, at *partitionPosition) (err error) {
	at.after, err = log.Resolve(ctx, g.r.Start)
	if _, trimmed := errors.AsType[*feed.TrimmedError](err); !trimmed || g.r.AllVersions {
		return err
	}
	if since, ok := g.r.Start.Time(); ok {
		at.walk = &walkPlace{since: since.UnixMilli()}
	}
	return nil
}

// readFrom adds the changes behind a place in a partition that is known.
func (g *changesPage) readFrom(ctx context.Context, p feed.Partition, log *feed.Log, at partitionPosition) (partitionPosition, bool, error) {
	first, last, err := log.Bounds(ctx)
	switch {
	case err != nil:
		return at, false, g.ct.client.logs.readError(p, err)
	case at.known() > last:
		return at, false, Refuse(StatusBadRequest, "the change feed of %s ends at LSN %d and the continuation says %d: begin anew", p, last, at.known())
	case at.walk != nil && g.r.AllVersions:
		return at, false, Refuse(StatusBadRequest, "the continuation is one of latest versions: begin anew")
	case nextLSN(at.after) < first && g.r.AllVersions:
		return at, false, g.ct.client.logs.readError(p, &feed.TrimmedError{Partition: p, Want: nextLSN(at.after), First: first})
	case g.spent():
		return at, at.walk == nil && reached(at.after, last), nil
	}
	walk, err := g.mustWalk(ctx, log, &at, first)
	if err != nil {
		return at, false, g.ct.client.logs.readError(p, err)
	}
	if walk {
		at = at.again()
	}
	if at.walk != nil {
		if at, err = g.readWalk(ctx, p, log, at, last); err != nil || at.walk != nil {
			return at, false, err
		}
	}
	at.after, err = g.readLog(ctx, p, log, at.after, last)
	return at, err == nil && reached(at.after, last), err
}

// readLog adds the changes that a log says behind a position and up to an LSN, and returns
// how far it came.
func (g *changesPage) readLog(ctx context.Context, p feed.Partition, log *feed.Log, after feed.Position, upTo feed.LSN) (feed.Position, error) {
	chunk := min(max(g.room, chunkCommitsMin), chunkCommitsMax)
	for !g.full && g.room > 0 && g.commits > 0 && g.read > 0 && !reached(after, upTo) {
		commits, err := log.ReadPage(ctx, nextLSN(after), min(chunk, g.commits), min(chunkBytesMax, g.read))
		if err != nil {
			return after, g.ct.client.logs.readError(p, err)
		}
		commits = slices.DeleteFunc(commits, func(c *feed.Commit) bool { return c.LSN > upTo })
		if len(commits) == 0 {
			break // who answered lags behind
		}
		if after, err = g.addCommits(ctx, p, commits, after); err != nil {
			return after, err
		}
		chunk = min(2*chunk, chunkCommitsMax)
	}
	return after, nil
}

// nextLSN is the first commit of which a reader after a position needs something.
// The position (n, i) with i above zero is behind the first i changes of commit n;
// (n, 0) is behind all of commit n.
func nextLSN(after feed.Position) feed.LSN {
	if after.Index > 0 {
		return after.LSN
	}
	return after.LSN + 1
}

func reached(after feed.Position, last feed.LSN) bool { return nextLSN(after) > last }

// addCommits puts what commits have for the page into it, as far as there is room, and
// returns the position reached.
func (g *changesPage) addCommits(ctx context.Context, p feed.Partition, commits []*feed.Commit, after feed.Position) (feed.Position, error) {
	groups := g.changesIn(p, commits, after)
	if err := g.awaitApplied(ctx, p, groups); err != nil {
		return after, err
	}
	for i := range groups {
		group := &groups[i]
		size := 0
		for j := range group.changes {
			size += len(group.changes[j].Item.Body)
		}
		if n := len(group.changes); n > 0 && len(g.changes) > 0 && (n > g.room || size > g.bytes) {
			g.full = true
			return after, nil
		}
		g.changes = append(g.changes, group.changes...)
		g.room -= len(group.changes)
		g.bytes -= size
		after = group.end
		if g.room <= 0 && len(group.changes) > 0 {
			g.full = true
			return after, nil
		}
	}
	return after, nil
}

// changeGroup are changes that a page has all of or none.
type changeGroup struct {
	changes []ItemChange
	end     feed.Position // behind them, as a continuation says it
}

// changesIn returns the changes in scope, group by group, and counts what was read.
func (g *changesPage) changesIn(p feed.Partition, commits []*feed.Commit, after feed.Position) []changeGroup {
	all := g.r.Scope.covers(g.ct.info.rangeOf(p.Number))
	var groups []changeGroup
	for _, c := range commits {
		g.commits--
		g.read -= c.SizeMax()
		total, index := uint32(c.ChangeCount()), uint32(0)
		for i := range c.Transactions {
			t := &c.Transactions[i]
			// A client's transaction is one group. Each change that a pipeline has made is one by
			// itself: a page of a fan-out may be larger than a page of changes.
			split := t.Effect != nil
			group := changeGroup{}
			for j := range t.Changes {
				at := feed.Position{LSN: c.LSN, Index: index}
				index++
				change := &t.Changes[j]
				seen := c.LSN == after.LSN && after.Index > 0 && at.Index < after.Index
				gone := change.Op == feed.OpDelete || change.Op == feed.OpExpire
				if !seen && (g.r.AllVersions || !gone) && (all || g.r.Scope.holds(change.Key)) && g.hasPassed(change) {
					group.changes = append(group.changes, newItemChange(c, change, at))
				}
				if split && len(group.changes) > 0 {
					group.end = feed.Position{LSN: c.LSN, Index: index}
					groups, group = append(groups, group), changeGroup{}
				}
			}
			group.end = feed.Position{LSN: c.LSN, Index: index}
			groups = append(groups, group)
		}
		// Behind the last change of a commit is behind the commit, which has one form: a
		// commit of three changes ends at (17, 0), not at (17, 3).
		for i := len(groups) - 1; i >= 0 && groups[i].end == (feed.Position{LSN: c.LSN, Index: total}); i-- {
			groups[i].end.Index = 0
		}
		if len(c.Transactions) == 0 {
			groups = append(groups, changeGroup{end: feed.Position{LSN: c.LSN}})
		}
	}
	return groups
}

func newItemChange(c *feed.Commit, change *feed.Change, at feed.Position) ItemChange {
	return ItemChange{
		Op: change.Op, Time: c.Time, Previous: ETag(change.Prev),
		Item: Item{
			Key: change.Key, ID: change.ID, Body: change.After, ETag: ETag(at), Modified: change.Modified, Written: change.Written,
		},
	}
}

// awaitApplied waits until the partition's owner has applied what the log shows. With
// latest versions it leaves out of the groups, and of what the page has already,
// the changes that are not an item's last.
func (g *changesPage) awaitApplied(ctx context.Context, p feed.Partition, groups []changeGroup) error {
	var refs []ItemRef
	at := map[ItemRef]int{}
	some := false
	for i := range groups {
		for j := range groups[i].changes {
			some = true
			ref := groups[i].changes[j].ref()
			if _, ok := at[ref]; !ok && !g.r.AllVersions {
				at[ref] = len(refs)
				refs = append(refs, ref)
			}
		}
	}
	// With all versions no etag is asked for, and the request still waits until the owner
	// has applied what the log shows: who reads an item after its change must not read the
	// one before.
	versions := make([]ETag, 0, len(refs))
	for ask := some; ask; ask = len(versions) < len(refs) {
		part := refs[len(versions):min(len(versions)+ReadManyMax, len(refs))]
		resp, err := g.ct.Do(ctx, &Request{Partition: p, Versions: &ReadVersions{Refs: part}})
		if err != nil {
			return fmt.Errorf("changes of %s: %w", p, err)
		}
		versions = append(versions, resp.Versions...)
	}
	superseded := func(c ItemChange) bool {
		i, ok := at[c.ref()]
		return ok && versions[i] != c.Item.ETag
	}
	for i := range groups {
		groups[i].changes = slices.DeleteFunc(groups[i].changes, superseded)
	}
	before := len(g.changes)
	g.changes = slices.DeleteFunc(g.changes, superseded)
	g.room += before - len(g.changes)
	return nil
}

func (c *ItemChange) ref() ItemRef { return ItemRef{Key: c.Item.Key, ID: c.Item.ID} }

// rangeOf returns the range of a partition of the container.
func (i *ContainerInfo) rangeOf(number uint32) feed.Range {
	for _, p := range i.Partitions {
		if p.Number == number {
			return p.Range
		}
	}
	return feed.Range{}
}
