package cascade

import (
	"fmt"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// Limits of a cascade's declaration.
const (
	// PairsMax bounds match, and set, of one cascade.
	PairsMax = 32
)

// OnSourceDelete says what becomes of the copies of a source item that is gone:
// deleted, expired, or no longer one that the source's where selects.
type OnSourceDelete string

// What may become of copies.
const (
	// Keep leaves them as they are. The default.
	Keep OnSourceDelete = "keep"
	// Clear removes the fields of set; with each, the element.
	Clear OnSourceDelete = "clear"
	// Delete deletes the item that holds the copy. Not with each.
	Delete OnSourceDelete = "delete"
)

// Pair relates a field of the target (with each, of the element) to a field of
// the source. Both are written a.b.c.
type Pair struct {
	Target, Source string
}

// Config declares one cascade. Its limits' zero values take their defaults.
type Config struct {
	// Pipeline and Generation identify the cascade's writes.
	Pipeline   string
	Generation uint32

	// Source is where the originals are, SourceWhere which items count; "" is all.
	Source      *store.Container
	SourceWhere string
	// Target is where the copies are, TargetWhere which items may hold them; ""
	// is all. It may be the source's container.
	Target      *store.Container
	TargetWhere string

	// Each is the array whose elements hold the copies; "" if the item does.
	Each string
	// Match relates a copy to its source, Set are the fields that are copied. A
	// target's field that is in several pairs of Match equals all of their source
	// fields; a source in which these differ has no copies.
	Match []Pair
	Set   []Pair
	// OnSourceDelete is what becomes of copies whose source is gone; "" is Keep.
	OnSourceDelete OnSourceDelete

	// Backfill asks for the check of the target's items that are there.
	Backfill processors.BackfillRequest

	Limits
}

// Limits bound a cascade's work. Zero fields take their defaults.
type Limits struct {
	// FanOutsMax bounds the fan-outs of one source partition that are open at a
	// time; the feed waits at the limit. Default 128.
	FanOutsMax int `yaml:"fanOutsMax"`

	// FanOutPagesInFlight is the number of pages that one fan-out has under way
	// in each target partition, once it is known to need more than one. Default
	// 2: one is decided while the other is written.
	FanOutPagesInFlight int `yaml:"fanOutPagesInFlight"`

	// FanOutPageItems bounds the items that one page changes, 1 to 2000. Default
	// 0: the store decides by its own load.
	FanOutPageItems int `yaml:"fanOutPageItems"`

	// FanOutPartitionsMax bounds the target partitions that one fan-out works on
	// at a time. Default 16.
	FanOutPartitionsMax int `yaml:"fanOutPartitionsMax"`

	// FanOutRateMax bounds the items per second that the fan-outs of one pipeline
	// change in this process. Default 0: no bound.
	FanOutRateMax int `yaml:"fanOutRateMax"`
}

func (l Limits) withDefaults() (Limits, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.FanOutsMax, 128)
	def(&l.FanOutPagesInFlight, 2)
	def(&l.FanOutPartitionsMax, 16)
	if min(l.FanOutsMax, l.FanOutPagesInFlight, l.FanOutPageItems, l.FanOutPartitionsMax, l.FanOutRateMax) < 0 {
		return l, fmt.Errorf("cascade: a limit is negative: %+v", l)
	}
	if l.FanOutPageItems > pageItemsLimit {
		return l, fmt.Errorf("cascade: fanOutPageItems is %d; at most %d are allowed", l.FanOutPageItems, pageItemsLimit)
	}
	return l, nil
}

// pageItemsLimit is the store's.
const pageItemsLimit = 2000
