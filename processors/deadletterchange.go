package processors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// A dead letter of a whole change keeps the change. The log may have been trimmed by the
// time somebody asks for a retry, and an item that a generation walks through is in no log
// at all.
//
// The change does not lie in the dead letter itself, but in items beside it, in a logical
// partition of their own, because workers list the dead letters of their pipeline every
// second while they have some, and a change may have 6 MiB:
//
//	names-c7k2x4ab           source-c7k2x4ab.0-1-12.3      the dead letter
//	names-c7k2x4ab/changes   source-c7k2x4ab.0-1-12.3      the first MiB of its change
//	                         source-c7k2x4ab.0-1-12.3-p1   the second
//
// They are written before the dead letter and dropped after it. So a crash between the two
// leaves a change that no dead letter has; forgetting the generation removes it.

// changePieceBytes is how much of an encoded change lies in one item: in base64 it is well
// below store.ItemBytesMax. The log takes a change of store.CommitBytesMax at most, which
// makes six pieces.
const changePieceBytes = 1 << 20

// changePiece is a piece of a change, as DEADLETTERS.md describes it.
type changePiece struct {
	ID       string `json:"id"`
	Pipeline string `json:"pipeline"` // the logical partition
	Version  int    `json:"version"`
	Item     string `json:"item"`
	Position string `json:"position"`
	Pieces   int    `json:"pieces"`
	Commit   []byte `json:"commit"`
}

// changesKey is the value of the logical partition that holds the changes of a pipeline's
// dead letters.
func changesKey(pipeline string) string { return pipeline + "/changes" }

// pieceID is the id of the nth piece of the change of a dead letter.
func pieceID(letter string, n int) string {
	if n == 0 {
		return letter
	}
	return letter + "-p" + strconv.Itoa(n)
}

// commitWith returns a commit that holds one change of a commit and of its transaction
// nothing but what a retry reads. It is at the LSN of the whole one.
func commitWith(c *feed.Commit, t *feed.Transaction, change *feed.Change) *feed.Commit {
	alone := *c
	// Folds are the state of aggregates as they were: nobody reads them again, and they may
	// be larger than the change.
	alone.Transactions = []feed.Transaction{{
		TraceParent: t.TraceParent, TraceState: t.TraceState, Effect: t.Effect, Page: t.Page, Changes: []feed.Change{*change},
	}}
	return &alone
}

// writeChange stores the change of a dead letter durably.
func (d *DeadLetters) writeChange(ctx context.Context, l *DeadLetter) error {
	c, err := d.openContainer(ctx)
	if err != nil {
		return err
	}
	data := feed.AppendCommit(nil, l.Change)
	pieces := (len(data) + changePieceBytes - 1) / changePieceBytes
	for n := range pieces {
		piece := changePiece{
			ID: pieceID(l.ID, n), Pipeline: changesKey(l.Pipeline), Version: deadLetterVersion, Item: l.Item, Position: l.Position.String(),
			Pieces: pieces, Commit: data[n*changePieceBytes : min((n+1)*changePieceBytes, len(data))],
		}
		body, err := json.Marshal(&piece)
		if err != nil {
			return fmt.Errorf("keep the change of %s: %w", l.Item, err)
		}
		if _, err := c.Upsert(ctx, body); err != nil {
			return fmt.Errorf("keep the change of %s: %w", l.Item, err)
		}
	}
	return nil
}

// ReadChange returns the change that a dead letter keeps, as the one change of a commit.
// The error is store.ErrNotFound if it keeps none: it is about a single target, or an
// earlier release wrote it.
func (d *DeadLetters) ReadChange(ctx context.Context, l *DeadLetter) (*feed.Commit, error) {
	c, key, err := d.containerAndKey(ctx, changesKey(l.Pipeline))
	if err != nil {
		return nil, err
	}
	var data []byte
	for n, pieces := 0, 1; n < pieces; n++ {
		item, err := c.Read(ctx, key, pieceID(l.ID, n))
		if err != nil {
			return nil, fmt.Errorf("read the change of the dead letter %s: %w", l.ID, err)
		}
		var piece changePiece
		if err := json.Unmarshal(item.Body, &piece); err != nil {
			return nil, fmt.Errorf("read the change of the dead letter %s: %w", l.ID, err)
		}
		if piece.Version != deadLetterVersion {
			return nil, fmt.Errorf("the change of the dead letter %s has version %d, this program knows %d", l.ID, piece.Version, deadLetterVersion)
		}
		pieces = piece.Pieces
		data = append(data, piece.Commit...)
	}
	// A checksum ends the commit: pieces of two writings that differ are found out.
	commit, err := feed.DecodeCommit(data)
	if err != nil {
		return nil, fmt.Errorf("read the change of the dead letter %s: %w", l.ID, err)
	}
	if n := commit.ChangeCount(); n != 1 || len(commit.Transactions) != 1 {
		return nil, fmt.Errorf("the change of the dead letter %s is %d changes", l.ID, n)
	}
	commit.LSN = l.Position.LSN
	return commit, nil
}

// dropChange drops the change of a dead letter, if it keeps one.
func (d *DeadLetters) dropChange(ctx context.Context, pipeline, letter string) error {
	c, key, err := d.containerAndKey(ctx, changesKey(pipeline))
	if err != nil {
		return err
	}
	item, err := c.Read(ctx, key, letter)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("drop the change of the dead letter %s: %w", letter, err)
	}
	var piece changePiece
	if err := json.Unmarshal(item.Body, &piece); err != nil {
		return fmt.Errorf("drop the change of the dead letter %s: %w", letter, err)
	}
	// The first piece goes last, because it says how many there are.
	for n := piece.Pieces - 1; n >= 0; n-- {
		if err := c.Delete(ctx, key, pieceID(letter, n)); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("drop the change of the dead letter %s: %w", letter, err)
		}
	}
	return nil
}
