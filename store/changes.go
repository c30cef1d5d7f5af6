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
// Partitions may be split between two pages, or while one is read: a continuation holds on, and each key's changes come in
// order, none missed and none twice (changeslineage.go). A request from the beginning has what the logs of former partitions
// say first. With a continuation of a partition that was split, the scope may name its children.
//
// The error is 400 if the continuation is not one, is of another container or of
// other partitions than the scope, or if a log does not hold what comes behind it;
// 410 if the scope names a partition that the container has not. That is a *SplitError of one that was split, also while its
// log is there: as with Azure Cosmos DB, who names a partition asks for the ranges again, and then each child with the
// continuation that it has. It is *feed.TrimmedError if the continuation is of the container that this one was restored from,
// or with AllVersions of a partition that was split and whose log is deleted. Parts of a scope
// that have nothing in common have no changes.
func (c *Container) Changes(ctx context.Context, r ChangesRequest) (*ChangesPage, error) {
	info := c.present()
	token, err := parseContinuation(r.Continuation, info.ID)
	if err != nil {
		return nil, c.ofOrigin(r.Continuation, err)
	}
	itemsMax := ChangesMax
	if r.ItemsMax > 0 {
		itemsMax = min(r.ItemsMax, ChangesMax)
	}
	page := &changesPage{ct: c, info: info, r: &r, room: itemsMax, bytes: ChangesBytesMax, commits: changesCommitsMax, read: changesReadMax}
	ahead, err := page.begin(ctx, token)
	if err != nil {
		return nil, err
	}
	reached := continuation{container: info.ID}
	// Where the page after this one begins: with the partitions that this one had no room
	// for, or of which nothing could be read any more, so that a busy one does not keep the
	// others away. But a walk that has begun goes on until it is done: its place is long, and
	// so a continuation holds one at most.
	end, turn := true, -1
	for len(ahead) > 0 {
		at, heirs, atEnd, err := page.readStretch(ctx, ahead[0])
		if err != nil {
			return nil, err
		}
		if ahead = ahead[1:]; heirs != nil {
			if ahead = append(heirs, ahead...); turn < 0 && page.spent() {
				turn = len(reached.positions)
			}
			continue
		}
		reached.positions = append(reached.positions, at.partitionPosition)
		end = end && atEnd
		switch {
		case turn >= 0:
		case at.walk != nil && at.walk.cursor != nil:
			turn = len(reached.positions) - 1
		case page.spent():
			turn = len(reached.positions)
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
	info := c.present()
	if info.Origin == nil {
		return err
	}
	token, parseErr := parseContinuation(continuation, info.Origin.ID)
	if parseErr != nil || len(token.positions) == 0 {
		return err
	}
	of := token.positions[0]
	return fmt.Errorf("continuation %q is of the container from which this one was restored: begin anew: %w", continuation,
		&feed.TrimmedError{Partition: feed.Partition{Container: info.ID, Number: of.number}, Want: of.after.LSN + 1})
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
	info    *ContainerInfo
	scope   []PartitionInfo // those of info that hold the scope
	r       *ChangesRequest
	changes []ItemChange
	room    int // changes that still fit
	bytes   int // bytes of items that still fit
	commits int // that may still be read
	read    int // bytes of logs that may still be read
	full    bool
	whole   bool // all of the partition that is being read is in the scope
	// passed, while a walk reads the log, is the item key up to which it has come: changes
	// of items behind it are left out.
	passed []byte
}

// readPartition adds the changes that a partition's log has behind a place, and returns how far it
// came and whether that is the end. Where there is no continuation it begins as the request
// says. Of a partition that was split, a walk is only taken to the end of the log.
func (g *changesPage) readPartition(ctx context.Context, s stretch) (stretch, bool, error) {
	p := feed.Partition{Container: g.info.ID, Number: s.number}
	log, err := g.ct.client.logs.open(ctx, g.ct.client.catalog, p)
	if err != nil {
		return s, false, err
	}
	if s.unresolved {
		if err := g.start(ctx, log, &s); err != nil {
			return s, false, g.ct.client.logs.readError(p, err)
		}
		s.unresolved = false
	}
	g.whole = g.r.Scope.covers(s.span) && (g.r.Scope.Partitions == nil || g.info.has(s.number))
	for again := false; ; again = true {
		begun := len(g.changes)
		reached, end, err := g.readFrom(ctx, p, log, s.partitionPosition)
		s.partitionPosition = reached
		if _, trimmed := errors.AsType[*feed.TrimmedError](err); !trimmed || g.r.AllVersions || again {
			return s, end, err
		}
		// The log was trimmed between the look at its beginning and the reading of it. The
		// next look sees that.
		if len(g.changes) > begun {
			return s, false, nil
		}
	}
}

// start sets the place where a request without a continuation begins in a partition.
func (g *changesPage) start(ctx context.Context, log *feed.Log, s *stretch) (err error) {
	s.after, err = log.Resolve(ctx, g.r.Start)
	if s.born > 0 {
		trimmed, ok := errors.AsType[*feed.TrimmedError](err)
		if ok && trimmed.First <= s.born {
			err = nil // what it lacks is what was before its partition
		}
		s.after.LSN = max(s.after.LSN, s.born-1)
	}
	if _, trimmed := errors.AsType[*feed.TrimmedError](err); !trimmed || g.r.AllVersions {
		return err
	}
	if since, ok := g.r.Start.Time(); ok {
		s.walk = &walkPlace{since: since.UnixMilli()}
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
		g.ct.client.logs.note(p, commits[len(commits)-1])
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
	groups := g.changesIn(commits, after)
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
func (g *changesPage) changesIn(commits []*feed.Commit, after feed.Position) []changeGroup {
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
				if !seen && (g.r.AllVersions || !gone) && (g.whole || g.holds(change.Key)) && g.hasPassed(change) {
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
	versions, err := g.versionsOf(ctx, p, refs, some)
	if err != nil {
		return fmt.Errorf("changes of %s: %w", p, err)
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

// versionsOf returns the ETags of items that a partition's log shows, as their owners have them that have applied what it
// shows.
func (g *changesPage) versionsOf(ctx context.Context, p feed.Partition, refs []ItemRef, some bool) ([]ETag, error) {
	versions := make([]ETag, len(refs))
	if len(refs) > 0 || !some {
		return versions, g.ct.byPartition(ctx, refs, func(ctx context.Context, p feed.Partition, some []ItemRef, at []int) error {
			resp, err := g.ct.Do(ctx, &Request{Partition: p, Versions: &ReadVersions{Refs: some}})
			if err != nil {
				return err
			}
			for i, n := range at {
				versions[n] = resp.Versions[i]
			}
			return nil
		})
	}
	// With all versions no etag is asked for, and the request still waits until the owner
	// has applied what the log shows: who reads an item after its change must not read the
	// one before. The children of a partition that was split have it all from the start.
	_, err := g.ct.Do(ctx, &Request{Partition: p, Versions: &ReadVersions{}})
	if _, split := errors.AsType[*SplitError](err); split {
		err = nil
	}
	return versions, err
}

func (c *ItemChange) ref() ItemRef { return ItemRef{Key: c.Item.Key, ID: c.Item.ID} }
