// Package deadletters reads what pipelines gave up, and has it tried again or dropped. The commands
// and the console are two faces of it.
package deadletters

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// ListMax bounds the dead letters of one pipeline that are listed, or acted on, at a time.
const ListMax = 10_000

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

// List returns the dead letters of a pipeline, the oldest first, at most ListMax.
func (d *Desk) List(ctx context.Context, rec *registry.Record) ([]DeadLetter, error) {
	all, err := d.letters.List(ctx, rec.ID, ListMax)
	if _, none := errors.AsType[*store.NoContainerError](err); none {
		return []DeadLetter{}, nil // nothing was given up yet
	}
	if err != nil {
		return nil, err
	}
	views := make([]DeadLetter, len(all))
	for i := range all {
		views[i] = viewOf(rec, &all[i])
	}
	return views, nil
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

// Do does something with dead letters of a pipeline, in the order of ids. One that is gone has been
// tried again by its worker meanwhile, and is passed over. An error says how many came before it;
// to do the same again does no harm.
func (d *Desk) Do(ctx context.Context, rec *registry.Record, act Act, ids []string) error {
	do := d.letters.Retry
	if act == Drop {
		do = d.letters.Drop
	}
	for i, id := range ids {
		if err := do(ctx, rec.ID, id); err != nil && !errors.Is(err, store.ErrNotFound) {
			if len(ids) > 1 {
				return fmt.Errorf("%s, %d of %d done: %w", act, i, len(ids), err)
			}
			return err
		}
	}
	return nil
}

// IDs returns those of dead letters, in their order.
func IDs(letters []DeadLetter) []string {
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
	l, err := d.letters.Get(ctx, rec.ID, id)
	if err != nil {
		return err
	}
	if SeenOf([]DeadLetter{viewOf(rec, l)}).Digest != digest {
		return ErrChanged
	}
	return d.Do(ctx, rec, Drop, []string{id})
}

// DropSeen drops the dead letters that somebody was shown, and no others. Those that were given up
// later stay:
//
//	shown      a 10:00  b 10:05          until 10:05, digest of a, b
//	now        a 10:00  b 10:05  c 10:06   a and b are dropped, c stays
//	           a 10:00  b 10:07            b failed again, for a new reason: ErrChanged
func (d *Desk) DropSeen(ctx context.Context, rec *registry.Record, seen Seen) (int, error) {
	letters, err := d.List(ctx, rec)
	if err != nil {
		return 0, err
	}
	n := 0
	for n < len(letters) && !letters[n].Time.After(seen.Until) {
		n++
	}
	if letters = letters[:n]; SeenOf(letters).Digest != seen.Digest {
		return 0, ErrChanged
	}
	return n, d.Do(ctx, rec, Drop, IDs(letters))
}
