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

// Meta returns the item that r renames, as names says.
func (s *Store) Meta(r Rename, names *Names) Meta {
	if r.Tag {
		return s.Tag(r.Number, names)
	}
	return s.Category(r.Number, names)
}
