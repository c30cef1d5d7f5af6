// Package dataset makes the items that the benchmarks store: products of about
// 1 KiB with copies of their category's name and of their tags' names, and the
// categories and tags themselves. Everything follows from one seed, so each
// system gets the same bytes in the same order.
//
// Unlike a shop's real catalogue (package webstore), the sizes of the categories
// that get renamed are exact: one has a tenth of all products, one a hundredth,
// and so on. Products of one category are scattered over the order in which they
// are stored, as they would be after years of adding them one by one.
package dataset

import (
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
	"strconv"
)

const (
	// ItemBytes is the size of every product.
	ItemBytes = 1024

	coldSize   = 1000 // products of an ordinary category
	coldTags   = 200  // tags that nobody renames
	tagsOfEach = 2    // of those, in each product
	hotEvery   = 10   // one in so many products has the hot tag
	hotAt      = 3
	singlesMax = 100 // categories of one product
)

// Config describes a Set.
type Config struct {
	// Seed decides the content.
	Seed uint64
	// Products is their number, at least 1,000.
	Products int
	// OneCategory puts all of them into one category.
	OneCategory bool
}

// Set makes products, categories and tags. It is immutable and safe for
// concurrent use. Ordinals count from 0.
type Set struct {
	cfg     Config
	sizes   []int // of the categories that get renamed, ascending
	singles int
	cold    int    // ordinary categories
	factor  uint64 // a product's slot is its ordinal times factor, modulo Products
	inverse uint64
	text    string // what descriptions are cut from
}

// Source is a category or a tag.
type Source struct {
	ID, Type, Name string
}

// Product is one product, as relational tables want it.
type Product struct {
	ID, CategoryID, CategoryName, SKU, Name, Description, Price string
	Tags                                                        []Source
}

// New returns the set that cfg describes.
func New(cfg Config) (*Set, error) {
	if cfg.Products < 1000 {
		return nil, fmt.Errorf("dataset: %d products; at least 1,000 are needed", cfg.Products)
	}
	s := &Set{cfg: cfg, sizes: []int{cfg.Products}, text: words(cfg.Seed)}
	if !cfg.OneCategory {
		s.sizes = s.sizes[:0]
		for n := cfg.Products / 10; n >= min(1000, cfg.Products/100) && len(s.sizes) < 4; n /= 10 {
			s.sizes = append([]int{n}, s.sizes...)
		}
		s.singles = min(singlesMax, cfg.Products/100)
	}
	s.cold = (cfg.Products - s.special() + coldSize - 1) / coldSize
	n := uint64(cfg.Products)
	// The golden section spreads neighbouring slots as evenly as can be.
	for s.factor = n * 618 / 1000; gcd(s.factor, n) != 1; s.factor++ {
	}
	s.inverse = inverse(s.factor, n)
	return s, nil
}

// special is the number of products that are not in an ordinary category. Their
// slots come first: singles, then the sized categories.
func (s *Set) special() int {
	sum := s.singles
	for _, n := range s.sizes {
		sum += n
	}
	return sum
}

// Products returns the number of products.
func (s *Set) Products() int { return s.cfg.Products }

// Sizes returns the sizes of the categories that get renamed, ascending. The
// category at index i of it is Sized(i).
func (s *Set) Sizes() []int { return s.sizes }

// Sized returns the category whose size is Sizes()[i].
func (s *Set) Sized(i int) int { return s.singles + i }

// Singles returns how many categories have one product each: the first ones.
func (s *Set) Singles() int { return s.singles }

// Categories returns the number of categories.
func (s *Set) Categories() int { return s.singles + len(s.sizes) + s.cold }

// Tags returns the number of tags. Tag 0 is the one that gets renamed.
func (s *Set) Tags() int { return 1 + coldTags }

// Category returns a category under the name it has after some revisions.
func (s *Set) Category(c, revision int) Source {
	return Source{ID: s.id('c', c), Type: "category", Name: Revised("Components, Saddles "+strconv.Itoa(c), revision)}
}

