package processors

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// The container of dead letters, which a Millrace declares for itself.
const (
	DeadLetterDatabase  = store.SystemDatabase
	DeadLetterContainer = "deadLetters"
)

const (
	// deadLetterVersion is in every dead letter; see DEADLETTERS.md.
	deadLetterVersion = 1
	// reasonBytesMax bounds the reason of one dead letter.
	reasonBytesMax = 4 << 10
	deadLetterPage = 200
)

// DeadLetter is a change, or an item that should have followed one, that a
// pipeline gave up. It is an item of the container system/deadLetters, in the
// logical partition of its pipeline.
type DeadLetter struct {
	// ID is the item's: the same for the same change, so that a dead letter written
	// again after a crash is still one. With a Target it is the same for all changes of one
	// Subject, so that there are not as many as there are changes. Write chooses it.
	ID string `json:"id"`
	// Pipeline is the id of the pipeline's incarnation.
	Pipeline   string    `json:"pipeline"`
	Generation uint32    `json:"generation"`
	Role       Role      `json:"role"`
	Partition  string    `json:"partition"` // whose feed was read
	Time       time.Time `json:"time"`
	// Item is the item whose change could not be processed, as store.ItemRef
	// prints; Position is that of the change.
	Item     string        `json:"item"`
	Position feed.Position `json:"-"`
	// Target is the item that refused its copy, or what a sink did not take of a
	// backfill; empty if the change itself could not be processed.
	Target string `json:"target,omitempty"`
	// Subject tells refusals of one Target apart, where a retry of one does not make up for
	// another. Write takes it into the id, and nothing else keeps it. "" stands for Item.
	Subject string `json:"-"`
	// Status is the store's code, 0 if there was none.
	Status int `json:"status,omitempty"`
	// Reason is for people; at most 4 KiB of it are kept.
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts,omitempty"`
	// Trace is the W3C traceparent of the write.
	Trace string `json:"trace,omitempty"`
	// Retry is when an operator asked to try again; zero if nobody did, or if it
	// was tried since.
	Retry time.Time `json:"retry,omitzero"`
	// FinalRetry is when a repair asked to try once more; zero as Retry is. If that fails too,
	// the repair makes up for the change; see Additive.
	FinalRetry time.Time `json:"settle,omitzero"`
	// Change, of a dead letter that is to be written, is the change that was given up, alone
	// in its commit; nil if only a target refused it. It is kept beside the dead letter:
	// those that are listed or got do not have it, ReadChange does.
	Change *feed.Commit `json:"-"`
}

// Asked says whether somebody waits for the dead letter to be tried again.
func (l *DeadLetter) Asked() bool { return !l.Retry.IsZero() || !l.FinalRetry.IsZero() }

// Of says whether l was written by the processor of r.
func (l *DeadLetter) Of(r Resource) bool {
	return l.Pipeline == r.Pipeline && l.Generation == r.Generation && l.Role == r.Role && l.Partition == r.Partition.String()
}

type plainDeadLetter DeadLetter

type deadLetterJSON struct {
	Version int `json:"version"`
	plainDeadLetter
	Position string `json:"position"`
}

// idPrefix is how the ids of all dead letters of a processor begin.
func (l *DeadLetter) idPrefix() string {
	return strings.Join([]string{string(l.Role), strings.ReplaceAll(l.Partition, "/", "."), strconv.FormatUint(uint64(l.Generation), 10), ""}, "-")
}

// deadLetterWriter takes dead letters. DeadLetters is one; tests have others.
type deadLetterWriter interface {
	Write(ctx context.Context, l *DeadLetter) error
}

// DeadLetters is the container of what pipelines gave up. Safe for concurrent use.
type DeadLetters struct {
	client *store.Client

	mu        sync.Mutex
	container *store.Container
}

