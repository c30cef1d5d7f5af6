package webstore

// Rename gives a category or a tag its next name.
type Rename struct {
	Tag    bool // a tag, else a category
	Number int
}

// Names remembers how often each category and tag was renamed, from which follow
// all copies. A nil Names is that of a store without renames. Not safe for
// concurrent use.
type Names struct {
	categories, tags map[int]int
}

// Apply carries a rename out and returns the new revision.
func (n *Names) Apply(r Rename) int {
	revisions := &n.categories
	if r.Tag {
		revisions = &n.tags
	}
	if *revisions == nil {
		*revisions = map[int]int{}
	}
	(*revisions)[r.Number]++
	return (*revisions)[r.Number]
}

func (n *Names) category(c int) int {
	if n == nil {
		return 0
	}
	return n.categories[c]
}

func (n *Names) tag(t int) int {
	if n == nil {
		return 0
	}
	return n.tags[t]
}

// Pick is how renames choose what they rename.
type Pick uint8

// The ways to choose.
const (
	// PickEvenly gives every category and tag the same chance.
	PickEvenly Pick = iota
	// PickByWeight gives a category the chance of its weight among products, so
	// large ones are renamed more often. Tags have equal weights.
	PickByWeight
)

// Rename returns the nth rename of a run: of a category or a tag, either as
// likely as the other.
func (s *Store) Rename(n int, how Pick) Rename {
	r := s.random(kindRename, uint64(n))
	if r.IntN(2) == 0 {
		return Rename{Tag: true, Number: 1 + r.IntN(s.cfg.Tags)}
	}
	if how == PickByWeight {
		return Rename{Number: s.categories.draw(r)}
	}
	return Rename{Number: 1 + r.IntN(s.cfg.Categories)}
}

// Meta returns the item that r renames, as names says.
func (s *Store) Meta(r Rename, names *Names) Meta {
	if r.Tag {
		return s.Tag(r.Number, names)
	}
	return s.Category(r.Number, names)
}