// Tag returns a tag under the name it has after some revisions.
func (s *Set) Tag(t, revision int) Source {
	return Source{ID: s.id('t', t), Type: "tag", Name: Revised("Tag-"+strconv.Itoa(t), revision)}
}

// Sources iterates over all categories and tags under their first names.
func (s *Set) Sources() iter.Seq[Source] {
	return func(yield func(Source) bool) {
		for c := range s.Categories() {
			if !yield(s.Category(c, 0)) {
				return
			}
		}
		for t := range s.Tags() {
			if !yield(s.Tag(t, 0)) {
				return
			}
		}
	}
}

// Revised returns what a name becomes after some renames.
func Revised(name string, revision int) string {
	if revision == 0 {
		return name
	}
	return name + " r" + strconv.Itoa(revision)
}

// CategoryOf returns the category of product p.
func (s *Set) CategoryOf(p int) int {
	slot := int(mulmod(uint64(p), s.factor, uint64(s.cfg.Products)))
	if slot < s.singles {
		return slot
	}
	at := slot - s.singles
	for i, size := range s.sizes {
		if at < size {
			return s.singles + i
		}
		at -= size
	}
	return s.singles + len(s.sizes) + at/coldSize
}

// InCategory iterates over the products of category c.
func (s *Set) InCategory(c int) iter.Seq[int] {
	first, size := c, 1
	if c >= s.singles {
		first, size = s.singles, 0
		for i, n := range s.sizes {
			if size = n; c == s.singles+i {
				break
			}
			first += n
		}
		if cold := c - s.singles - len(s.sizes); cold >= 0 {
			first = s.special() + cold*coldSize
			size = min(coldSize, s.cfg.Products-first)
		}
	}
	return func(yield func(int) bool) {
		for slot := first; slot < first+size; slot++ {
			if !yield(int(mulmod(uint64(slot), s.inverse, uint64(s.cfg.Products)))) {
				return
			}
		}
	}
}

// HasHotTag says whether product p has tag 0.
func (s *Set) HasHotTag(p int) bool { return p%hotEvery == hotAt }

// Cold draws a product whose category and tags are never renamed, so that it can
// be replaced at any time without bringing back an old name. A set of one
// category has none.
func (s *Set) Cold(r *rand.Rand) int {
	if s.cold == 0 {
		panic("dataset: a set of one category has no product that is left alone")
	}
	for {
		p := r.IntN(s.cfg.Products)
		if !s.HasHotTag(p) && s.CategoryOf(p) >= s.singles+len(s.sizes) {
			return p
		}
	}
}

// ProductID returns the id of product p.
func (s *Set) ProductID(p int) string { return s.id('p', p) }

// id returns an upper-case UUID that follows from the seed, a kind and an ordinal.
func (s *Set) id(kind byte, ordinal int) string {
	a := mix(s.cfg.Seed ^ uint64(kind)<<56)
	hi, lo := mix(a^uint64(ordinal)), mix(^a^uint64(ordinal))
	var raw [16]byte
	for i := range 8 {
		raw[i], raw[8+i] = byte(hi>>(8*i)), byte(lo>>(8*i))
	}
	raw[6], raw[8] = raw[6]&0x0f|0x40, raw[8]&0x3f|0x80
	// By hand: with encoding/hex and strings.ToUpper it took a fiftieth of all that an order costs.
	const digits = "0123456789ABCDEF"
	text := make([]byte, 0, 36)
	for i, b := range raw {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text = append(text, '-')
		}
		text = append(text, digits[b>>4], digits[b&15])
	}
	return string(text)
}

// mix is the finalizer of SplitMix64: neighbouring numbers come out unrelated.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func mulmod(a, b, n uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return bits.Rem64(hi, lo, n)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// inverse returns x with a·x = 1 modulo n, by Euclid's extended algorithm.
func inverse(a, n uint64) uint64 {
	t, next := int64(0), int64(1)
	r, rest := int64(n), int64(a)
	for rest != 0 {
		q := r / rest
		t, next = next, t-q*next
		r, rest = rest, r-q*rest
	}
	return uint64((t + int64(n)) % int64(n))
}
