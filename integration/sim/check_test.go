package sim

import (
	"context"
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// version is an item as it was from one commit to the next that changed it.
type version struct {
	etag store.ETag
	at   time.Time // when the log took it
	body string    // "" if the item was gone
}

// ledger is what the logs of a container say, read by a hand that is not the product's: the
// items of each moment, and where clients' tags were written.
type ledger struct {
	versions map[string][]version
	tags     map[string][]feed.Position
}

// thing is what is known of an item.
type thing struct {
	Tag     string
	Cat     string
	CatName *string
	N       int
	Count   *int
	Sum     *int
}

func parseThing(body string) (t thing, err error) {
	if body != "" {
		err = json.Unmarshal([]byte(body), &t)
	}
	return t, err
}

// judge compares what was promised with what the logs hold.
func (w *world) judge() {
	ledgers := map[string]*ledger{}
	for i, info := range w.roots {
		l := &ledger{versions: map[string][]version{}, tags: map[string][]feed.Position{}}
		ledgers[info.Name] = l
		var leaves []lineage
		for _, p := range info.Partitions {
			leaves = append(leaves, w.judgeLine(l, nil, &strand{id: feed.Partition{Container: info.ID, Number: p.Number}, info: p, first: 1})...)
		}
		w.judgeCatalog(&w.containers[i], leaves)
		for _, l := range leaves {
			w.judgeDigests(l)
			if w.plan.Standbys && len(l) == 1 {
				w.replayed(l) // with what was told of it
			}
		}
	}
	for _, c := range w.calls {
		w.judgeCall(ledgers[c.container], c)
	}
	if w.plan.Pipelines > 0 {
		w.judgeGenerations()
		w.judgeCopies(ledgers["things"], ledgers["cats"])
	}
}

// read reads all that the last log of a line ever held, and returns its trim point. Its commits have to follow
// each other, and each change the one before of its item.
func (w *world) read(l *ledger, all lineage) feed.LSN {
	s := all.last()
	before := w.begins(all)
	for i, m := range s.st.history {
		c, err := feed.DecodeCommit(m.data)
		if err != nil || m.seq != s.st.born+uint64(i) {
			w.failf("I4: commit %d of the log of %s: sequence %d, %v", i+1, s.id, m.seq, err)
			return before.Trimmed
		}
		c.LSN = feed.LSN(m.seq)
		if c.Prev != before.Sum || c.Time < before.Time || c.Trimmed < before.Trimmed || c.Trimmed >= c.LSN || c.Epoch < before.Epoch {
			w.failf("I1: commit %s (epoch %d of %s, trimmed %s) does not follow %s (epoch %d of %s, trimmed %s)",
				c.LSN, c.Epoch, c.Owner, c.Trimmed, before.LSN, before.Epoch, before.Owner, before.Trimmed)
		}
		w.judgeSplitCommit(s, c)
		s.commits = append(s.commits, c)
		before = *c
		index := uint32(0)
		for i := range c.Transactions {
			for j := range c.Transactions[i].Changes {
				change := &c.Transactions[i].Changes[j]
				if !s.info.Range.Contains(keyOf(change.ID).Hash()) {
					w.failf("%s with %s has a change of %s", s.id, s.info.Range, change.ID)
				}
				w.follow(l, change, feed.Position{LSN: c.LSN, Index: index}, m.at)
				index++
			}
		}
	}
	return before.Trimmed
}

// follow takes one change into the ledger.
func (w *world) follow(l *ledger, c *feed.Change, at feed.Position, stored time.Time) {
	all := l.versions[c.ID]
	was := version{}
	if len(all) > 0 {
		was = all[len(all)-1]
	}
	before, err := c.BeforeBody()
	if err != nil || string(before) != was.body || was.body != "" && c.Prev != feed.Position(was.etag) {
		w.failf("the change of %s at %v replaces %s as of %v, and the one before left %s as of %v: %v", c.ID, at, before, c.Prev, was.body, was.etag, err)
	}
	if (c.Op == feed.OpCreate) != (was.body == "") {
		w.failf("the change of %s at %v is a %s, and the one before left %q", c.ID, at, c.Op, was.body)
	}
	l.versions[c.ID] = append(all, version{store.ETag(at), stored, string(c.After)})
	is, err := parseThing(string(c.After))
	if err != nil {
		w.failf("the change at %v: %v", at, err)
	}
	// What a pipeline writes keeps the tag.
	if old, _ := parseThing(was.body); c.After != nil && is.Tag != old.Tag {
		l.tags[is.Tag] = append(l.tags[is.Tag], at)
	}
}

// judgeTrim looks whether what is gone from a log was allowed to go.
func (w *world) judgeTrim(st *stream, point feed.LSN) {
	if first := feed.LSN(st.first); first > point+1 {
		w.failf("the log begins at %s, and its last commit allows %s to be gone", first, point)
	}
	if n := uint64(len(st.msgs)); n != st.last-st.first+1 {
		w.failf("the log holds %d commits from %d to %d", n, st.first, st.last)
	}
}

// judgeCall compares one call with the log.
func (w *world) judgeCall(l *ledger, c *call) {
	written := l.tags[c.tag]
	switch {
	case c.tag == "":
	case len(written) > 1:
		w.failf("written %d times, at %v: %s", len(written), written, c)
	case c.outcome == refused && len(written) > 0:
		w.failf("refused, and the log has it at %v: %s", written, c)
	case c.outcome == acknowledged && c.kind != store.OpDelete && len(written) == 0:
		w.failf("I2: acknowledged, and not in the log: %s", c)
	case c.outcome == acknowledged && c.kind != store.OpDelete && written[0] != feed.Position(c.etag):
		w.failf("acknowledged with etag %v, and the log has it at %v: %s", c.etag, written[0], c)
	}
	if c.ended == 0 {
		w.failf("never ended: %s", c)
		return
	}
	holds := w.expected(c)
	if holds == nil {
		return
	}
	// The answer must be true of some moment between the end of every call that had ended
	// when this one began, and its own end.
	lower := w.known(c)
	all := append([]version{{}}, l.versions[c.item]...)
	for i, v := range all {
		if i+1 < len(all) && all[i+1].etag.LSN <= lower || v.at.After(c.endedAt) {
			continue
		}
		if holds(v) {
			if c.stale != "" && i+1 < len(all) && all[i+1].at.Before(c.beganAt) && c.kind == store.OpRead {
				w.old++
			}
			return
		}
	}
	w.failf("no state of the item from LSN %s on explains: %s; its versions: %+v", lower, c, all)
}

// related says whether a call told of a log of which the other's item has its states too: of the same partition, or of
// one that was made of it, or the other way round. LSNs of children are greater, so that they compare.
func (w *world) related(told, c *call) bool {
	if told.container != c.container {
		return false
	}
	within, ok := w.ranges[told.partition]
	return ok && within.Contains(keyOf(c.item).Hash())
}

// known is the LSN up to which calls had told of the log when c began.
func (w *world) known(c *call) (lower feed.LSN) {
	for _, other := range w.calls {
		if !w.related(other, c) || other.ended >= c.began {
			continue
		}
		switch {
		case c.stale == eventual: // may have forgotten all
		case c.stale == inSession && other.client == c.client && other.stale != eventual:
			lower = max(lower, other.told())
		case c.stale == "" && other.stale == "" && other.outcome == acknowledged:
			// What a standby has answered may be in the log, and not be applied by the owner yet.
			lower = max(lower, other.etag.LSN)
		}
	}
	return lower
}

// expected tells of which version of the item the answer to a call is true; nil if of all.
func (w *world) expected(c *call) func(version) bool {
	there := func(v version) bool { return v.body != "" }
	gone := func(v version) bool { return v.body == "" }
	switch {
	case c.outcome == acknowledged && c.kind == store.OpRead:
		return func(v version) bool { return v.body == c.body && v.etag == c.etag }
	case c.outcome == acknowledged && c.kind != store.OpDelete:
		return func(v version) bool { return v.etag == c.etag }
	case c.status == store.StatusConflict:
		return there
	case c.status == store.StatusNotFound:
		return gone
	case c.status == store.StatusPreconditionFailed:
		return func(v version) bool { return v.body == "" || v.etag != c.ifMatch }
	}
	return nil
}

// judgeDigests compares what one gets by replaying a log from its very beginning with what
// one gets from the newest snapshot and the log behind it (I3). The beginning of a child is that of its root.
func (w *world) judgeDigests(all lineage) {
	id := all.last().id
	var whole uint64
	var lsnWhole feed.LSN
	if len(all) > 1 {
		whole, lsnWhole = w.replayed(all)
		lsnWhole++ // the takeover commit of the node that opens it below
	} else {
		whole, lsnWhole = w.rebuilt("whole", id, true)
	}
	tail, lsnTail := w.rebuilt("tail", id, false)
	if whole != tail || lsnWhole != lsnTail {
		w.failf("I3: replay of %s from the beginning gives %x at %s, snapshot and tail %x at %s", id, whole, lsnWhole, tail, lsnTail)
	}
}

// rebuilt lets a new node open the partition as the log tells it, and returns the digest of
// its engine.
func (w *world) rebuilt(name string, id feed.Partition, whole bool) (digest uint64, lsn feed.LSN) {
	other := &world{plan: w.plan, dir: w.dir, containers: w.containers, net: w.net, server: w.server.fork(whole)}
	other.plan.Pipelines, other.plan.Splits, other.plan.Timeout, other.plan.Standbys = 0, nil, 0, false
	n := &node{w: other, name: name, dir: filepath.Join(w.dir, name+"-"+id.Stream())}
	n.start()
	nc, js := connect(other.server.host("reader"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, ct := range other.open(ctx, nc, js).containers {
		if ct.Info().ID != id.Container {
			continue
		}
		if _, err := ct.Count(ctx, id, store.Scope{}); err != nil {
			w.failf("%s cannot be opened: %v", name, err)
		}
	}
	nc.Close()
	p := must(n.run.db.Partition(id))
	digest = must(p.Digest())
	lsn = must(p.State()).Applied
	n.stop()
	other.wg.Wait()
	return digest, lsn
}

// measure tells what a run was about, with mu held.
func (w *world) measure(r *counts) {
	r.Seeds = 1
	for _, st := range w.server.logs() {
		r.Commits, r.Trimmed = r.Commits+len(st.history), r.Trimmed+st.first-st.born
		if n := len(st.history); n > 0 {
			if c, err := feed.DecodeCommit(st.history[n-1].data); err == nil {
				r.Epochs += c.Epoch
				if is, err := feed.SplitOf(c); err == nil && is != nil {
					if r.Splits++; st.born > 1 {
						r.Again++
					}
				}
			}
		}
	}
	w.measureWalks(r)
	r.Told, r.Compared, r.Old = w.told, w.compared, w.old
	for _, c := range w.calls {
		if c.outcome == acknowledged {
			r.Acks++
		}
		if c.outcome == unknown {
			r.Unknown++
		}
	}
}
