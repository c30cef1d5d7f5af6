package snapshot

import (
	"fmt"
	"iter"

	"github.com/millrace/millrace/store/engine"
)

// blockBytes bounds the entries in a block that has several. A commit of a log holds one,
// so it is smaller than a part.
const blockBytes = 2 << 20

// blockTarget is blockBytes, which tests make smaller.
var blockTarget = blockBytes

// Blocks puts the entries of a dump together to blocks: each is one byte, 1, and then what a
// part is (FORMAT.md). The bytes are valid until the next block.
func Blocks(entries iter.Seq2[engine.DumpEntry, error]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		encoder, err := newEncoder()
		if err != nil {
			yield(nil, err)
			return
		}
		defer encoder.Close() //nolint:errcheck // nothing is streamed
		var content, block []byte
		flush := func() bool {
			block = encoder.EncodeAll(content, append(block[:0], format))
			content = content[:0]
			return yield(block, nil)
		}
		for e, err := range entries {
			if err != nil {
				yield(nil, err)
				return
			}
			if len(content) > 0 && len(content)+len(e.Key)+len(e.Value)+20 > blockTarget && !flush() {
				return
			}
			content = appendEntry(content, e)
		}
		if len(content) > 0 {
			flush()
		}
	}
}

// BlockEntries returns the entries of a block.
func BlockEntries(block []byte) iter.Seq2[engine.DumpEntry, error] {
	return func(yield func(engine.DumpEntry, error) bool) {
		fail := func(err error) { yield(engine.DumpEntry{}, fmt.Errorf("entries of the engine: %w", err)) }
		if len(block) == 0 || block[0] != format {
			fail(errContent)
			return
		}
		decoder, err := newDecoder()
		if err != nil {
			fail(err)
			return
		}
		defer decoder.Close()
		rest, err := decoder.DecodeAll(block[1:], nil)
		if err != nil {
			fail(err)
			return
		}
		for len(rest) > 0 {
			var e engine.DumpEntry
			if e, rest, err = nextEntry(rest); err != nil {
				fail(err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}
