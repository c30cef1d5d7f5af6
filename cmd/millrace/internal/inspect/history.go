package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

// Bounds of one look at an item's history.
const (
	// HistoryDefault is how many versions are told of unless somebody asks for another number, and
	// HistoryMax the most that are told of at once. Each costs one read of the log at most.
	HistoryDefault = 10
	HistoryMax     = 100
	// historyTime bounds the whole look.
	historyTime = 10 * time.Second
	// seekCommitsMax and seekBytesMax bound what is read of the log to find the last change of an item
	// that is not there; seekChunkMax is how many commits are read between two looks at the bounds.
	seekCommitsMax = 20_000
	seekBytesMax   = 64 << 20
	seekChunkMax   = 512
	seekChunkBytes = 4 << 20
)

// HistoryRequest says which versions of an item are asked for.
type HistoryRequest struct {
	// Versions is how many, at most HistoryMax. Default HistoryDefault.
	Versions int
	// Before asks for versions that are older than a position; zero for the newest.
	Before feed.Position
}

// History are versions of one item, the newest first, as its partition's log tells of them.
type History struct {
	Database  string          `json:"database"`
	Container string          `json:"container"`
	Partition string          `json:"partition"`
	Key       json.RawMessage `json:"partitionKey"`
	ID        string          `json:"id"`
	// Gone says that there was no such item when the newest versions were asked for.
	Gone     bool      `json:"gone,omitempty"`
	Versions []Version `json:"versions"`
	// Ends says why nothing older is told of.
	Ends HistoryEnd `json:"ends"`
	// Before is the position to ask with for what is older; "" if there is nothing to ask for.
	Before string `json:"before,omitempty"`
	// LogBegins is the first commit that the log still has; 0 unless the log was trimmed behind what
	// is told of.
	LogBegins feed.LSN `json:"logBegins,omitempty"`
}

// HistoryEnd says why a History ends where it does.
type HistoryEnd string

// The ends of a History.
const (
	// EndsWithMore: there are older versions than were asked for.
	EndsWithMore HistoryEnd = "more"
	// EndsWithCreate: the oldest version made the item. There may have been one of its name before.
	EndsWithCreate HistoryEnd = "created"
	// EndsWithTrim: what is older was before LogBegins, and the log does not have it any more.
	EndsWithTrim HistoryEnd = "trimmed"
	// EndsWithLog: the log was read to its first commit ever, and tells of nothing older.
	EndsWithLog HistoryEnd = "beginning"
	// EndsWithBounds: as much was read as one look may. Before goes on.
	EndsWithBounds HistoryEnd = "bounds"
)

// History tells of the last versions of an item, from the change at its ETag back by what each change
// says that it replaced. The last change of an item that is not there is looked for in the log, from
// its end back. Both go as far as the log reaches and as one look may: nothing is guessed.
func (i *Inspector) History(ctx context.Context, ct *store.Container, ref store.ItemRef, r HistoryRequest) (*History, error) {
	info, p := ct.Info(), ct.PartitionFor(ref.Key)
	h := &historian{
		ref: ref, partition: p, most: min(max(r.Versions, 0), HistoryMax),
		told: &History{
			Database: info.Database, Container: info.Name, Partition: p.String(), Key: json.RawMessage(ref.Key.String()), ID: ref.ID, Versions: []Version{},
		},
	}
	if h.most == 0 {
		h.most = HistoryDefault
	}
	at, before := feed.Position{}, r.Before
	if before.IsZero() {
		item, err := ct.Read(ctx, ref.Key, ref.ID)
		switch {
		case err == nil:
			at = feed.Position(item.ETag)
		case errors.Is(err, store.ErrNotFound):
			h.told.Gone = true
		default:
			return nil, err
		}
	}
	// Names are a help: without them the ids tell who wrote.
	if records, err := i.cfg.Registry.List(ctx); err == nil {
		h.records = records
	}
	log, err := feed.OpenLog(ctx, i.cfg.JetStream, p, i.cfg.Log)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", p, err)
	}
	defer log.Close()
	h.log = log
	bounded, cancel := context.WithTimeout(ctx, historyTime)
	defer cancel()
	if at.IsZero() {
		at, err = h.seek(bounded, before)
	}
	if err == nil {
		err = h.walk(bounded, at)
	}
	if err != nil && (bounded.Err() == nil || ctx.Err() != nil || h.reached.IsZero()) {
		return nil, fmt.Errorf("history of item %s of %s: %w", ref, info.Name, err)
	}
	if err != nil { // the time of one look is over
		h.end(EndsWithBounds, h.reached)
	}
	return h.told, nil
}

// Says tells in a sentence why nothing older is told of.
func (h *History) Says() string {
	switch h.Ends {
	case EndsWithMore:
		return "There are older versions."
	case EndsWithCreate:
		return "It was made at " + h.Before + "; whether there was an item of this name before, which was deleted, was not looked for."
	case EndsWithTrim:
		return "What is older was before LSN " + h.LogBegins.String() + ", with which the log begins now, and is not kept."
	case EndsWithLog:
		return "The log was read to its first commit, and tells of nothing older."
	case EndsWithBounds:
		return "As much was read as one look may, back to " + h.Before + "."
	}
	panic("inspect: history ends with " + string(h.Ends))
}

// Note tells what is to be known beside the versions; "" if nothing is.
func (h *History) Note() string {
	switch {
	case !h.Gone:
		return ""
	case len(h.Versions) > 0 && h.Versions[0].Bytes > 0:
		return "There is no such item now, and yet the log's last change of it does not remove it: its time to live has passed, or it was written meanwhile."
	}
	return "There is no such item now."
}

