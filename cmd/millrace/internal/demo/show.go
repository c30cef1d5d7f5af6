package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store"
)

// sampleRows is how many products are shown before and after.
const sampleRows = 3

// sample is what is shown before and after: the most copied category and some of
// its products.
type sample struct {
	category *meta
	name     string // of the category, as it is in the store
	products []product
}

// sample reads the most copied category and its first products with one to three tags,
// which fit in a line.
func (d *demo) sample(ctx context.Context) (*sample, error) {
	categories := d.shop.ofType("category")
	if len(categories) == 0 {
		return nil, errors.New("the shop has no category")
	}
	s := &sample{category: categories[0]}
	key, err := feed.NewPartitionKey(s.category.ID)
	if err != nil {
		return nil, err
	}
	page, err := d.products.Scan(ctx, d.products.PartitionFor(key), store.Scan{Scope: store.Scope{Key: key}, ItemsMax: 50})
	if err != nil {
		return nil, err
	}
	for i := range page.Items {
		var p product
		if err := json.Unmarshal(page.Items[i].Body, &p); err != nil {
			return nil, err
		}
		if len(s.products) < sampleRows && len(p.Tags) > 0 && len(p.Tags) < 4 {
			s.products = append(s.products, p)
		}
	}
	return s, d.readSample(ctx, s)
}

// sampleOf reads the category and the products of before again.
func (d *demo) sampleOf(ctx context.Context, before *sample) (*sample, error) {
	s := &sample{category: before.category, products: slices.Clone(before.products)}
	return s, d.readSample(ctx, s)
}

func (d *demo) readSample(ctx context.Context, s *sample) error {
	metaKey, err := feed.NewPartitionKey(s.category.Type)
	if err != nil {
		return err
	}
	read, err := d.meta.Read(ctx, metaKey, s.category.ID)
	if err != nil {
		return err
	}
	var m meta
	if err := json.Unmarshal(read.Body, &m); err != nil {
		return err
	}
	s.name = m.Name
	for i := range s.products {
		p := &s.products[i]
		if *p, err = d.readProduct(ctx, p.CategoryID, p.ID); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) readProduct(ctx context.Context, category, id string) (p product, err error) {
	key, err := feed.NewPartitionKey(category)
	if err != nil {
		return p, err
	}
	read, err := d.products.Read(ctx, key, id)
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(read.Body, &p)
}

func (s *sample) lines() []string {
	lines := []string{fmt.Sprintf("  category %q is copied into %s products, such as", s.name, format.Count(s.category.products))}
	for _, p := range s.products {
		var tags []string
		for _, t := range p.Tags {
			tags = append(tags, t.Name)
		}
		lines = append(lines, fmt.Sprintf("    %-28s %q, tags %s", p.Name, p.CategoryName, strings.Join(tags, ", ")))
	}
	return lines
}

// freshnessRounds is how often freshness is measured.
const freshnessRounds = 30

// freshness measures the time from an acknowledged rename to its copy, one
// product at a time, when nothing else happens.
func (d *demo) freshness(ctx context.Context) error {
	began := time.Now()
	categories := d.shop.ofType("category")
	// The least copied category that has a product: its fan-out is the shortest, so the
	// time is that of the way from the rename to the copy.
	m := categories[len(categories)-1]
	for i := len(categories) - 1; i >= 0 && m.products == 0; i-- {
		m = categories[i]
	}
	key, err := feed.NewPartitionKey(m.ID)
	if err != nil {
		return err
	}
	page, err := d.products.Scan(ctx, d.products.PartitionFor(key), store.Scan{Scope: store.Scope{Key: key}, ItemsMax: 1})
	if err != nil || len(page.Items) == 0 {
		return err
	}
	var times []time.Duration
	for range freshnessRounds {
		if err := d.renameOnce(ctx, m); err != nil {
			return err
		}
		acknowledged := time.Now()
		for {
			p, err := d.readProduct(ctx, m.ID, page.Items[0].ID)
			if err != nil {
				return err
			}
			if p.CategoryName == m.Name {
				break
			}
			if time.Since(acknowledged) > d.cfg.CopiesTimeout {
				return fmt.Errorf("the copy of %q has not come after %s", m.Name, d.cfg.CopiesTimeout)
			}
		}
		times = append(times, time.Since(acknowledged))
	}
	slices.Sort(times)
	middle, slowest := times[len(times)/2], times[len(times)-1]
	d.report.FreshnessMillis, d.report.FreshnessMaxMillis = millis(middle), millis(slowest)
	d.cfg.Screen.Step("Freshness", fmt.Sprintf("a rename is in its product after %s, %s at most, of %d tries one by one",
		short(middle), short(slowest), freshnessRounds), time.Since(began))
	return nil
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// short prints a duration in few characters.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}
