package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/status"
)

// newestRenames is how often the most copied category is renamed: newer names
// overtake the fan-outs of older ones.
const newestRenames = 5

// renameOp gives a category or tag its next name.
func (d *demo) renameOp(m *meta) op {
	return op{id: m.ID, do: func(ctx context.Context) error { return d.renameOnce(ctx, m) }}
}

func (d *demo) renameOnce(ctx context.Context, m *meta) error {
	key, err := feed.NewPartitionKey(m.Type)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s (new %d)", d.original(m), m.revision+1)
	value, err := json.Marshal(name)
	if err != nil {
		return err
	}
	_, err = d.meta.Patch(ctx, key, m.ID, []document.Op{{Kind: document.OpReplace, Path: "/name", Value: value}})
	if err != nil {
		return fmt.Errorf("rename %s %s: %w", m.Type, m.ID, err)
	}
	m.revision++
	m.Name = name
	return nil
}

// original is the name of m without revisions.
func (d *demo) original(m *meta) string {
	if m.revision == 0 {
		return m.Name
	}
	suffix := fmt.Sprintf(" (new %d)", m.revision)
	return m.Name[:len(m.Name)-len(suffix)]
}

// rename renames categories and tags while orders and products are written.
func (d *demo) rename(ctx context.Context) error {
	before, err := d.sample(ctx)
	if err != nil {
		return err
	}
	d.cfg.Screen.Say(append([]string{"", "Before"}, before.lines()...)...)

	renames := d.renames()
	var writes []op
	for _, it := range slices.Concat(d.shop.orders, d.shop.new) {
		writes = append(writes, d.put(it))
	}
	// A product that is written with a category's old name while the category is renamed
	// is the race that a copy must survive. It happens only if renames and writes alternate.
	tape := spread(writes, renames)
	watching, stop := context.WithCancel(ctx)
	defer stop()
	w := &lagWatch{d: d}
	var watcher sync.WaitGroup
	watcher.Go(func() { w.run(watching) })
	base, err := d.countCopies(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	err = d.run(ctx, tape, func(done int) {
		d.cfg.Screen.Live("Rename", fmt.Sprintf("%s of %s writes; %s", format.Count(done), format.Count(len(tape)), w.text()))
	})
	if err != nil {
		return err
	}
	acknowledged := time.Now()
	last, err := d.awaitCopies(ctx, acknowledged, w)
	stop()
	watcher.Wait()
	if err != nil {
		return err
	}
	r := d.report
	r.Renames, r.Writes, r.LagMax = len(renames), len(writes), w.most()
	r.WritesPerSecond = float64(len(tape)) / acknowledged.Sub(began).Seconds()
	r.LastCopySeconds = last.Sub(acknowledged).Seconds()
	// The pipelines' counts are as old as their checkpoints, and copies may be there
	// before the checkpoint that counts them.
	if err := d.awaitCheckpoints(ctx); err != nil {
		return err
	}
	after, err := d.countCopies(ctx)
	if err != nil {
		return err
	}
	r.Copies = after - base
	r.CopiesPerSecond = float64(r.Copies) / last.Sub(began).Seconds()
	d.cfg.Screen.Step("Rename", fmt.Sprintf("%s categories and tags, while %s orders and products were written: %s writes/s",
		format.Count(len(renames)), format.Count(len(writes)), format.Count(int(r.WritesPerSecond))), acknowledged.Sub(began))
	d.cfg.Screen.Step("Follow", fmt.Sprintf("%s copies changed, %s/s; lag at most %s commits; the last copy %s after the last write",
		format.Count(int(r.Copies)), format.Count(int(r.CopiesPerSecond)), format.Count(int(r.LagMax)), short(last.Sub(acknowledged))), last.Sub(acknowledged))
	shown, err := d.sampleOf(ctx, before)
	if err != nil {
		return err
	}
	d.cfg.Screen.Say(append([]string{"", "After"}, shown.lines()...)...)
	d.cfg.Screen.Say("")
	return nil
}

// renames returns the renames in their order: one of each of the most copied categories
// and tags, and newestRenames of the most copied category, evenly among the others.
func (d *demo) renames() []op {
	var ops []op
	categories, tags := d.shop.ofType("category"), d.shop.ofType("tag")
	for i := 0; len(ops) < d.cfg.Renames && (i < len(categories) || i < len(tags)); i++ {
		if i < len(categories) {
			ops = append(ops, d.renameOp(categories[i]))
		}
		if i < len(tags) {
			ops = append(ops, d.renameOp(tags[i]))
		}
	}
	if len(categories) > 0 {
		for i := 1; i < newestRenames; i++ {
			ops = slices.Insert(ops, i*len(ops)/newestRenames, d.renameOp(categories[0]))
		}
	}
	return ops
}

// spread mixes few operations evenly into many:
//
//	many a b c d, few 1: a b 1 c d
func spread(many, few []op) []op {
	all := make([]op, 0, len(many)+len(few))
	for i, at := 0, 0; i < len(few); i++ {
		until := (i + 1) * len(many) / (len(few) + 1)
		all = append(all, many[at:until]...)
		all = append(all, few[i])
		at = until
	}
	return append(all, many[len(few)*len(many)/(len(few)+1):]...)
}

// countCopies returns the number of copies that the pipelines have changed, by their own
// counts.
func (d *demo) countCopies(ctx context.Context) (int64, error) {
	monitor := d.monitor()
	defer monitor.Close()
	status, err := monitor.Read(ctx)
	if err != nil {
		return 0, err
	}
	var n int64
	for i := range status.Pipelines {
		n += status.Pipelines[i].Counts.Copies
	}
	return n, nil
}

// awaitCheckpoints waits until the pipelines' checkpoints say that nothing is left to do,
// and shows no step.
func (d *demo) awaitCheckpoints(ctx context.Context) error {
	quiet := *d
	quiet.cfg.Screen = silent{}
	return quiet.awaitLoaded(ctx)
}

type silent struct{}

func (silent) Step(string, string, time.Duration) {}
func (silent) Live(string, string)                {}
func (silent) Say(...string)                      {}

// awaitCopies compares all products with the names that were written until every
// copy is right, and returns the time at which the comparison began that found no wrong
// one.
func (d *demo) awaitCopies(ctx context.Context, since time.Time, w *lagWatch) (time.Time, error) {
	want := map[string]string{}
	for _, m := range d.shop.metas {
		want[m.ID] = m.Name
	}
	for {
		// The comparison before found a wrong copy, and this one may find none: the last
		// copy came between the two. The beginning of this one is at most one comparison
		// away from that moment, whereas its end would add the time of reading all
		// products to every figure.
		began := time.Now()
		wrong, example, err := d.countWrong(ctx, want)
		if err != nil {
			return began, err
		}
		if wrong == 0 {
			return began, nil
		}
		if time.Since(since) > d.cfg.CopiesTimeout {
			return began, fmt.Errorf("%s copies are still wrong after %s, such as %s", format.Count(wrong), d.cfg.CopiesTimeout, example)
		}
		d.cfg.Screen.Live("Follow", fmt.Sprintf("%s copies to go; %s", format.Count(wrong), w.text()))
	}
}

// countWrong counts the copies that are not as want says.
func (d *demo) countWrong(ctx context.Context, want map[string]string) (n int, example string, err error) {
	err = d.each(ctx, d.products, func(id string, body []byte) error {
		var p product
		if err := json.Unmarshal(body, &p); err != nil {
			return fmt.Errorf("product %s: %w", id, err)
		}
		if name, ok := want[p.CategoryID]; ok && p.CategoryName != name {
			n, example = n+1, fmt.Sprintf("product %s: category %q, not %q", p.ID, p.CategoryName, name)
		}
		for _, tag := range p.Tags {
			if name, ok := want[tag.ID]; ok && tag.Name != name {
				n, example = n+1, fmt.Sprintf("product %s: tag %q, not %q", p.ID, tag.Name, name)
			}
		}
		return nil
	})
	return n, example, err
}

// lagWatch reads the pipelines' lag again and again and keeps its highest.
type lagWatch struct {
	d *demo

	mu   sync.Mutex
	line string
	max  uint64
}

func (w *lagWatch) run(ctx context.Context) {
	monitor := w.d.monitor()
	defer monitor.Close()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if status, err := monitor.Read(ctx); err == nil {
			w.note(status)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *lagWatch) note(status *status.Status) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.max = max(w.max, lagOf(status))
	w.line = lagText(status)
}

func (w *lagWatch) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.line
}

func (w *lagWatch) most() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.max
}