// OpenDeadLetters declares the container of dead letters if it is not there. It
// needs no owner.
func OpenDeadLetters(ctx context.Context, client *store.Client) (*DeadLetters, error) {
	info, err := client.Catalog().Get(ctx, DeadLetterDatabase, DeadLetterContainer)
	if err == nil && info.State == store.ContainerReady {
		return &DeadLetters{client: client}, nil // for whoever may only read: Create is refused
	}
	spec := store.ContainerSpec{PartitionKey: []string{"/pipeline"}}
	if _, err := client.Catalog().Create(ctx, DeadLetterDatabase, DeadLetterContainer, spec); err != nil {
		return nil, fmt.Errorf("open the dead letters: %w", err)
	}
	return &DeadLetters{client: client}, nil
}

// FindDeadLetters returns the dead letters to those who look after existing ones: it declares
// nothing. Before anything was given up the container may not be there, and reads fail with
// store.ErrNotFound.
func FindDeadLetters(client *store.Client) *DeadLetters { return &DeadLetters{client: client} }

// openContainer returns the container, found once.
func (d *DeadLetters) openContainer(ctx context.Context) (*store.Container, error) {
	d.mu.Lock()
	container := d.container
	d.mu.Unlock()
	if container != nil {
		return container, nil
	}
	// Not under the lock: a catalog that does not answer would hold up every processor, also
	// those whose context ends. Two that look at once find the same.
	container, err := d.client.Container(ctx, DeadLetterDatabase, DeadLetterContainer)
	if err != nil {
		return nil, fmt.Errorf("open the dead letters: %w", err)
	}
	d.mu.Lock()
	d.container = container
	d.mu.Unlock()
	return container, nil
}

// Write stores l durably under its id, and before it the change that it is about, if l has
// it. Where there is a dead letter with that id, as of a Target that refuses once more, that one tells of l
// from then on, and the retry that somebody waits for is one of l.
func (d *DeadLetters) Write(ctx context.Context, l *DeadLetter) error {
	deadLetter := *l
	deadLetter.ID = deadLetter.deadLetterID()
	deadLetter.clipReason()
	if l.Target == "" && l.Change != nil {
		if err := d.writeChange(ctx, &deadLetter); err != nil {
			return err
		}
	}
	return d.createOrPatch(ctx, &deadLetter, deadLetter.givenUpAgain())
}

func (l *DeadLetter) clipReason() {
	if len(l.Reason) > reasonBytesMax {
		l.Reason = strings.ToValidUTF8(l.Reason[:reasonBytesMax], "")
	}
}

func (l *DeadLetter) encode() []byte {
	data, err := json.Marshal(deadLetterJSON{Version: deadLetterVersion, plainDeadLetter: plainDeadLetter(*l), Position: l.Position.String()})
	if err != nil {
		panic(fmt.Sprintf("processors: dead letter %+v cannot be encoded: %v", l, err))
	}
	return data
}

// containerAndKey returns the container and the partition key of a pipeline's dead letters.
func (d *DeadLetters) containerAndKey(ctx context.Context, pipeline string) (*store.Container, feed.PartitionKey, error) {
	c, err := d.openContainer(ctx)
	if err != nil {
		return nil, feed.PartitionKey{}, err
	}
	key, err := feed.NewPartitionKey(pipeline)
	return c, key, err
}

// Get returns one dead letter, as List does. The error is store.ErrNotFound if it is not there.
func (d *DeadLetters) Get(ctx context.Context, pipeline, id string) (*DeadLetter, error) {
	c, key, err := d.containerAndKey(ctx, pipeline)
	if err != nil {
		return nil, err
	}
	item, err := c.Read(ctx, key, id)
	if err != nil {
		return nil, fmt.Errorf("dead letter %s: %w", id, err)
	}
	return readDeadLetter(pipeline, &item), nil
}

