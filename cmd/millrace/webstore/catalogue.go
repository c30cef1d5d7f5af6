package webstore

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Meta is a category or a tag, an item of productMeta.
type Meta struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Type string `json:"type"`
}

// Product is an item of product.
type Product struct {
	ID           string `json:"id"`
	CategoryID   string `json:"categoryId"`
	CategoryName string `json:"categoryName"` // a copy
	SKU          string `json:"sku"`
	Name         string `json:"name"`
	Description  string `json:"description"`
	Price        Money  `json:"price"`
	Tags         []Tag  `json:"tags"`

	// Category and TagNumbers are the ordinals of what is copied.
	Category   int   `json:"-"`
	TagNumbers []int `json:"-"`
}

// Tag is an element of a product's tags.
type Tag struct {
	ID   string `json:"id"`
	Name string `json:"name"` // a copy
}

// Money is an amount in cents. In JSON it is a number of units: 2384.07, 35.
type Money int64

// MarshalJSON writes the amount without zeros at its end.
func (m Money) MarshalJSON() ([]byte, error) {
	out := strconv.AppendInt(nil, int64(m)/100, 10)
	switch cents := int64(m) % 100; {
	case cents == 0:
	case cents%10 == 0:
		out = append(out, '.', byte('0'+cents/10))
	default:
		out = append(out, '.', byte('0'+cents/10), byte('0'+cents%10))
	}
	return out, nil
}

// times returns m multiplied by f, rounded to cents.
func (m Money) times(f float64) Money { return Money(math.Round(float64(m) * f)) }

// Category returns the category c, 1 to Categories, named as names says.
func (s *Store) Category(c int, names *Names) Meta {
	return Meta{ID: s.CategoryID(c), Name: s.CategoryName(c, names.category(c)), Type: "category"}
}

// CategoryID returns the id of the category c.
func (s *Store) CategoryID(c int) string { return s.id(kindCategory, uint64(c)) }

// CategoryName returns the name that the category c has after some revisions: 14
// to 30 characters at first.
func (s *Store) CategoryName(c, revision int) string {
	name := fmt.Sprintf("%s, %s %d", departments[c%len(departments)], articles[c%len(articles)], c)
	return revised(name, revision)
}

// Tag returns the tag t, 1 to Tags, named as names says.
func (s *Store) Tag(t int, names *Names) Meta {
	return Meta{ID: s.TagID(t), Name: s.TagName(t, names.tag(t)), Type: "tag"}
}

// TagID returns the id of the tag t.
func (s *Store) TagID(t int) string { return s.id(kindTag, uint64(t)) }

// TagName returns the name that the tag t has after some revisions.
func (s *Store) TagName(t, revision int) string { return revised("Tag-"+strconv.Itoa(t), revision) }

func revised(name string, revision int) string {
	if revision == 0 {
		return name
	}
	return name + " r" + strconv.Itoa(revision)
}

// Product returns the product p, 1 to Products, with its copies as names says.
func (s *Store) Product(p int, names *Names) Product {
	r := s.random(kindProduct, uint64(p))
	out := Product{ID: s.id(kindProduct, uint64(p)), Category: p, Tags: []Tag{}}
	// Every category has a product; the others are drawn.
	if draw := s.categories.draw(r); p > s.cfg.Categories {
		out.Category = draw
	}
	out.CategoryID = s.CategoryID(out.Category)
	out.CategoryName = s.CategoryName(out.Category, names.category(out.Category))
	model, color, size := models[r.IntN(len(models))], colors[r.IntN(len(colors))], sizes[r.IntN(len(sizes))]
	out.SKU = fmt.Sprintf("%s-%c%d-%s", departments[out.Category%len(departments)][:2], model[0], p, size)
	out.Name = fmt.Sprintf("%s-%d %s, %s", model, p, color, size)
	out.Description = fmt.Sprintf("The product called %q", out.Name)
	out.Price = s.price(r.NormFloat64)
	for k := r.IntN(6); len(out.TagNumbers) < min(k, s.cfg.Tags); {
		t := 1 + r.IntN(s.cfg.Tags)
		if slices.Contains(out.TagNumbers, t) {
			continue
		}
		out.TagNumbers = append(out.TagNumbers, t)
		out.Tags = append(out.Tags, Tag{ID: s.TagID(t), Name: s.TagName(t, names.tag(t))})
	}
	return out
}

// price draws from the lognormal law that was fitted, between 2 and 4,000.
func (s *Store) price(normal func() float64) Money {
	for {
		if x := math.Exp(5.65 + 1.65*normal()); x >= 2 && x <= 4000 {
			return Money(math.Round(100 * x))
		}
	}
}

// JSON returns an item of this package as compact JSON.
func JSON(item any) []byte {
	data, err := json.Marshal(item)
	if err != nil {
		panic(fmt.Sprintf("webstore: %T cannot be marshalled: %v", item, err))
	}
	return data
}
