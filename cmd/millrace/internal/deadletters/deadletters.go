// Package deadletters reads what pipelines gave up, and has it tried again or dropped. The commands
// and the console are two faces of it.
package deadletters

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// ListMax bounds the dead letters that are listed at a time. Where they are large there are fewer: a
// page of one pipeline's has 8 MiB at most.
const ListMax = processors.DeadLetterPageMax

// DeadLetter is a dead letter as commands print it.
type DeadLetter struct {
	Database string `json:"database"`
	Name     string `json:"pipeline"`
	processors.DeadLetter
	Position string `json:"position"`
	// Change is what was given up, as the dead letter keeps it or the log holds it; only
	// shown of one dead letter.
	Change *inspect.Change `json:"change,omitempty"`
	// Missing says why it cannot be shown.
	Missing string `json:"missing,omitempty"`
}

// Desk is where the dead letters of all pipelines are looked after. Safe for concurrent use.
type Desk struct {
	cfg     inspect.Config
	letters *processors.DeadLetters
}

// Open returns the Desk of a Millrace. It declares nothing.
func Open(cfg *inspect.Config) *Desk {
	return &Desk{cfg: *cfg, letters: processors.FindDeadLetters(cfg.Client)}
}

func viewOf(rec *registry.Record, l *processors.DeadLetter) DeadLetter {
	return DeadLetter{Database: rec.Database, Name: rec.Name, DeadLetter: *l, Position: l.Position.String()}
}

func views(rec *registry.Record, letters []processors.DeadLetter) []DeadLetter {
	all := make([]DeadLetter, len(letters))
	for i := range letters {
		all[i] = viewOf(rec, &letters[i])
	}
	return all
}

// Page is some of the dead letters of a pipeline, the oldest first.
type Page struct {
	Database, Name string
	Letters        []DeadLetter
	Total          int    // of the pipeline
	More           int    // how many of them are behind the page
	After          string // where the page behind begins; "" at the beginning
}

// Page returns up to limit dead letters of a pipeline behind a place that a page before ended with,
// or from the beginning.
func (d *Desk) Page(ctx context.Context, rec *registry.Record, after string, limit int) (*Page, error) {
	mark, err := processors.ParseDeadLetterMark(after)
	if err != nil {
		return nil, err
	}
	page := &Page{Database: rec.Database, Name: rec.Name, Letters: []DeadLetter{}, After: after}
	read, err := d.letters.Page(ctx, rec.ID, mark, limit)
	// The container of dead letters is made with the first one.
	if noneYet(err) {
		return page, nil
	}
	if err != nil {
		return nil, err
	}
	page.Letters = views(rec, read.Letters)
	page.Total, page.More = read.Total, read.More
	if len(read.Letters) > 0 {
		page.After = read.Next.String()
	}
	return page, nil
}

// noneYet tells whether nothing was ever given up.
func noneYet(err error) bool {
	_, none := errors.AsType[*store.NoContainerError](err)
	return none
}

// List returns up to limit dead letters of pipelines, the oldest of the first pipeline first, with
// the page of each pipeline that is cut off there; these pages have no dead letters of their own.
// after is for one pipeline alone.
func (d *Desk) List(ctx context.Context, records []registry.Record, after string, limit int) (all []DeadLetter, cut []Page, err error) {
	all = []DeadLetter{}
	for i := range records {
		// Also when there is no room any more: the page then says how many were left out.
		page, err := d.Page(ctx, &records[i], after, limit-len(all))
		if err != nil {
			return nil, nil, err
		}
		all = append(all, page.Letters...)
		if page.Letters = nil; page.More > 0 {
			cut = append(cut, *page)
		}
	}
	return all, cut, nil
}

// Show returns one dead letter with its change. The error is store.ErrNotFound if it is not there.
func (d *Desk) Show(ctx context.Context, rec *registry.Record, id string) (*DeadLetter, error) {
	l, err := d.letters.Get(ctx, rec.ID, id)
	if err != nil {
		return nil, err
	}
	view := viewOf(rec, l)
	if view.Change, err = d.changeOf(ctx, l); err != nil {
		view.Missing = err.Error()
	}
	return &view, nil
}

// changeOf reads the change of a dead letter: the one that it keeps, else that of the log.
func (d *Desk) changeOf(ctx context.Context, l *processors.DeadLetter) (*inspect.Change, error) {
	partition, err := feed.ParsePartition(l.Partition)
	if err != nil {
		return nil, err
	}
	commit, err := d.letters.ReadChange(ctx, l)
	if err == nil {
		t := &commit.Transactions[0]
		return inspect.NewChange(partition, commit, t, l.Position, &t.Changes[0], true)
	}
	if !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return d.loggedChange(ctx, l, partition)
}

// loggedChange reads the change of a dead letter from the log.
func (d *Desk) loggedChange(ctx context.Context, l *processors.DeadLetter, partition feed.Partition) (*inspect.Change, error) {
	log, err := feed.OpenLog(ctx, d.cfg.JetStream, partition, d.cfg.Log)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	commit, err := log.Read(ctx, l.Position.LSN)
	if errors.Is(err, feed.ErrNotFound) {
		return nil, errors.New("it is not in the log any more, and the dead letter does not keep it")
	}
	if err != nil {
		return nil, err
	}
	// An index counts the changes of a commit, through all of its transactions.
	index := int(l.Position.Index)
	for i := range commit.Transactions {
		t := &commit.Transactions[i]
		if index < len(t.Changes) {
			return inspect.NewChange(partition, commit, t, l.Position, &t.Changes[index], true)
		}
		index -= len(t.Changes)
	}
	return nil, fmt.Errorf("commit %s has no change %d", l.Position.LSN, l.Position.Index)
}

