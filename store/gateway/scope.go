package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// parseKey reads the partition key header: a JSON array with a component for each path. given
// is false without a header, and for an empty array.
func (c *collection) parseKey(text string) (key feed.PartitionKey, given bool, err error) {
	key, given, err = parsePrefix(text)
	if given && err == nil && key.Levels() != len(c.info.Spec.PartitionKey) {
		err = refuseAs(http.StatusBadRequest, subKeyMismatch,
			"the partition key %s has %d components, that of container %s has %d paths", key, key.Levels(), c.info.Name, len(c.info.Spec.PartitionKey))
	}
	return key, given, err
}

// parsePrefix reads the header with any number of components.
func parsePrefix(text string) (key feed.PartitionKey, given bool, err error) {
	text = strings.TrimSpace(text)
	if text == "" || text == "[]" {
		return key, false, nil
	}
	key, err = feed.ParsePartitionKey(text)
	if err != nil {
		return key, false, refuse(http.StatusBadRequest, "the partition key %q is not understood: %v", clip(text), err)
	}
	return key, true, nil
}

// scope is the part of a container that a query or feed reads: the intersection of all
// conditions in the headers.
type scope struct {
	// key is a whole partition key; zero if none is named.
	key feed.PartitionKey
	// span is the range of effective partition keys.
	span feed.Range
	// partitions are the physical partitions that span touches, in order.
	partitions []store.PartitionInfo
	// whole says that no header named a part.
	whole bool
	// ranges are the range ids that a header named; nil if none did.
	ranges []uint32
}

// all is the whole key space.
var all = feed.Range{Max: feed.EPKMax}

// scope reads the headers that name a part of a container: partition key, whole or
// a prefix, range ids, and effective partition keys.
func (c *collection) scope(x *exchange) (*scope, error) {
	sc := &scope{span: all, whole: true}
	key, given, err := parsePrefix(x.header(headerKey))
	if err != nil {
		return nil, err
	}
	if given {
		if err := c.narrowToKey(sc, key); err != nil {
			return nil, err
		}
	}
	if err := x.right.admitKey(sc.key); err != nil {
		return nil, err
	}
	ranges, err := c.rangeIDs(x.header(headerRange))
	if err != nil {
		return nil, err
	}
	sc.ranges = ranges
	start, end := x.header(headerStartEPK), x.header(headerEndEPK)
	if start != "" || end != "" {
		sub, err := parseSpan(start, end)
		if err != nil {
			return nil, err
		}
		sc.span, sc.whole = intersect(sc.span, sub), false
	}
	for i := range c.info.Partitions {
		p := &c.info.Partitions[i]
		if ranges != nil && !slices.Contains(ranges, p.Number) {
			continue
		}
		if both := intersect(p.Range, sc.span); both.Min < both.Max {
			sc.partitions = append(sc.partitions, *p)
		}
	}
	if ranges != nil {
		sc.whole = false
	}
	return sc, nil
}

func (c *collection) narrowToKey(sc *scope, key feed.PartitionKey) error {
	sc.whole = false
	epk := key.Hash()
	switch levels, paths := key.Levels(), len(c.info.Spec.PartitionKey); {
	// A whole key has one hash; the range ends just behind it. A prefix has the first bytes of
	// the hashes of all keys that begin with it.
	case levels == paths:
		sc.key = key
		sc.span = feed.Range{Min: epk, Max: epk + "\x00"}
	case levels < paths:
		sc.span = feed.Range{Min: epk, Max: epk + feed.EPKMax}
	default:
		return refuseAs(http.StatusBadRequest, subKeyMismatch,
			"the partition key %s has %d components, that of container %s has %d paths", key, levels, c.info.Name, paths)
	}
	return nil
}

// rangeIDs reads range ids, separated by commas; nil if there are none. An id that this
// container does not have is gone: the answer 410 makes the client read the ranges again.
func (c *collection) rangeIDs(text string) ([]uint32, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	var numbers []uint32
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 32)
		if err != nil || !slices.ContainsFunc(c.info.Partitions, func(p store.PartitionInfo) bool { return uint64(p.Number) == n }) {
			return nil, refuseAs(http.StatusGone, subRangeGone, "container %s has no range %q; read its ranges again", c.info.Name, clip(part))
		}
		numbers = append(numbers, uint32(n))
	}
	return numbers, nil
}

// parseSpan reads a range of effective partition keys; an empty bound is open.
func parseSpan(start, end string) (feed.Range, error) {
	span := all
	var err error
	if span.Min, err = feed.ParseEPK(start); err != nil {
		return span, refuse(http.StatusBadRequest, "x-ms-start-epk: %v", err)
	}
	if end != "" {
		if span.Max, err = feed.ParseEPK(end); err != nil {
			return span, refuse(http.StatusBadRequest, "x-ms-end-epk: %v", err)
		}
	}
	return span, nil
}

func intersect(a, b feed.Range) feed.Range {
	return feed.Range{Min: max(a.Min, b.Min), Max: min(a.Max, b.Max)}
}
