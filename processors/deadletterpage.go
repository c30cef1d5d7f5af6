package processors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/store"
)

// A pipeline may have any number of dead letters. Nobody holds all of them: whoever wants them in
// another order than that of their ids goes through all, keeps the first page of that order, and
// goes through all again for the next one. So memory has a bound, and time has none:
//
//	list     by when they were given up, the oldest first     Page
//	retry    by where their changes are                       Walk, and the workers themselves
//	drop     as retry
//	forget   by id, in one pass                               Forget

// Bounds of one page of dead letters. An item has some hundred bytes, and some KiB at most unless
// its names are long.
const (
	// DeadLetterPageMax bounds the dead letters of one page.
	DeadLetterPageMax  = 10_000
	deadLetterPageSize = 8 << 20 // bytes of the items of one page
)

// DeadLetterMark is a place among the dead letters of a pipeline, in the order in which they were
// given up: behind the one that it names, which need not be there any more. The zero mark is before
// all of them. It prints as time,id.
type DeadLetterMark struct {
	Time time.Time
	ID   string
}

func (m DeadLetterMark) String() string {
	if m.ID == "" {
		return ""
	}
	return m.Time.UTC().Format(time.RFC3339Nano) + "," + m.ID
}

// ParseDeadLetterMark is the inverse of DeadLetterMark.String.
func ParseDeadLetterMark(text string) (DeadLetterMark, error) {
	if text == "" {
		return DeadLetterMark{}, nil
	}
	at, id, _ := strings.Cut(text, ",")
	when, err := time.Parse(time.RFC3339Nano, at)
	if err != nil || id == "" {
		return DeadLetterMark{}, fmt.Errorf("%q is no place among dead letters: a time, a comma and an id are expected, as a list ends with", text)
	}
	return DeadLetterMark{Time: when, ID: id}, nil
}

func (l *DeadLetter) mark() DeadLetterMark { return DeadLetterMark{Time: l.Time, ID: l.ID} }

func (m DeadLetterMark) compare(n DeadLetterMark) int {
	return cmp.Or(m.Time.Compare(n.Time), strings.Compare(m.ID, n.ID))
}

// byTime orders dead letters by when they were given up last, the oldest first.
func byTime(a, b *DeadLetter) int { return a.mark().compare(b.mark()) }

// byChange orders dead letters as the feed brought their changes. It is that of the changes of each
// item, and a dead letter keeps its place in it, however often it is tried; one whose target refuses a
// later change has the place of that one from then on.
func byChange(a, b *DeadLetter) int {
	return cmp.Or(a.Position.Compare(b.Position), strings.Compare(a.ID, b.ID))
}

// DeadLetterPage is some of a pipeline's dead letters, the oldest first.
type DeadLetterPage struct {
	Letters []DeadLetter
	Total   int            // of the pipeline, as it was gone through
	More    int            // how many of them are behind the page
	Next    DeadLetterMark // where the page behind begins; of no use where More is 0
}

