package gateway

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// readItems reads the items of a container page by page, in the order of their
// effective partition keys.
func (s *Server) readItems(x *exchange) error {
	c, err := s.collection(x)
	if err != nil {
		return err
	}
	sc, err := c.scope(x)
	if err != nil {
		return err
	}
	limit, err := parseHeaderInt(x.header(headerPageItems), headerPageItems)
	if err != nil {
		return err
	}
	page := &feedPage{limit: pageItemsMax, levels: len(c.info.Spec.PartitionKey)}
	if limit > 0 {
		page.limit = min(limit, pageItemsMax)
	}
	at := feedToken{}
	if token := x.header(headerContinuation); token != "" {
		if at, err = c.tokenOf(sc, token); err != nil {
			return err
		}
	} else if len(sc.partitions) > 0 {
		at.partition = sc.partitions[0].Number
	}
	body, err := s.inTurn(x, func() ([]byte, error) {
		if err := s.fillPage(x, c, sc, at, page); err != nil {
			return nil, err
		}
		return appendList(nil, c.ridText, "Documents", page.items), nil
	})
	if err != nil {
		return s.explainAbsence(x, c, err)
	}
	if page.next != nil {
		x.w.Header().Set(headerContinuation, c.encodeToken(*page.next, c.hash(sc)))
	}
	x.session(page.sessions...)
	x.w.Header().Set(headerItemCount, strconv.Itoa(len(page.items)))
	x.answer(http.StatusOK, pageCharge(len(body)), body)
	return nil
}

// pagesMost returns how many pages of feeds are made at once where answers may have so many bytes. A
// page is in memory about twice while it is made, as items and as a body; the room of answers counts
// it from when it is whole.
func pagesMost(answersMax int) int { return max(answersMax/(2*pageBytesMax), 2) }

// turnMax is how long a page keeps its turn. One that takes longer most likely waits for a partition
// that has no owner, and holds nothing: it must not keep the feeds of other containers waiting.
const turnMax = time.Second

// inTurn makes the body of a page of a feed when fewer than pagesMost are being made. To wait is
// right here, where slots tells clients to come again: a page takes milliseconds, and its client
// must ask for it in any case.
func (s *Server) inTurn(x *exchange, read func() ([]byte, error)) ([]byte, error) {
	select {
	case s.pages <- struct{}{}:
	case <-x.ctx.Done():
		return nil, context.Cause(x.ctx)
	}
	end := sync.OnceFunc(func() { <-s.pages })
	defer end()
	defer time.AfterFunc(turnMax, end).Stop()
	return read()
}

// feedPage is a page of a read feed while it is filled.
type feedPage struct {
	limit    int
	levels   int
	items    [][]byte
	bytes    int
	next     *feedToken // where the next page begins; nil if this is the last one
	sessions []string
}

// fillPage reads from at on until the page is full or the scope is read to its end.
func (s *Server) fillPage(x *exchange, c *collection, sc *scope, at feedToken, page *feedPage) error {
	begun := false
	for i := range sc.partitions {
		p := &sc.partitions[i]
		after := []byte(nil)
		// Partitions before that of the token were on earlier pages.
		if !begun {
			if !c.goesOnIn(at, p) {
				continue
			}
			begun, after = true, at.cursor
		}
		if page.full() {
			page.next = &feedToken{partition: p.Number}
			return nil
		}
		if err := s.fillFrom(x, c, sc, p, after, page); err != nil || page.next != nil {
			return err
		}
	}
	if !begun && len(sc.partitions) > 0 && len(at.cursor) == 0 {
		return refuseAs(http.StatusGone, subRangeGone, "the range of the continuation is gone; read the ranges again")
	}
	return nil
}

// goesOnIn tells whether what comes behind a place begins in a partition: in its own, or if that was split in the part of
// it in which the place lies, or in the first one behind.
func (c *collection) goesOnIn(at feedToken, p *store.PartitionInfo) bool {
	if slices.ContainsFunc(c.info.Partitions, func(p store.PartitionInfo) bool { return p.Number == at.partition }) {
		return p.Number == at.partition
	}
	if len(at.cursor) > 0 {
		// A cursor is the number of levels, and from there on in the order of hashes.
		return string(at.cursor[1:]) < string(p.Range.Max)
	}
	f := c.info.FormerOf(at.partition)
	return f != nil && f.Range.Min <= p.Range.Min && p.Range.Max <= f.Range.Max
}

func (p *feedPage) full() bool { return len(p.items) >= p.limit || p.bytes >= pageBytesMax }

// fillFrom reads from one physical partition.
func (s *Server) fillFrom(x *exchange, c *collection, sc *scope, p *store.PartitionInfo, after []byte, page *feedPage) error {
	partition := feed.Partition{Container: c.info.ID, Number: p.Number}
	span := intersect(p.Range, sc.span)
	// A scope may begin within the partition: begin there and do not read up to it.
	if len(after) == 0 && sc.key.IsZero() && span.Min > p.Range.Min {
		after = cursorAt(page.levels, span.Min)
	}
	var seen feed.LSN // the latest: each part may be another process's answer
	defer func() {
		if seen != 0 {
			page.sessions = append(page.sessions, sessionToken(partition, seen)) // one for each range
		}
	}()
	for {
		result, err := c.Scan(x.ctx, partition, store.Scan{
			Scope: store.Scope{Key: sc.key}, After: after, ItemsMax: page.limit - len(page.items), BytesMax: pageBytesMax - page.bytes,
		})
		if err != nil {
			return err
		}
		if err := s.strictlySeen(x, c, p.Number, result.LSN); err != nil {
			return err
		}
		seen = max(seen, result.LSN)
		for i := range result.Items {
			item := &result.Items[i]
			// Items come in the order of their hashes, so the first beyond the scope ends it.
			if sc.key.IsZero() && item.Key.Hash() >= span.Max {
				return nil
			}
			body := c.appendItem(nil, item)
			page.items, page.bytes = append(page.items, body), page.bytes+len(body)
		}
		if result.Cursor == nil {
			return nil
		}
		if after = result.Cursor; page.full() {
			page.next = &feedToken{partition: p.Number, cursor: after}
			return nil
		}
	}
}
