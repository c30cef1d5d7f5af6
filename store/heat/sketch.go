package heat

import (
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/millrace/millrace/feed"
)

const (
	// slotsMax is the number of counters of a sketch.
	slotsMax = 64
	// keyShown bounds the bytes of a key as it is shown.
	keyShown = 128
)

// sketch finds the keys with the greatest load, by space-saving. What is not said otherwise is
// guarded by mu.
type sketch struct {
	mu    sync.Mutex
	total uint64 // the load that it was given
	asked uint64 // the requests in it
	n     int    // slots in use
	// Apart from the slots, so that a pass over them reads one kilobyte.
	hashes *[slotsMax]uint64 // of keys; nil until there is one
	loads  *[slotsMax]uint64
	slots  *[slotsMax]slot
}

// slot is what is known of one key.
type slot struct {
	error  uint64            // how much of its load may be of others
	key    feed.PartitionKey // none if it is long
	cut    string            // a long key, as it is shown
	counts [classes]Load
}

// add counts a load for a key.
func (s *sketch) add(hash uint64, key feed.PartitionKey, c Class, load Load) {
	if s.hashes == nil {
		s.hashes, s.loads, s.slots = new([slotsMax]uint64), new([slotsMax]uint64), new([slotsMax]slot)
	}
	weight := load.weight()
	s.give(load)
	i := s.find(hash)
	if i < 0 {
		if s.n < slotsMax {
			i = s.n
			s.n++
		} else {
			i = s.least()
		}
		s.hashes[i] = hash
		s.slots[i] = slot{error: s.loads[i], key: key}
		if len(key.Encoded()) > keyShown {
			s.slots[i].key, s.slots[i].cut = feed.PartitionKey{}, cut(key.String())
		}
	}
	s.loads[i] += weight
	counts := &s.slots[i].counts[c]
	*counts = counts.Plus(load)
}

// give adds to the whole alone.
func (s *sketch) give(load Load) {
	s.total += load.weight()
	s.asked += load.Requests
}

// find returns the slot of a hash; -1 if it has none.
func (s *sketch) find(hash uint64) int {
	for i := range s.n {
		if s.hashes[i] == hash {
			return i
		}
	}
	return -1
}

// least returns the slot with the least load.
func (s *sketch) least() int {
	least := 0
	for i := range slotsMax {
		if s.loads[i] < s.loads[least] {
			least = i
		}
	}
	return least
}

// free is how much load a key without a slot may have at most.
func (s *sketch) free() uint64 {
	if s.n < slotsMax {
		return 0
	}
	return s.loads[s.least()]
}

// shown is the key as people read it, cut to what has room.
func (s *slot) shown() string {
	if s.cut != "" {
		return s.cut
	}
	return cut(s.key.String())
}

// cut cuts a text to keyShown bytes.
func cut(text string) string {
	if len(text) <= keyShown {
		return text
	}
	end := keyShown
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end]) + "…" // the clone does not keep the whole text
}
