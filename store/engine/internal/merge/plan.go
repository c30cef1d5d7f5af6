package merge

import (
	"bytes"
	"math"
	"slices"
	"sort"

	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
)

// Sizes says how large levels and their tables get.
type Sizes struct {
	// Level0Tables is from how many tables on the first level is merged.
	Level0Tables int
	// BaseBytes is how large the level gets into which the first one is merged. Each one below may be
	// Multiplier times as large as the one above.
	BaseBytes  int64
	Multiplier int
	// TableBytes is how large a table of that level gets; one below it twice that.
	TableBytes int64
}

// planBytes is how much of a level below the first a plan takes, beside what it is merged with, if that is little.
const planBytes = 24 << 20

// Levels are the tables of each level. Those of the first, the oldest before the others, may have the same keys; those of
// another follow each other by their keys.
type Levels [][]*table.Table

// Plan is what is merged next, and the level that gets it.
type Plan struct {
	From, To int
	// Top are tables of From, Bottom those of To with keys between theirs.
	Top, Bottom []*table.Table

	tableBytes int64
	covers     bool           // there may be older versions below To
	below      []*table.Table // of the level below To
}

// Tables are all that the plan merges.
func (p *Plan) Tables() []*table.Table { return slices.Concat(p.Top, p.Bottom) }

// Bytes is how much the plan merges.
func (p *Plan) Bytes() int64 { return bytesOf(p.Top) + bytesOf(p.Bottom) }

// Choose returns what is to be merged next, nil if nothing is.
//
// The last level has most of the data, and the target of each one above is a part of that below (Sizes.Multiplier), down to
// Sizes.BaseBytes: that one is the base level, and those between it and the first stay empty. A level
// has a score, how much it has beside its target, and what has more than its target is merged: the level
// whose score is highest beside that of the level below, because what is merged into a level that is too
// large itself is merged again soon.
func Choose(levels Levels, s Sizes) *Plan {
	targets, base := levels.targets(s)
	scores := make([]float64, len(levels))
	scores[0] = float64(len(levels[0])) / float64(s.Level0Tables)
	for i := base; i < len(levels); i++ {
		scores[i] = float64(bytesOf(levels[i])) / float64(targets[i])
	}
	urgency := slices.Clone(scores)
	above := 0
	for i := base; i < len(levels); i++ {
		if urgency[above] >= 1 {
			urgency[above] /= max(urgency[i], 0.01)
		}
		above = i
	}
	most := -1
	for i := range len(levels) - 1 {
		if scores[i] >= 1 && (most < 0 || urgency[i] > urgency[most]) {
			most = i
		}
	}
	switch most {
	case -1:
		return nil
	case 0:
		return levels.plan(s, base, 0, base, oldest(levels[0]))
	default:
		return levels.plan(s, base, most, most+1, cheapest(levels[most], levels[most+1]))
	}
}

// Flatten returns what is to be merged next until all tables stand in one level, nil when they do. Few tables of the first
// level stay there if no other has any.
func Flatten(levels Levels, s Sizes) *Plan {
	_, base := levels.targets(s)
	from := -1
	for i := range levels {
		switch {
		case len(levels[i]) == 0:
		case from < 0:
			from = i
		default:
			return levels.plan(s, base, from, i, levels[from])
		}
	}
	return Choose(levels, s)
}

// targets returns how large each level should be, and which one the first is merged into.
func (l Levels) targets(s Sizes) (targets []int64, base int) {
	targets = make([]int64, len(l))
	last := len(l) - 1
	size := bytesOf(l[last])
	for i := last; i > 0; i-- {
		targets[i] = max(size, s.BaseBytes)
		if base == 0 && targets[i] <= s.BaseBytes {
			base = i
		}
		size /= int64(s.Multiplier)
	}
	base = max(base, 1)
	// Through levels that are empty, and into the next one if that has little.
	for base < last && len(l[base]) == 0 && bytesOf(l[base+1]) < s.BaseBytes {
		base++
	}
	// Never below a level that has tables: what is newer must stand above what is older.
	for i := 1; i < base; i++ {
		if len(l[i]) > 0 {
			base = i
		}
	}
	return targets, base
}

// plan makes a plan of tables of a level.
func (l Levels) plan(s Sizes, base, from, to int, top []*table.Table) *Plan {
	p := &Plan{From: from, To: to, Top: slices.Clone(top), tableBytes: s.TableBytes}
	if to > base {
		p.tableBytes *= 2
	}
	lo, hi := span(top)
	p.Bottom = slices.Clone(overlapping(l[to], lo, hi))
	if len(p.Bottom) > 0 { // its tables may reach farther
		lo = least(lo, y.ParseKey(p.Bottom[0].Smallest()))
		hi = greatest(hi, y.ParseKey(p.Bottom[len(p.Bottom)-1].Biggest()))
	}
	for i := to + 1; i < len(l); i++ {
		p.covers = p.covers || len(overlapping(l[i], lo, hi)) > 0
	}
	if to+1 < len(l) {
		p.below = l[to+1]
	}
	return p
}

// oldest returns the tables of the first level that are merged together: from the oldest on those that have keys
// between those of the ones before. What is newer may stay above what is older, never the other way round.
func oldest(tables []*table.Table) []*table.Table {
	n := 1
	for ; n < len(tables); n++ {
		lo, hi := span(tables[:n])
		if len(overlapping(tables[n:n+1], lo, hi)) == 0 {
			break
		}
	}
	return tables[:n]
}

// cheapest returns the tables of a level for which least of the next one is written anew: one, and its
// neighbours while all is little.
func cheapest(tables, next []*table.Table) []*table.Table {
	best, cost := 0, math.Inf(1)
	for i, t := range tables {
		lo, hi := span(tables[i : i+1])
		if c := float64(bytesOf(overlapping(next, lo, hi))) / float64(t.Size()); c < cost {
			best, cost = i, c
		}
	}
	n := 1
	for best+n < len(tables) {
		lo, hi := span(tables[best : best+n+1])
		if bytesOf(tables[best:best+n+1])+bytesOf(overlapping(next, lo, hi)) > planBytes {
			break
		}
		n++
	}
	return tables[best : best+n]
}

func bytesOf(tables []*table.Table) (n int64) {
	for _, t := range tables {
		n += t.Size()
	}
	return n
}

// span returns the least and the greatest key of tables, without their versions.
func span(tables []*table.Table) (lo, hi []byte) {
	for i, t := range tables {
		if i == 0 {
			lo, hi = y.ParseKey(t.Smallest()), y.ParseKey(t.Biggest())
		}
		lo, hi = least(lo, y.ParseKey(t.Smallest())), greatest(hi, y.ParseKey(t.Biggest()))
	}
	return lo, hi
}

func least(a, b []byte) []byte {
	if bytes.Compare(a, b) <= 0 {
		return a
	}
	return b
}

func greatest(a, b []byte) []byte {
	if bytes.Compare(a, b) >= 0 {
		return a
	}
	return b
}

// overlapping returns those of tables, which follow each other, that may have keys from lo to hi.
func overlapping(tables []*table.Table, lo, hi []byte) []*table.Table {
	begin := sort.Search(len(tables), func(i int) bool { return bytes.Compare(y.ParseKey(tables[i].Biggest()), lo) >= 0 })
	end := begin
	for end < len(tables) && bytes.Compare(y.ParseKey(tables[end].Smallest()), hi) <= 0 {
		end++
	}
	return tables[begin:end]
}
