// Package webstore generates a shop: categories, tags, products, customers and
// sales orders, distributed as those of a real sample store were measured to be.
// It loads the demo, tests and benchmarks.
//
// Everything follows from one seed. The content of an item depends on the seed,
// its kind and its ordinal alone, so any shard can be made by itself, in any
// order, and what the store must hold at the end of a run is computed without
// asking it:
//
//	(seed, kind, ordinal) ──▶ id, content
//	names after some renames ──▶ every product as its copies must be
//
// The items have three containers, as Container of each kind says: productMeta
// (categories and tags, by /type), product (by /categoryId) and customer
// (customers with their orders, by /customerId). What a product copies are the
// name of its category and the names of its tags.
//
// A Store is immutable after New and safe for concurrent use. A Names is not.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package webstore

import (
	"encoding/hex"
	"math"
	"math/rand/v2"
	"strings"
)

// The sizes of the store that was measured, which Scale multiplies.
const (
	categoriesMeasured = 37
	tagsMeasured       = 200
	productsMeasured   = 295
	customersMeasured  = 19_119
)

// The names of the containers.
const (
	ContainerProductMeta = "productMeta"
	ContainerProduct     = "product"
	ContainerCustomer    = "customer"
)

// Config sizes a Store. Zero sizes are those of the measured store.
type Config struct {
	// Seed decides everything. Two stores with equal Config are equal.
	Seed uint64
	// Categories, Tags, Products and Customers are how many there are. Products is
	// at least Categories, for every category has one. Defaults 37, 200, 295 and
	// 19,119.
	Categories, Tags, Products, Customers int
}

// Scale returns the sizes of a store with factor times the customers of the
// measured one. Products, categories and tags grow with the square root of it, as
// a catalogue does.
func Scale(seed uint64, factor float64) Config {
	root := math.Sqrt(factor)
	times := func(n int, by float64) int { return max(int(math.Round(float64(n)*by)), 1) }
	return Config{
		Seed: seed, Categories: times(categoriesMeasured, root), Tags: times(tagsMeasured, root),
		Products: times(productsMeasured, root), Customers: times(customersMeasured, factor),
	}
}

// Store makes the items of one shop. Ordinals count from 1.
type Store struct {
	cfg        Config
	categories *table // of the products beyond each category's first
	persons    assortment
	shops      assortment
}

// New returns the store that cfg describes.
func New(cfg Config) *Store {
	def := func(n *int, to int) {
		if *n <= 0 {
			*n = to
		}
	}
	def(&cfg.Categories, categoriesMeasured)
	def(&cfg.Tags, tagsMeasured)
	def(&cfg.Products, productsMeasured)
	def(&cfg.Customers, customersMeasured)
	cfg.Products = max(cfg.Products, cfg.Categories)
	s := &Store{cfg: cfg}
	s.categories = rankTable(cfg.Categories, 11.4, 2.91)
	s.persons = s.assortment(kindPersons, 0.49, 16.1, 1.97)
	s.shops = s.assortment(kindShops, 0.94, 200, 3.01)
	return s
}

// Config returns the sizes with their defaults filled in.
func (s *Store) Config() Config { return s.cfg }

// The kinds of things that have a random stream of their own.
const (
	kindCategory uint64 = iota + 1
	kindTag
	kindProduct
	kindCustomer
	kindOrder
	kindPersons
	kindShops
)

// random returns the stream of random numbers of one thing.
func (s *Store) random(kind, ordinal uint64) *rand.Rand {
	a := mix(s.cfg.Seed ^ mix(kind))
	return rand.New(rand.NewPCG(a, mix(a^ordinal)))
}

// id returns the id of one thing: an upper-case UUID, as the measured store has.
func (s *Store) id(kind, ordinal uint64) string {
	a := mix(s.cfg.Seed ^ mix(kind^0xa5a5))
	hi, lo := mix(a^ordinal), mix(^a^ordinal)
	var raw [16]byte
	for i := range 8 {
		raw[i], raw[8+i] = byte(hi>>(8*i)), byte(lo>>(8*i))
	}
	raw[6] = raw[6]&0x0f | 0x40 // version 4: random
	raw[8] = raw[8]&0x3f | 0x80
	digits := strings.ToUpper(hex.EncodeToString(raw[:]))
	return digits[:8] + "-" + digits[8:12] + "-" + digits[12:16] + "-" + digits[16:20] + "-" + digits[20:]
}

// mix is the finalizer of SplitMix64: neighbouring numbers come out unrelated.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
