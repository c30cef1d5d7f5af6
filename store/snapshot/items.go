package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/millrace/millrace/store/engine"
)

// Items reads the items of one snapshot by their ordinals: item 0 is the first in the
// order of keys. A manifest counts entries, of which only some are items, so the part of an
// ordinal is known when all parts before it were read. A reader that continues in the middle
// reads these once:
//
//	parts read     items in them    first
//	none                            0
//	1              120              0, 120
//	1, 2           120, 0           0, 120, 120    part 2 has index entries alone
//	item 130 lies in part 3, or behind it
//
// Each part is compared with its checksum whenever it is read. Several goroutines may use it.
type Items struct {
	s Store
	m *Manifest

	mu sync.Mutex
	// first are the ordinals with which the parts begin, up to the first part that was not
	// read yet; keys are the first keys of those that were.
	first []uint64
	keys  [][]byte
}

// OpenItems returns the items of a snapshot.
func OpenItems(s Store, m *Manifest) *Items { return &Items{s: s, m: m, first: []uint64{0}} }

// Manifest returns what the snapshot is of.
func (i *Items) Manifest() *Manifest { return i.m }

// Count returns how many items the snapshot holds. It reads what was not read yet.
func (i *Items) Count(ctx context.Context, progress func(part int)) (uint64, error) {
	decoder, err := newDecoder()
	if err != nil {
		return 0, err
	}
	defer decoder.Close()
	for {
		n, first := i.known()
		if n == len(i.m.Parts) {
			return first, nil
		}
		progress(n)
		if _, err := i.readPart(ctx, decoder, n); err != nil {
			return 0, err
		}
	}
}

// known returns how many parts were read, and the ordinal with which the next one begins.
func (i *Items) known() (parts int, first uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.first) - 1, i.first[len(i.first)-1]
}

// holds returns the part that holds an item, among those that were read, and the ordinal of
// its first item; -1 if none of them holds it.
func (i *Items) holds(ordinal uint64) (part int, first uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	// The last part that begins at or before the ordinal. Of parts with one beginning that is
	// the one with items, because the others end where they begin.
	n, _ := slices.BinarySearch(i.first, ordinal+1)
	if n == len(i.first) {
		return -1, 0
	}
	return n - 1, i.first[n-1]
}

// Page returns the items from an ordinal on: at most itemsMax, those of one part at most,
// and none more once their keys and bodies exceed bytesMax. There are none at the end alone.
// Their bodies share memory.
func (i *Items) Page(ctx context.Context, from uint64, itemsMax, bytesMax int) ([]engine.Item, error) {
	decoder, err := newDecoder()
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	for {
		// Each turn reads one part more, until one holds the item: which one it is nobody can know before.
		part, _ := i.holds(from)
		if part < 0 {
			if part, _ = i.known(); part == len(i.m.Parts) {
				return nil, nil
			}
		}
		content, err := i.readPart(ctx, decoder, part)
		if err != nil {
			return nil, err
		}
		// It may hold the item only now that what it holds is known.
		if in, first := i.holds(from); in == part {
			return i.page(ctx, decoder, content, int(from-first), itemsMax, bytesMax)
		}
	}
}

// page returns items of the content of a part. It passes over the first few, which pass
// counts. They are decoded as entries all the same, since entries have no fixed size.
func (i *Items) page(ctx context.Context, decoder *zstd.Decoder, content []byte, pass, itemsMax, bytesMax int) (items []engine.Item, err error) {
	var decode engine.ItemDecoder
	chunks := chunkReader{i: i, ctx: ctx, decoder: decoder, part: -1}
	size := 0
	for rest := content; len(rest) > 0 && len(items) < itemsMax && size <= bytesMax; {
		var e engine.DumpEntry
		if e, rest, err = nextEntry(rest); err != nil {
			return nil, i.damaged(i.m.folder(), err.Error())
		}
		if !e.IsItem() {
			continue
		}
		if pass > 0 {
			pass--
			continue
		}
		item, err := decode.Item(e, chunks.get)
		if errors.Is(err, engine.ErrCorrupt) {
			err = i.damaged(i.m.folder(), err.Error())
		}
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		size += len(e.Key) + len(item.Body)
	}
	return items, nil
}

func (i *Items) damaged(name, reason string) error { return &DamagedError{i.m.Partition, name, reason} }

// readPart returns the content of a part, and notes what the next one begins with.
func (i *Items) readPart(ctx context.Context, decoder *zstd.Decoder, n int) ([]byte, error) {
	name, part := i.m.part(n), &i.m.Parts[n]
	data, err := i.s.Get(ctx, name)
	if errors.Is(err, ErrNotFound) {
		return nil, i.damaged(name, "is gone")
	}
	if err != nil {
		return nil, fmt.Errorf("partition %s: snapshot %s: %w", i.m.Partition, i.m.id, err)
	}
	if err := checkPart(part, data); err != nil {
		return nil, i.damaged(name, err.Error())
	}
	content, err := decoder.DecodeAll(data, nil)
	if err != nil {
		return nil, i.damaged(name, "cannot be decompressed: "+err.Error())
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	// Another goroutine has counted it already, or it is read for its chunks.
	if n != len(i.first)-1 {
		return content, nil
	}
	var key []byte
	items := uint64(0)
	for rest := content; len(rest) > 0; {
		var e engine.DumpEntry
		if e, rest, err = nextEntry(rest); err != nil {
			return nil, i.damaged(name, err.Error())
		}
		if key == nil {
			key = bytes.Clone(e.Key)
		}
		if e.IsItem() {
			items++
		}
	}
	i.first, i.keys = append(i.first, i.first[n]+items), append(i.keys, key)
	return content, nil
}

// chunkReader finds the chunks of large items, which stand in front of all items. It keeps
// the part that it read last: the chunks of items that follow one another do so too.
type chunkReader struct {
	i       *Items
	ctx     context.Context //nolint:containedctx // of one page
	decoder *zstd.Decoder
	part    int
	content []byte
}

func (c *chunkReader) get(key []byte) ([]byte, error) {
	c.i.mu.Lock()
	// Only parts that were read have a key here. That is enough: chunks stand in front of the items, so
	// their parts were read before the item's was known.
	n, found := slices.BinarySearchFunc(c.i.keys, key, bytes.Compare)
	c.i.mu.Unlock()
	if !found {
		n--
	}
	if n < 0 {
		return nil, c.i.damaged(c.i.m.folder(), fmt.Sprintf("has no entry %.40x", key))
	}
	if n != c.part {
		content, err := c.i.readPart(c.ctx, c.decoder, n)
		if err != nil {
			return nil, err
		}
		c.part, c.content = n, content
	}
	for rest := c.content; len(rest) > 0; {
		e, next, err := nextEntry(rest)
		if err != nil {
			return nil, c.i.damaged(c.i.m.part(n), err.Error())
		}
		if bytes.Equal(e.Key, key) {
			return e.Value, nil
		}
		rest = next
	}
	return nil, c.i.damaged(c.i.m.part(n), fmt.Sprintf("has no entry %.40x", key))
}