// historian goes back through a log and tells of one item.
type historian struct {
	ref       store.ItemRef
	partition feed.Partition
	log       *feed.Log
	records   []registry.Record
	most      int
	told      *History
	// reached is the position before which nothing was looked at yet, and commit what was read last.
	reached feed.Position
	commit  *feed.Commit
}

// end says why nothing older is told of, and where to go on.
func (h *historian) end(ends HistoryEnd, before feed.Position) {
	h.told.Ends = ends
	if !before.IsZero() {
		h.told.Before = before.String()
	}
}

// trimmed ends at the beginning of a log that was trimmed.
func (h *historian) trimmed(first feed.LSN) {
	h.end(EndsWithTrim, feed.Position{})
	h.told.LogBegins = first
}

// behind is the position right behind that of a change.
func behind(at feed.Position) feed.Position { return feed.Position{LSN: at.LSN, Index: at.Index + 1} }

// walk tells of the version at a position and of those that it replaced; of none if at is zero.
func (h *historian) walk(ctx context.Context, at feed.Position) error {
	for !at.IsZero() {
		h.reached = behind(at)
		if len(h.told.Versions) == h.most {
			h.end(EndsWithMore, h.reached)
			return nil
		}
		if h.commit == nil || h.commit.LSN != at.LSN {
			commit, err := h.log.Read(ctx, at.LSN)
			if trimmed, ok := errors.AsType[*feed.TrimmedError](err); ok {
				h.trimmed(trimmed.First)
				return nil
			}
			if err != nil {
				return err
			}
			h.commit = commit
		}
		t, change := changeAt(h.commit, at.Index)
		if change == nil || change.ID != h.ref.ID || change.Key != h.ref.Key {
			return fmt.Errorf("the log of %s has no change of it at %s", h.partition, at)
		}
		v, err := h.version(t, change, at)
		if err != nil {
			return err
		}
		h.told.Versions = append(h.told.Versions, v)
		if change.Prev.IsZero() {
			// A create tells of nothing before it, though an item of that name may have been deleted.
			h.end(EndsWithCreate, at)
		}
		at = change.Prev
	}
	return nil
}

// changeAt returns a change of a commit by its index, which counts through all transactions; nil if
// there is none.
func changeAt(c *feed.Commit, index uint32) (*feed.Transaction, *feed.Change) {
	rest := int(index)
	for i := range c.Transactions {
		t := &c.Transactions[i]
		if rest < len(t.Changes) {
			return t, &t.Changes[rest]
		}
		rest -= len(t.Changes)
	}
	return nil, nil
}

// seek returns the position of the last change of the item before a position, or before the end of the
// log if that is zero. The zero position says that it found none, and why is told.
func (h *historian) seek(ctx context.Context, before feed.Position) (feed.Position, error) {
	first, last, err := h.log.Bounds(ctx)
	if err != nil {
		return feed.Position{}, err
	}
	if before.IsZero() || before.LSN > last {
		before = feed.Position{LSN: last + 1}
	}
	h.reached = before
	from := before.LSN // the commit at which the chunk behind is cut off
	if before.Index == 0 {
		from--
	}
	commits, bytes := 0, 0
	for chunk := 1; from >= first; chunk = min(2*chunk, seekChunkMax) {
		if commits >= seekCommitsMax || bytes >= seekBytesMax {
			h.end(EndsWithBounds, h.reached)
			return feed.Position{}, nil
		}
		begin := max(first, from-min(from, feed.LSN(chunk))+1)
		found, read, err := h.lastIn(ctx, begin, from, before)
		if trimmed, ok := errors.AsType[*feed.TrimmedError](err); ok && trimmed.First > begin {
			first = trimmed.First // it was trimmed meanwhile
			continue
		}
		if err != nil || !found.IsZero() {
			return found, err
		}
		commits += int(from - begin + 1)
		bytes += read
		h.reached = feed.Position{LSN: begin}
		from = begin - 1
	}
	if first > 1 {
		h.trimmed(first)
	} else {
		h.end(EndsWithLog, feed.Position{})
	}
	return feed.Position{}, nil
}

// lastIn looks for the last change of the item in the commits from begin up to end that is before a
// position, and returns how many bytes it read. It keeps the commit of what it finds and no other: a
// chunk of large commits has more than fits into memory.
func (h *historian) lastIn(ctx context.Context, begin, end feed.LSN, before feed.Position) (found feed.Position, read int, err error) {
	for next := begin; next <= end; {
		page, err := h.log.ReadPage(ctx, next, int(end-next)+1, seekChunkBytes)
		if err == nil && len(page) == 0 { // who answered lags behind: the leader does not
			var one *feed.Commit
			one, err = h.log.Read(ctx, next)
			page = []*feed.Commit{one}
		}
		if err != nil {
			return feed.Position{}, read, err
		}
		for _, c := range page {
			read += c.SizeMax()
			if at, ok := h.lastOf(c, before); ok {
				found, h.commit = at, c
			}
		}
		next += feed.LSN(len(page))
	}
	return found, read, nil
}

// lastOf returns the position of the last change of the item in a commit that is before a position.
func (h *historian) lastOf(c *feed.Commit, before feed.Position) (last feed.Position, ok bool) {
	at := feed.Position{LSN: c.LSN}
	for i := range c.Transactions {
		for j := range c.Transactions[i].Changes {
			change := &c.Transactions[i].Changes[j]
			if change.ID == h.ref.ID && change.Key == h.ref.Key && at.Before(before) {
				last, ok = at, true
			}
			at.Index++
		}
	}
	return last, ok
}
