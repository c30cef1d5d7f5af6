package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/feed"
)

// ReadGroups reads accumulators of one aggregate, with all their members, in one physical
// partition, in one consistent view that waits for what is in flight. A page ends early,
// with GroupsResult.Last, where the groups have more than about 4 MiB together. A group of more than a
// message takes is refused with ErrTooLarge.
type ReadGroups struct {
	Pipeline   string
	Generation uint32
	// Groups are those asked for, at most 1000; nil reads all, page by page.
	Groups []string
	After  string // the last group of the page before
	// Max is how many groups a page has, default 100, at most 1000. With Groups, 0 means that the
	// answer has all of them; otherwise it may have only the first.
	Max int
}

// GroupsResult is what ReadGroups read.
type GroupsResult struct {
	LSN feed.LSN
	// Content is an accumulator.Delta: what would make the groups from nothing.
	Content []byte
	// Digest is that of Content, for FoldMany.
	Digest uint64
	// Last is where the next page goes on; "" when nothing follows. Of Groups that were asked
	// for, those behind it were not read.
	Last string
	// Positions are those recorded for the aggregate's producers.
	Positions []ProducerPosition
}

// ReadStates reads accumulators of one aggregate without their members, of which a group may have
// any number. It waits for what is in flight.
type ReadStates struct {
	Pipeline   string
	Generation uint32
	Groups     []string // at most 1000
}

// StatesResult is what ReadStates read.
type StatesResult struct {
	// States are accumulators as accumulator/STATE.md has them, in the order asked; nil where
	// a group has none.
	States [][]byte
}

// ProducerPosition is how far a producer has been folded.
type ProducerPosition struct {
	Source   string
	Position feed.Position
}

var groupsKind = kind{
	name:         "groups",
	asked:        func(r *Request) bool { return r.Groups != nil },
	encode:       func(w *wireWriter, r *Request) { w.readGroups(r.Groups) },
	decode:       func(d *wireReader, r *Request) { r.Groups = d.readGroups() },
	encodeAnswer: func(w *wireWriter, r *Response) { w.groups(r.Groups) },
	decodeAnswer: func(d *wireReader, r *Response) { r.Groups = d.groups() },
}

// ReadGroups reads accumulators of one physical partition.
func (c *Container) ReadGroups(ctx context.Context, p feed.Partition, r *ReadGroups) (*GroupsResult, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, Groups: r})
	if err != nil {
		return nil, err
	}
	return resp.Groups, nil
}

var statesKind = kind{
	name:  "states",
	asked: func(r *Request) bool { return r.States != nil },
	encode: func(w *wireWriter, r *Request) {
		w.str(r.States.Pipeline)
		w.uint(uint64(r.States.Generation))
		w.uint(uint64(len(r.States.Groups)))
		for _, g := range r.States.Groups {
			w.str(g)
		}
	},
	decode: func(d *wireReader, r *Request) {
		r.States = &ReadStates{Pipeline: d.str(), Generation: uint32(d.uint())}
		for range d.count() {
			r.States.Groups = append(r.States.Groups, d.str())
		}
	},
	encodeAnswer: func(w *wireWriter, r *Response) {
		w.uint(uint64(len(r.States.States)))
		for _, s := range r.States.States {
			w.bytes(s)
		}
	},
	decodeAnswer: func(d *wireReader, r *Response) {
		r.States = &StatesResult{}
		for range d.count() {
			r.States.States = append(r.States.States, d.bytes())
		}
	},
}

// ReadStates reads accumulators of one physical partition, without their members. Those of groups
// that together are larger than a message are read in halves, one after the other. An owner of a
// release that does not know the request refuses it with StatusUnavailable.
func (c *Container) ReadStates(ctx context.Context, p feed.Partition, r *ReadStates) (*StatesResult, error) {
	resp, err := c.Do(ctx, &Request{Partition: p, States: r})
	if half := len(r.Groups) / 2; half > 0 && errors.Is(err, ErrTooLarge) {
		first, second := *r, *r
		first.Groups, second.Groups = r.Groups[:half], r.Groups[half:]
		all, err := c.ReadStates(ctx, p, &first)
		if err != nil {
			return nil, err
		}
		rest, err := c.ReadStates(ctx, p, &second)
		if err != nil {
			return nil, err
		}
		return &StatesResult{States: append(all.States, rest.States...)}, nil
	}
	if err != nil {
		return nil, unknownKind(err)
	}
	if n := len(resp.States.States); n != len(r.Groups) {
		return nil, fmt.Errorf("%s answered with %d accumulators of %d groups", p, n, len(r.Groups))
	}
	return resp.States, nil
}

// unknownKind returns what an owner of an earlier release says to a request that it does not know
// so that it is asked again: it will be upgraded.
func unknownKind(err error) error {
	refusal, ok := errors.AsType[*Error](err)
	if !ok || refusal.Status != StatusBadRequest || !strings.Contains(refusal.Message, unknownKindMessage) {
		return err
	}
	return Refuse(StatusUnavailable, "the owner is of an earlier release (%v); upgrade stores first", err)
}

func (w *wireWriter) readGroups(r *ReadGroups) {
	w.str(r.Pipeline)
	w.uint(uint64(r.Generation))
	w.bool(r.Groups != nil)
	w.uint(uint64(len(r.Groups)))
	for _, g := range r.Groups {
		w.str(g)
	}
	w.str(r.After)
	w.uint(uint64(r.Max))
}

func (d *wireReader) readGroups() *ReadGroups {
	r := &ReadGroups{Pipeline: d.str(), Generation: uint32(d.uint())}
	if d.bool() {
		r.Groups = []string{}
	}
	for range d.count() {
		r.Groups = append(r.Groups, d.str())
	}
	r.After, r.Max = d.str(), d.int()
	return r
}

func (w *wireWriter) groups(r *GroupsResult) {
	w.uint(uint64(r.LSN))
	w.bytes(r.Content)
	w.uint(r.Digest)
	w.str(r.Last)
	w.uint(uint64(len(r.Positions)))
	for _, p := range r.Positions {
		w.str(p.Source)
		w.position(p.Position)
	}
}

func (d *wireReader) groups() *GroupsResult {
	r := &GroupsResult{LSN: feed.LSN(d.uint()), Content: d.bytes(), Digest: d.uint(), Last: d.str()}
	for range d.count() {
		r.Positions = append(r.Positions, ProducerPosition{Source: d.str(), Position: d.position()})
	}
	return r
}
