package accumulator

import (
	"bytes"
	"iter"
	"slices"

	"github.com/millrace/millrace/feed"
)

// Memory keeps Records in memory, in order: for a recomputation, and for rules that
// run without a store. The zero Memory is empty. It is not safe for concurrent use.
type Memory struct {
	// blocks are never empty; all keys of one are below those of the next.
	blocks [][]feed.Record
	len    int
}

// blockMax bounds the records of a block, so that an insertion moves few.
const blockMax = 256

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{} }

// find returns the block in which a key is or would be, and where.
func (m *Memory) find(key []byte) (block, at int, found bool) {
	// The first block whose last key is not below key. A key above all belongs at the end of
	// the last block.
	block, _ = slices.BinarySearchFunc(m.blocks, key, func(b []feed.Record, key []byte) int {
		return bytes.Compare(b[len(b)-1].Key, key)
	})
	if block == len(m.blocks) {
		if block == 0 {
			return 0, 0, false
		}
		block--
		return block, len(m.blocks[block]), false
	}
	at, found = slices.BinarySearchFunc(m.blocks[block], key, func(r feed.Record, key []byte) int {
		return bytes.Compare(r.Key, key)
	})
	return block, at, found
}

// Get returns the value of a key, nil if it has none. The error is nil.
func (m *Memory) Get(key []byte) ([]byte, error) {
	block, at, found := m.find(key)
	if !found {
		return nil, nil
	}
	return m.blocks[block][at].Value, nil
}

// Put sets the value of a key; nil removes it. It keeps both slices.
func (m *Memory) Put(key, value []byte) {
	block, at, found := m.find(key)
	switch {
	case found && value != nil:
		m.blocks[block][at].Value = value
	case found:
		m.len--
		if m.blocks[block] = slices.Delete(m.blocks[block], at, at+1); len(m.blocks[block]) == 0 {
			m.blocks = slices.Delete(m.blocks, block, block+1)
		}
	case value != nil:
		m.len++
		if len(m.blocks) == 0 {
			m.blocks = append(m.blocks, nil)
		}
		b := slices.Insert(m.blocks[block], at, feed.Record{Key: key, Value: value})
		m.blocks[block] = b
		if len(b) > blockMax {
			half := len(b) / 2
			m.blocks[block] = b[:half:half]
			m.blocks = slices.Insert(m.blocks, block+1, slices.Clone(b[half:]))
		}
	}
}

// Range yields the records whose keys begin with prefix, in ascending order,
// without an error. Nothing may be put meanwhile.
func (m *Memory) Range(prefix []byte) iter.Seq2[feed.Record, error] {
	return func(yield func(feed.Record, error) bool) {
		block, at, _ := m.find(prefix)
		for ; block < len(m.blocks); block, at = block+1, 0 {
			for _, r := range m.blocks[block][at:] {
				if !bytes.HasPrefix(r.Key, prefix) || !yield(r, nil) {
					return
				}
			}
		}
	}
}
