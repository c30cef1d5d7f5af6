package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// scan verifies one partition of a target, for all pipelines into it. One
// goroutine owns it.
type scan struct {
	run       *verification
	pipelines []*Verified
	target    *store.Container
	partition feed.Partition
	suspects  []Suspect
}

// Suspect is an item whose copies differ from their sources, perhaps because
// something is in flight.
type Suspect struct {
	Pipeline *Verified
	Ref      store.ItemRef
	ETag     store.ETag
	Sources  []Origin // of the copies that differ
}

// Origin is a source as it was when a copy was found to differ from it.
type Origin struct {
	Ref store.ItemRef
	// Passed is what the fan-out must have passed to have seen it so.
	Passed feed.Position
}

// scanAll reads the partition page by page.
func (s *scan) scanAll(ctx context.Context) error {
	var cursor []byte
	for {
		page, err := s.target.Scan(ctx, s.partition, store.Scan{After: cursor, ItemsMax: s.run.cfg.PageItems})
		if err != nil {
			return fmt.Errorf("scan %s of container %s: %w", s.partition, s.target.Info().Name, err)
		}
		for _, p := range s.pipelines {
			if err := s.compareCopies(ctx, p, page.Items); err != nil {
				return err
			}
		}
		// Once for the page: what people see counts items. The results count them for each pipeline.
		s.run.updateProgress(func(p *Progress) { p.Items += int64(len(page.Items)) })
		// Many at once, since all wait for the same checkpoints: one wait serves them.
		if len(s.suspects) >= s.run.cfg.SuspectsMax || page.Cursor == nil {
			if err := s.judgeSuspects(ctx); err != nil {
				return err
			}
		}
		if cursor = page.Cursor; cursor == nil {
			return nil
		}
		if err := s.run.pacer.Pace(ctx); err != nil {
			return err
		}
	}
}

// compareCopies compares the copies of p in items. Items with copies that differ become
// suspects; the others are counted.
func (s *scan) compareCopies(ctx context.Context, p *Verified, items []store.Item) error {
	views, err := s.viewItems(ctx, p, items)
	if err != nil {
		return err
	}
	for i := range views {
		v := &views[i]
		if v.drifts() {
			s.suspects = append(s.suspects, v.suspect())
			s.run.updateProgress(func(p *Progress) { p.Waiting++ })
			continue
		}
		s.run.countJudged(v, "")
	}
	s.run.mu.Lock()
	p.result.Items += int64(len(items))
	s.run.mu.Unlock()
	return nil
}

// view is an item with the verdicts on its copies.
type view struct {
	pipeline *Verified
	item     *store.Item
	refs     []cascade.Reference
	sources  []*cascade.Origin // of refs
	verdicts []cascade.Verdict
	told     bool // of drift, by a repair
}

// viewItems compares items with their sources as they are now.
func (s *scan) viewItems(ctx context.Context, p *Verified, items []store.Item) ([]view, error) {
	views := make([]view, 0, len(items))
	at := map[store.ItemRef]int{}
	var wanted []store.ItemRef
	for i := range items {
		v := view{pipeline: p, item: &items[i]}
		// A suspect that is read again may be gone. It has no copies then, and nothing to be told of.
		if items[i].ETag != (store.ETag{}) {
			v.refs = p.Cascade.Expected(items[i].Body)
		}
		for _, ref := range v.refs {
			if _, known := at[ref.Source]; !known && ref.Possible {
				at[ref.Source] = len(wanted)
				wanted = append(wanted, ref.Source)
			}
		}
		views = append(views, v)
	}
	// Each source once, however many items of the page name it.
	sources, err := p.Cascade.Origins(ctx, wanted)
	if err != nil {
		return nil, fmt.Errorf("pipeline %s: read the sources of items in %s: %w", p.Record.Metadata(), s.partition, err)
	}
	for i := range views {
		v := &views[i]
		for j := range v.refs {
			source := &cascade.Origin{}
			if v.refs[j].Possible {
				source = &sources[at[v.refs[j].Source]]
			}
			verdict := p.Cascade.Compare(&v.refs[j], source, v.item.Modified)
			v.sources, v.verdicts = append(v.sources, source), append(v.verdicts, verdict)
		}
	}
	return views, nil
}

// drifts says whether a copy is not what its source says, or its source's tombstone.
// Something in flight might still make it so.
func (v *view) drifts() bool { return slices.Contains(v.verdicts, cascade.Drift) }

// suspect returns what must be passed before the item's copies can be judged.
func (v *view) suspect() Suspect {
	s := Suspect{Pipeline: v.pipeline, Ref: store.ItemRef{Key: v.item.Key, ID: v.item.ID}, ETag: v.item.ETag}
	for j := range v.refs {
		if v.verdicts[j] == cascade.Drift {
			s.Sources = append(s.Sources, Origin{Ref: v.refs[j].Source, Passed: v.sources[j].Position()})
		}
	}
	return s
}

// same says whether the suspect is seen again just as it was.
func (s *Suspect) same(other *Suspect) bool {
	return s.ETag == other.ETag && slices.EqualFunc(s.Sources, other.Sources, func(a, b Origin) bool {
		return a == b
	})
}

// countJudged counts and lists the copies of an item that is judged. A copy that is wrong is
// drift, or, if a reason is given, behind.
func (run *verification) countJudged(v *view, behind string) {
	run.mu.Lock()
	defer run.mu.Unlock()
	r := &v.pipeline.result
	for j := range v.refs {
		if v.verdicts[j] == cascade.Equal {
			r.Copies++
			run.progress.Copies++
			continue
		}
		if v.told && v.verdicts[j] == cascade.Drift {
			continue
		}
		run.progress.Findings++
		r.add(v.difference(j, behind), run.cfg.ListMax)
	}
}

// difference tells what is wrong with copy j.
func (v *view) difference(j int, behind string) Difference {
	ref := &v.refs[j]
	d := Difference{
		Kind: DifferenceDrift, Item: store.ItemRef{Key: v.item.Key, ID: v.item.ID}.String(), ETag: v.item.ETag, Element: ref.Element,
	}
	switch {
	case v.verdicts[j] == cascade.Drift && behind != "":
		d.Kind, d.Reason = DifferenceBehind, behind
	case v.verdicts[j] == cascade.Dangling:
		d.Kind = DifferenceDangling
	}
	if ref.Possible {
		d.Source = ref.Source.String()
	}
	if v.verdicts[j] != cascade.Drift {
		return d
	}
	d.Note = v.departed(j)
	for i, want := range v.pipeline.Cascade.Wanted(v.sources[j]) {
		// Cloned, or the report would keep the whole item and its source in memory.
		if has := ref.Has[i]; !SameRaw(has.Value, want.Value) {
			d.Fields = append(d.Fields, FieldDifference{has.Path, slices.Clone(has.Value), slices.Clone(want.Value)})
		}
	}
	return d
}

// departed says what has to become of copy j because its source was deleted; "" if it
// was not.
func (v *view) departed(j int) string {
	declared := v.pipeline.Record.Spec.Cascade
	switch {
	case !v.sources[j].Deleted():
		return ""
	case declared.OnSourceDelete == spec.Delete:
		return "its source was deleted later, and the item has to go"
	case !declared.Each.IsZero():
		return "its source was deleted, and the element has to go"
	}
	return "its source was deleted, and the copy has to go"
}