// Retry asks the processor that gave a dead letter up to try again. When that has
// succeeded the dead letter is gone; otherwise it tells the new reason.
func (d *DeadLetters) Retry(ctx context.Context, pipeline, id string) error {
	c, key, err := d.containerAndKey(ctx, pipeline)
	if err != nil {
		return err
	}
	if _, err := c.Patch(ctx, key, id, askRetry()); err != nil {
		return fmt.Errorf("retry the dead letter %s: %w", id, err)
	}
	return nil
}

// askRetry is the patch that asks for a retry now.
func askRetry() []document.Op { return []document.Op{setField("/retry", time.Now().UTC())} }

// RetryMany is Retry of up to store.BatchOpsMax dead letters, at once where that can be. One that is
// gone is passed over. An error leaves some asked for.
func (d *DeadLetters) RetryMany(ctx context.Context, pipeline string, ids []string) error {
	c, key, err := d.containerAndKey(ctx, pipeline)
	if err != nil {
		return err
	}
	ops := make([]store.Operation, len(ids))
	for i, id := range ids {
		ops[i] = store.Operation{Kind: store.OpPatch, ID: id, Patch: askRetry()}
	}
	result, err := c.Batch(ctx, key, ops, "")
	if err != nil {
		return fmt.Errorf("retry %d dead letters: %w", len(ids), err)
	}
	if !result.Failed {
		return nil
	}
	// One that is gone, or too large a one, refuses all.
	for _, id := range ids {
		if err := d.Retry(ctx, pipeline, id); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}

// RetryFinally writes l, which has an ID and may be gone, and asks the processor that gave it up to try
// once more. The dead letter is gone then, or tells the new reason. One that is there stays as it is by
// now: since l was read it may tell of a newer refusal, or somebody may have asked for a retry.
func (d *DeadLetters) RetryFinally(ctx context.Context, l *DeadLetter) error {
	deadLetter := *l
	deadLetter.FinalRetry = time.Now().UTC()
	deadLetter.clipReason()
	return d.createOrPatch(ctx, &deadLetter, []document.Op{setField("/settle", deadLetter.FinalRetry)})
}

// CancelFinalRetry takes back what RetryFinally asked for, unless that is done.
func (d *DeadLetters) CancelFinalRetry(ctx context.Context, pipeline, id string) error {
	c, key, err := d.containerAndKey(ctx, pipeline)
	if err != nil {
		return err
	}
	// Removing what is not there is refused with 400: the worker has answered, and wrote the
	// dead letter without it.
	op := document.Op{Kind: document.OpRemove, Path: "/settle"}
	_, err = c.Patch(ctx, key, id, []document.Op{op})
	if refusal, ok := errors.AsType[*store.Error](err); ok && (refusal.Status == store.StatusNotFound || refusal.Status == store.StatusBadRequest) {
		return nil // it was answered meanwhile
	}
	return err
}

// DeadLetterOf returns the dead letter of a change that a processor has parked, as its
// checkpoint tells of it. An operator may have dropped the one that was written.
func DeadLetterOf(r Resource, j *Job) DeadLetter {
	l := DeadLetter{
		Pipeline: r.Pipeline, Generation: r.Generation, Role: r.Role, Partition: r.Partition.String(), Time: time.Now().UTC(),
		Item: j.Source, Position: j.Position, Reason: j.LastError, Attempts: j.Attempts, Trace: j.Trace,
	}
	l.ID = l.deadLetterID()
	return l
}

// Drop forgets a dead letter. What it was about stays undone: verify lists it, and a repair
// makes it right.
func (d *DeadLetters) Drop(ctx context.Context, pipeline, id string) error {
	c, key, err := d.containerAndKey(ctx, pipeline)
	if err != nil {
		return err
	}
	gone := c.Delete(ctx, key, id)
	if gone != nil && !errors.Is(gone, store.ErrNotFound) {
		return fmt.Errorf("drop the dead letter %s: %w", id, gone)
	}
	// Also where the dead letter is not there: a crash of an earlier Drop between the two may
	// have left its change, of up to some MiB.
	if err := d.dropChange(ctx, pipeline, id); err != nil {
		return err
	}
	if gone != nil {
		return fmt.Errorf("drop the dead letter %s: %w", id, gone)
	}
	return nil
}

// ErrDeadLetterNewer says that a dead letter tells of something newer than what somebody has seen of it: its target has
// refused again, or a retry has failed.
var ErrDeadLetterNewer = errors.New("the dead letter was given up anew since it was read")

// DropSeen is Drop of a dead letter as it was listed or got. One that is newer by now stays: ErrDeadLetterNewer.
func (d *DeadLetters) DropSeen(ctx context.Context, l *DeadLetter) error {
	c, key, err := d.containerAndKey(ctx, l.Pipeline)
	if err != nil {
		return err
	}
	for {
		item, err := c.Read(ctx, key, l.ID)
		if err != nil {
			gone := error(nil)
			if errors.Is(err, store.ErrNotFound) {
				gone = d.dropChange(ctx, l.Pipeline, l.ID) // which a crash of an earlier Drop may have left
			}
			return cmp.Or(gone, fmt.Errorf("drop the dead letter %s: %w", l.ID, err))
		}
		if now := readDeadLetter(l.Pipeline, &item); !now.Time.Equal(l.Time) || now.Position != l.Position {
			return fmt.Errorf("drop the dead letter %s: %w", l.ID, ErrDeadLetterNewer)
		}
		err = c.Delete(ctx, key, l.ID, store.WriteOptions{IfMatch: item.ETag})
		refusal, ok := errors.AsType[*store.Error](err)
		switch {
		case err == nil:
			return d.dropChange(ctx, l.Pipeline, l.ID)
		case ok && (refusal.Status == store.StatusPreconditionFailed || refusal.Status == store.StatusNotFound):
			// It is gone, or newer, or somebody has asked for a retry, which makes it no other one: the next look tells.
		default:
			return fmt.Errorf("drop the dead letter %s: %w", l.ID, err)
		}
	}
}

// retryFailed writes that a retry has failed, unless the dead letter is another one by now: while it
// was tried, somebody may have dropped it, or asked once more.
func (d *DeadLetters) retryFailed(ctx context.Context, l *DeadLetter, cause error) error {
	c, key, err := d.containerAndKey(ctx, l.Pipeline)
	if err != nil {
		return err
	}
	item, same, err := readTried(ctx, c, key, l)
	if err != nil || !same {
		return err
	}
	deadLetter := *l
	deadLetter.Retry, deadLetter.FinalRetry = time.Time{}, time.Time{}
	deadLetter.Attempts++
	deadLetter.Reason = cause.Error()
	deadLetter.Status = statusOf(cause)
	deadLetter.Time = time.Now().UTC()
	deadLetter.clipReason()
	_, err = c.Replace(ctx, l.ID, deadLetter.encode(), store.WriteOptions{IfMatch: item.ETag})
	return unlessChanged(err, "write that the dead letter was tried", l.ID)
}

// readTried reads a dead letter that was tried again. It is the same while it is there, asks for
// the retry that was done, and tells of no later refusal, which the retry may have come before.
func readTried(ctx context.Context, c *store.Container, key feed.PartitionKey, l *DeadLetter) (item store.Item, same bool, err error) {
	item, err = c.Read(ctx, key, l.ID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return item, false, nil
	case err != nil:
		return item, false, fmt.Errorf("read the dead letter %s: %w", l.ID, err)
	}
	now := readDeadLetter(l.Pipeline, &item)
	return item, now.Retry.Equal(l.Retry) && now.FinalRetry.Equal(l.FinalRetry) && now.Time.Equal(l.Time), nil
}

// unlessChanged returns an error, but none that says that the dead letter is gone or another one.
func unlessChanged(err error, what, id string) error {
	refusal, ok := errors.AsType[*store.Error](err)
	if err == nil || ok && (refusal.Status == store.StatusPreconditionFailed || refusal.Status == store.StatusNotFound) {
		return nil
	}
	return fmt.Errorf("%s, %s: %w", what, id, err)
}

// dropDone drops a dead letter that is done. It is no error if the dead letter is gone.
func (d *DeadLetters) dropDone(ctx context.Context, l *DeadLetter) error {
	if err := d.Drop(ctx, l.Pipeline, l.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

// dropTried drops a dead letter that was tried again with success, unless it is another one by
// now: the fan-out that the retry began may have been given up again meanwhile, or somebody may
// have asked once more. It is no error if the dead letter is gone.
func (d *DeadLetters) dropTried(ctx context.Context, l *DeadLetter) error {
	c, key, err := d.containerAndKey(ctx, l.Pipeline)
	if err != nil {
		return err
	}
	item, same, err := readTried(ctx, c, key, l)
	switch {
	case err != nil:
		return err
	case item.ETag == store.ETag{}: // gone, and its change may have been left by a crash
		return d.dropChange(ctx, l.Pipeline, l.ID)
	case !same:
		return nil
	}
	err = c.Delete(ctx, key, l.ID, store.WriteOptions{IfMatch: item.ETag})
	if refusal, ok := errors.AsType[*store.Error](err); ok && refusal.Status == store.StatusPreconditionFailed {
		return nil
	}
	if err := unlessChanged(err, "drop the dead letter", l.ID); err != nil {
		return err
	}
	return d.dropChange(ctx, l.Pipeline, l.ID)
}

// readDeadLetter returns the dead letter that an item of a pipeline's holds. An error would
// hide all others of the pipeline for one item, which a later release wrote, or something that
// is no worker. So whoever lists them is told of that item too, and can drop it. No worker takes
// it for one of its own, as it has neither a role nor a partition.
func readDeadLetter(pipeline string, item *store.Item) *DeadLetter {
	l, err := decodeDeadLetter(item.Body)
	if err != nil {
		l = &DeadLetter{Pipeline: pipeline, Time: time.UnixMilli(item.Modified).UTC(), Reason: "this dead letter cannot be read: " + err.Error()}
	}
	l.ID = item.ID
	return l
}

func decodeDeadLetter(data []byte) (*DeadLetter, error) {
	var w deadLetterJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, err
	}
	if w.Version != deadLetterVersion {
		return nil, fmt.Errorf("version %d, this program knows %d", w.Version, deadLetterVersion)
	}
	position, err := feed.ParsePosition(w.Position)
	if err != nil {
		return nil, err
	}
	l := DeadLetter(w.plainDeadLetter)
	l.Position = position
	return &l, nil
}

// DeadLetter records durably that l was given up, and fills in pipeline, partition and
// time. Every new dead letter is made here, but one that was dropped and is owed still
// (DeadLetters.RetryFinally). If a whole change was given up and the Task is to halt, there
// is no dead letter: the term ends, and with it ctx, and the error is *HaltedError.
func (t *Term) DeadLetter(ctx context.Context, l DeadLetter) error {
	if t.halt != nil && l.Target == "" {
		halted := &HaltedError{Resource: t.Resource, Item: l.Item, Position: l.Position, Cause: errors.New(l.Reason)}
		t.halt(halted)
		return halted
	}
	l.Pipeline, l.Generation, l.Role, l.Partition = t.Pipeline, t.Generation, t.Role, t.Partition.String()
	l.Time = time.Now().UTC()
	if err := t.deadLetters.Write(ctx, &l); err != nil {
		return err
	}
	t.wrote.Store(true)
	if err := t.tellLate(ctx); err != nil {
		return err
	}
	countDeadLetter(ctx, t.Resource)
	t.Logger.WarnContext(ctx, "a change cannot be processed; it is in the dead letters",
		slog.String("item", l.Item), slog.String("position", l.Position.String()), slog.String("reason", l.Reason))
	return nil
}