// Page returns dead letters of a pipeline behind a mark, the oldest first: up to limit, and fewer
// where they are large. One that cannot be read is among them with its id, and with a reason that
// says why. It goes through all dead letters of the pipeline, whatever the limit.
//
// One that is tried again without success goes to the end. So page by page it may be seen twice, and
// none that stays where it is is missed.
func (d *DeadLetters) Page(ctx context.Context, pipeline string, after DeadLetterMark, limit int) (*DeadLetterPage, error) {
	page := &DeadLetterPage{}
	first := firstLetters{order: byTime, countMax: limit, bytesMax: deadLetterPageSize}
	err := d.scan(ctx, pipeline, "", deadLetterPage, func(item *store.Item) error {
		page.Total++
		if l := readDeadLetter(pipeline, item); l.mark().compare(after) > 0 {
			first.add(l, len(item.Body))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	page.Letters = first.take()
	if page.More = first.dropped; len(page.Letters) > 0 {
		page.Next = page.Letters[len(page.Letters)-1].mark()
	}
	return page, nil
}

// Each calls each with every dead letter of a pipeline, in the order of their ids.
func (d *DeadLetters) Each(ctx context.Context, pipeline string, each func(*DeadLetter)) error {
	return d.scan(ctx, pipeline, "", deadLetterPage, func(item *store.Item) error {
		each(readDeadLetter(pipeline, item))
		return nil
	})
}

// List is Page from the beginning, where it is enough.
func (d *DeadLetters) List(ctx context.Context, pipeline string, limit int) ([]DeadLetter, error) {
	page, err := d.Page(ctx, pipeline, DeadLetterMark{}, limit)
	if err != nil {
		return nil, err
	}
	return page.Letters, nil
}

// Walk calls each with the dead letters of a pipeline, page by page, in the order of their changes:
// with every one that was there when it began, unless it is dropped or done meanwhile, and with each
// once, also where it is tried again meanwhile and given up for a new reason. One whose target refuses
// another change meanwhile counts as given up since it began: it may be left out, or come twice. all is how many there
// were. It ends at the first error, which is that of the reading or of each; to walk again is safe
// where each is.
func (d *DeadLetters) Walk(ctx context.Context, pipeline string, each func(page []DeadLetter, all int) error) error {
	return d.walk(ctx, pipeline, DeadLetterPageMax, deadLetterPageSize, each)
}

func (d *DeadLetters) walk(ctx context.Context, pipeline string, countMax, bytesMax int, each func(page []DeadLetter, all int) error) error {
	// Those up to until were there when it began; what is given up from then on comes behind it, and
	// so it ends however much that is. The order is not that of time: a dead letter that was asked
	// for and failed again would come once more, for ever if one clock is ahead.
	var after, until *DeadLetter
	for all := 0; ; {
		first := firstLetters{order: byChange, countMax: countMax, bytesMax: bytesMax}
		var last *DeadLetter
		seen := 0
		err := d.scan(ctx, pipeline, "", deadLetterPage, func(item *store.Item) error {
			l := readDeadLetter(pipeline, item)
			seen++
			if last == nil || byChange(last, l) < 0 {
				last = &DeadLetter{ID: l.ID, Position: l.Position}
			}
			if (after == nil || byChange(l, after) > 0) && (until == nil || byChange(l, until) <= 0) {
				first.add(l, len(item.Body))
			}
			return nil
		})
		if err != nil {
			return err
		}
		if until == nil {
			until, all = last, seen
		}
		page := first.take()
		if len(page) == 0 {
			return nil
		}
		after = &DeadLetter{ID: page[len(page)-1].ID, Position: page[len(page)-1].Position}
		if err := each(page, all); err != nil || first.dropped == 0 {
			return err
		}
	}
}

// scan calls each with the items of a logical partition whose ids begin with prefix, in the order of
// their ids. What each deletes is not missed by it.
func (d *DeadLetters) scan(ctx context.Context, pipeline, prefix string, itemsMax int, each func(*store.Item) error) error {
	c, key, err := d.containerAndKey(ctx, pipeline)
	if err != nil {
		return err
	}
	var cursor []byte
	if prefix != "" {
		cursor = store.AppendCursor(nil, key, prefix) // no dead letter has just the prefix for its id
	}
	for {
		page, err := c.Scan(ctx, c.PartitionFor(key), store.Scan{Scope: store.Scope{Key: key}, After: cursor, ItemsMax: itemsMax, Barrier: true})
		if err != nil {
			return fmt.Errorf("read the dead letters of %s: %w", pipeline, err)
		}
		for i := range page.Items {
			if !strings.HasPrefix(page.Items[i].ID, prefix) {
				return nil // all that follow are behind the prefix
			}
			if err := each(&page.Items[i]); err != nil {
				return err
			}
		}
		if cursor = page.Cursor; cursor == nil {
			return nil
		}
	}
}

// firstLetters keeps the first of many dead letters in an order: as many as fit in both bounds, at
// least one, and up to twice as many until it is asked for them.
type firstLetters struct {
	order              func(a, b *DeadLetter) int
	countMax, bytesMax int

	kept    []sizedLetter
	bytes   int
	dropped int // how many more there were
}

type sizedLetter struct {
	*DeadLetter
	bytes int
}

func (f *firstLetters) add(l *DeadLetter, bytes int) {
	f.kept = append(f.kept, sizedLetter{l, bytes})
	if f.bytes += bytes; len(f.kept)/2 > f.countMax || f.bytes/2 > f.bytesMax {
		f.cut()
	}
}

// cut drops what does not fit. Those before one that was dropped only grow more, so what is kept in
// the end is what would fit if all were sorted at once.
func (f *firstLetters) cut() {
	slices.SortFunc(f.kept, func(a, b sizedLetter) int { return f.order(a.DeadLetter, b.DeadLetter) })
	n, bytes := 0, 0
	for n < len(f.kept) && n < f.countMax && (n == 0 || bytes+f.kept[n].bytes <= f.bytesMax) {
		bytes += f.kept[n].bytes
		n++
	}
	f.dropped += len(f.kept) - n
	clear(f.kept[n:])
	f.kept, f.bytes = f.kept[:n], bytes
}

func (f *firstLetters) take() []DeadLetter {
	f.cut()
	letters := make([]DeadLetter, len(f.kept))
	for i := range f.kept {
		letters[i] = *f.kept[i].DeadLetter
	}
	return letters
}

// Forget drops all dead letters of a processor that never runs again, page by page. If it ends early
// the rest is there: call it again.
func (d *DeadLetters) Forget(ctx context.Context, r Resource) error {
	prefix := deadLetterPrefix(r)
	err := d.scan(ctx, r.Pipeline, prefix, deadLetterPage, func(item *store.Item) error {
		if l := readDeadLetter(r.Pipeline, item); l.Of(r) {
			return d.dropDone(ctx, l)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// Also the changes that a crash, or an earlier release that dropped a dead letter, left behind.
	c, key, err := d.containerAndKey(ctx, changesKey(r.Pipeline))
	if err != nil {
		return err
	}
	return d.scan(ctx, changesKey(r.Pipeline), prefix, changesPage, func(item *store.Item) error {
		if err := c.Delete(ctx, key, item.ID); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("forget the changes of dead letters of %s: %w", r.Pipeline, err)
		}
		return nil
	})
}

// changesPage is how many pieces of changes are read at a time where they are forgotten: a page has
// no more bytes than a request may, but most of them are read only for their ids.
const changesPage = 20

// deadLetterPrefix is how the ids of all dead letters of a processor begin.
func deadLetterPrefix(r Resource) string {
	return (&DeadLetter{Generation: r.Generation, Role: r.Role, Partition: r.Partition.String()}).idPrefix()
}

// errFound ends a scan that has found what it looked for.
var errFound = errors.New("found")

// any says whether a processor has dead letters.
func (d *DeadLetters) any(ctx context.Context, r Resource) (bool, error) {
	err := d.scan(ctx, r.Pipeline, deadLetterPrefix(r), 1, func(item *store.Item) error {
		if readDeadLetter(r.Pipeline, item).Of(r) {
			return errFound
		}
		return nil
	})
	switch {
	case errors.Is(err, errFound):
		return true, nil
	case errors.Is(err, store.ErrNotFound):
		return false, nil // nothing was ever given up
	}
	return false, err
}

// retriesAsked returns the dead letters of a processor whose retry was asked for, in the order of
// their changes, as the feed would bring them. There may be more, behind them in that order: they
// are found when these are tried.
func (d *DeadLetters) retriesAsked(ctx context.Context, r Resource) ([]DeadLetter, error) {
	first := firstLetters{order: byChange, countMax: DeadLetterPageMax, bytesMax: deadLetterPageSize}
	err := d.scan(ctx, r.Pipeline, deadLetterPrefix(r), deadLetterPage, func(item *store.Item) error {
		if l := readDeadLetter(r.Pipeline, item); l.Asked() && l.Of(r) {
			first.add(l, len(item.Body))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return first.take(), nil
}
