package digest

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

// Version is that of what a digest means: which parts there are, what is in them, and what they are the hash of. A
// release under which a log makes other entries than under the one before raises it.
const Version = 1

// Digest tells what a replica of a partition holds as of one commit.
type Digest struct {
	LSN   feed.LSN
	Parts []Part // in order of their names; those that have entries
}

// Part tells of all entries of one sort.
type Part struct {
	Name    string `json:"name"`
	Entries uint64 `json:"entries"`
	// Sum is the hash of the entries, 16 hexadecimal digits.
	Sum string `json:"sum"`
}

// Records says which part a record of the owner belongs to, by the kind of record, and which bytes of its value say what
// it means.
type Records func(kind byte, value []byte) (part string, meaning []byte)

// The names of parts that are not of records.
const (
	partItems    = "items"
	partExpiries = "expiries"
	partIndexes  = "indexes"
	partUnique   = "unique keys"
)

// entriesTurn is how many entries are added between two calls of turn.
const entriesTurn = 128

// ErrGaveWay says that a digest was not computed because others wait until nobody reads the engine.
var ErrGaveWay = errors.New("somebody loads a partition")

// Compute returns the digest of a view. turn is called now and then, and its error ends it. Believe it only if the engine
// is sound afterwards.
func Compute(view *engine.Snapshot, records Records, turn func() error) (Digest, error) {
	state, err := view.State()
	if err != nil {
		return Digest{}, err
	}
	d := Digest{LSN: state.Applied}
	unready, err := unreadyIndexes(state.Settings)
	if err != nil {
		return Digest{}, err
	}
	sums, n := map[string]*sum{}, 0
	for e, err := range view.Dump() {
		if err != nil {
			return Digest{}, err
		}
		if n++; n%entriesTurn == 0 {
			if view.Hinders() {
				return Digest{}, ErrGaveWay
			}
			if err := turn(); err != nil {
				return Digest{}, err
			}
		}
		kind, rest := e.Of()
		name := ""
		switch kind {
		case engine.EntryItem:
			name = partItems
		case engine.EntryExpiry:
			name = partExpiries
		case engine.EntryUnique:
			name = partUnique
		case engine.EntryIndex:
			if len(rest) >= 4 && unready[binary.BigEndian.Uint32(rest)] {
				continue
			}
			name = partIndexes
		case engine.EntryRecord:
			if len(rest) > 0 {
				name, e.Value = records(rest[0], e.Value)
			}
		}
		if name == "" {
			name = fmt.Sprintf("entries %q", kind)
		}
		if sums[name] == nil {
			sums[name] = &sum{digester: engine.NewDigester()}
		}
		sums[name].add(e)
	}
	for name, s := range sums {
		d.Parts = append(d.Parts, Part{name, s.entries, fmt.Sprintf("%016x", s.digester.Sum())})
	}
	slices.SortFunc(d.Parts, func(a, b Part) int { return strings.Compare(a.Name, b.Name) })
	return d, nil
}

type sum struct {
	digester *engine.Digester
	entries  uint64
}

func (s *sum) add(e engine.DumpEntry) {
	s.digester.Add(e)
	s.entries++
}

// unreadyIndexes are the numbers of those that are being built.
func unreadyIndexes(settings []byte) (map[uint32]bool, error) {
	var s store.Settings
	if len(settings) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(settings, &s); err != nil {
		return nil, fmt.Errorf("digest: the settings of the partition: %w", err)
	}
	unready := map[uint32]bool{}
	for i := range s.Indexes {
		unready[s.Indexes[i].Number] = !s.Indexes[i].Ready
	}
	return unready, nil
}

// Differ returns which parts two digests do not have alike, with their numbers of entries, for people; "" if they are
// equal. Who says it is the one who has d.
func (d Digest) Differ(owners Digest) string {
	names := map[string][2]Part{}
	for _, p := range d.Parts {
		names[p.Name] = [2]Part{p, {}}
	}
	for _, p := range owners.Parts {
		names[p.Name] = [2]Part{names[p.Name][0], p}
	}
	type difference struct{ name, text string }
	var all []difference
	for name, pair := range names {
		own, theirs := pair[0], pair[1]
		switch {
		case own.Entries == theirs.Entries && own.Sum == theirs.Sum:
		case own.Entries == theirs.Entries:
			all = append(all, difference{name, fmt.Sprintf("%s (some of %d)", name, own.Entries)})
		default:
			all = append(all, difference{name, fmt.Sprintf("%s (%d in the copy, %d at the owner)", name, own.Entries, theirs.Entries)})
		}
	}
	slices.SortFunc(all, func(a, b difference) int { return cmp.Compare(a.name, b.name) })
	texts := make([]string, len(all))
	for i := range all {
		texts[i] = all[i].text
	}
	return strings.Join(texts, ", ")
}
