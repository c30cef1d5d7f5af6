package verify

import (
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors/project"
)

// rowSum is a sum of digests under a name: those of the rows and rejects of one item
// in one table.
type rowSum struct {
	name, digest uint64
	unasked      bool // the item need not have them
}

// rowSums gathers what items have in tables. Not safe for concurrent use.
type rowSums struct {
	p       *project.Projection
	keeps   bool // rejects count
	unasked bool // of the items that follow
	sums    []rowSum
	buf     []byte
}

func newRowSums(p *project.Projection, keeps bool) *rowSums { return &rowSums{p: p, keeps: keeps} }

// RowSeed makes digests that nobody can choose rows for.
var RowSeed = maphash.MakeSeed()

// sumName names the sum of an item and a table. Two that share a name are summed up
// together, which does no harm.
func sumName(table int, source string) uint64 {
	return maphash.String(RowSeed, source) + uint64(table)*0x9e3779b97f4a7c15
}

// item adds the rows and rejects of an item, or with sign -1 takes them away.
func (s *rowSums) item(key feed.PartitionKey, id string, body []byte, sign int) {
	rows, rejects := s.p.RowsOf(key, id, body)
	for i := range rows {
		s.add(rows[i].Table, rows[i].Source, s.rowDigest(&rows[i]), sign)
	}
	if !s.keeps {
		return
	}
	for i := range rejects {
		s.add(rejects[i].Table, rejects[i].Source, s.rejectDigest(&rejects[i]), sign)
	}
}

func (s *rowSums) add(table int, source string, digest uint64, sign int) {
	if sign < 0 {
		// Sums wrap around, so that adding and taking away cancel in any order, and
		// what a page adds can be taken away by a change that is read before it.
		digest = -digest
	}
	s.sums = append(s.sums, rowSum{sumName(table, source), digest, s.unasked})
}

// joined returns the sums, each name once, without those that come to nothing.
func (s *rowSums) joined() []rowSum {
	var joined []rowSum
	// A change of one item makes a handful of sums: a search along the list will do.
	for _, one := range s.sums {
		at := slices.IndexFunc(joined, func(o rowSum) bool { return o.name == one.name })
		if at < 0 {
			joined = append(joined, one)
			continue
		}
		joined[at].digest += one.digest
	}
	return slices.DeleteFunc(joined, func(o rowSum) bool { return o.digest == 0 })
}

// rowDigest is equal for rows that project.EqualRows says are the same.
func (s *rowSums) rowDigest(r *project.Row) uint64 {
	s.buf = binary.AppendUvarint(s.buf[:0], uint64(len(r.Element)))
	s.buf = append(s.buf, r.Element...)
	for i := range r.Values {
		// Two JSON texts can be equal and differ in their bytes; the digest must not.
		if v := r.Values[i]; v.Kind() == project.JSON {
			s.buf = binary.LittleEndian.AppendUint64(append(s.buf, byte(project.JSON)), JSONDigest([]byte(v.JSON())))
		} else {
			s.buf = project.AppendKey(s.buf, r.Values[i:i+1])
		}
	}
	return maphash.Bytes(RowSeed, s.buf)
}

// rejectDigest tells rejects apart, though not by their words.
func (s *rowSums) rejectDigest(r *project.Reject) uint64 {
	s.buf = append(append(s.buf[:0], "reject "...), r.Element...)
	s.buf = append(append(s.buf, 0), r.Column...)
	return maphash.Bytes(RowSeed, s.buf)
}

// rejectOrClaim is the digest of a reject, or of the row for which a claim stands.
func (s *rowSums) rejectOrClaim(r *project.Reject) (uint64, error) {
	if !r.Pending() {
		return s.rejectDigest(r), nil
	}
	values, err := s.p.Schema().Tables[r.Table].ParseRow(r.Row)
	if err != nil {
		return 0, err
	}
	return s.rowDigest(&project.Row{Table: r.Table, Values: values, Element: r.Element}), nil
}

// JSONDigest is equal for JSON values that document.Equal says are the same.
func JSONDigest(raw []byte) uint64 {
	kind := document.KindOf(raw)
	sum := uint64(kind)
	switch kind {
	case document.Object:
		document.Members(raw, func(name, value []byte) bool {
			sum += mixed(xxhash.Sum64(name), JSONDigest(value)) // members have no order
			return true
		})
		return mixed(uint64(kind), sum)
	case document.Array:
		document.Elements(raw, func(_ int, value []byte) bool {
			sum = mixed(sum, JSONDigest(value))
			return true
		})
		return sum
	default:
		var scratch [64]byte
		return xxhash.Sum64(document.AppendCanonical(append(scratch[:0], byte(kind)), raw))
	}
}

// mixed is a digest of two, in their order.
func mixed(a, b uint64) uint64 {
	var both [16]byte
	binary.LittleEndian.PutUint64(both[:8], a)
	binary.LittleEndian.PutUint64(both[8:], b)
	return xxhash.Sum64(both[:])
}