// Act is what can be done with a dead letter.
type Act string

// The acts.
const (
	// Retry asks the worker that gave a change up to try it again, within a second or two.
	Retry Act = "retry"
	// Drop forgets a dead letter. What it was about stays undone until a repair.
	Drop Act = "drop"
)

// TellFunc is told that something was done with a dead letter, the so many-th of all.
type TellFunc func(id string, done, all int)

// Outcome is what came of an act on many dead letters.
type Outcome struct {
	Count int // with how many it was done
	Newer int // how many were to be dropped and were given up anew since they were read: they remain
}

// Retry asks for a retry of one dead letter. One that is gone has been tried again by its worker
// meanwhile, which is no error. Nor is one that was given up anew since somebody has seen it: a retry
// that fails leaves it, so nothing goes that nobody has seen.
func (d *Desk) Retry(ctx context.Context, rec *registry.Record, id string) error {
	return unlessGone(d.letters.Retry(ctx, rec.ID, id))
}

// Drop drops a dead letter as it was read; one that is gone is no error. If it was tried again since, and given
// up for a new reason, or its target has refused again, it stays: ErrChanged.
func (d *Desk) Drop(ctx context.Context, l *DeadLetter) error {
	err := d.letters.DropSeen(ctx, &l.DeadLetter)
	if errors.Is(err, processors.ErrDeadLetterNewer) {
		return ErrChanged
	}
	return unlessGone(err)
}

func unlessGone(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// DoAll does something with all dead letters that a pipeline has now, however many, in the order of
// their changes. An error says how many came before it; to do the same
// again does no harm, and is what is to be done after one. What is dropped is what was there when it was read, a
// page of them at a time.
func (d *Desk) DoAll(ctx context.Context, rec *registry.Record, act Act, tell TellFunc) (Outcome, error) {
	var o Outcome
	of := 0
	err := d.letters.Walk(ctx, rec.ID, func(page []processors.DeadLetter, all int) error {
		of = all
		if act == Drop {
			return d.dropAll(ctx, views(rec, page), all, &o, tell)
		}
		for some := range slices.Chunk(page, store.BatchOpsMax) {
			if err := d.letters.RetryMany(ctx, rec.ID, idsOf(some)); err != nil {
				return err
			}
			for i := range some {
				o.Count++
				tell(some[i].ID, o.Count, max(all, o.Count))
			}
		}
		return nil
	})
	switch {
	case noneYet(err):
		return o, nil
	case err != nil && of > 1:
		return o, fmt.Errorf("%s, %d of %d done: %w", act, o.Count, of, err)
	}
	return o, err
}

// dropAll drops dead letters as they were read, and adds to an outcome what came of it.
func (d *Desk) dropAll(ctx context.Context, letters []DeadLetter, all int, o *Outcome, tell TellFunc) error {
	for i := range letters {
		switch err := d.Drop(ctx, &letters[i]); {
		case errors.Is(err, ErrChanged):
			o.Newer++
		case err != nil:
			return err
		default:
			o.Count++
			tell(letters[i].ID, o.Count, max(all, o.Count))
		}
	}
	return nil
}

func idsOf(letters []processors.DeadLetter) []string {
	ids := make([]string, len(letters))
	for i := range letters {
		ids[i] = letters[i].ID
	}
	return ids
}

// Seen identifies dead letters that somebody was shown.
type Seen struct {
	Until  time.Time // when the last one of them was given up
	Digest string    // of their ids, and when each was given up
}

// SeenOf identifies the dead letters of a list.
func SeenOf(letters []DeadLetter) Seen {
	var s Seen
	digest := sha256.New()
	for i := range letters {
		_, _ = fmt.Fprintf(digest, "%s %d\n", letters[i].ID, letters[i].Time.UnixNano()) // never fails
		s.Until = letters[i].Time
	}
	s.Digest = hex.EncodeToString(digest.Sum(nil))
	return s
}

// ErrChanged says that the dead letters are not those that somebody was shown.
var ErrChanged = errors.New("others are there than were shown: some were tried again meanwhile; look again")

// DropOneSeen drops one dead letter as somebody was shown it. If it was tried again since, and given
// up for a new reason, it stays: ErrChanged.
func (d *Desk) DropOneSeen(ctx context.Context, rec *registry.Record, id, digest string) error {
	read, err := d.letters.Get(ctx, rec.ID, id)
	if err != nil {
		return err
	}
	l := viewOf(rec, read)
	if SeenOf([]DeadLetter{l}).Digest != digest {
		return ErrChanged
	}
	return d.Drop(ctx, &l)
}

// DropSeen drops the dead letters that somebody was shown, and no others. Those that were given up
// later stay:
//
//	shown      a 10:00  b 10:05          until 10:05, digest of a, b
//	now        a 10:00  b 10:05  c 10:06   a and b are dropped, c stays
//	           a 10:00  b 10:07            b failed again, for a new reason: ErrChanged
//
// One that fails again while the others are being dropped stays too, and is counted as newer.
func (d *Desk) DropSeen(ctx context.Context, rec *registry.Record, seen Seen, tell TellFunc) (Outcome, error) {
	var o Outcome
	page, err := d.Page(ctx, rec, "", ListMax)
	if err != nil {
		return o, err
	}
	n, letters := 0, page.Letters
	for n < len(letters) && !letters[n].Time.After(seen.Until) {
		n++
	}
	if SeenOf(letters[:n]).Digest != seen.Digest {
		return o, ErrChanged
	}
	if err := d.dropAll(ctx, letters[:n], n, &o, tell); err != nil {
		return o, fmt.Errorf("%s, %d of %d done: %w", Drop, o.Count, n, err)
	}
	return o, nil
}
