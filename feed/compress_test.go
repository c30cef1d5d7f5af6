package feed_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"github.com/millrace/millrace/feed"
)

func TestCompressed_Golden(t *testing.T) {
	want := sample(t)
	want.Trimmed = 1 << 20
	for range 5 {
		want.Transactions = append(want.Transactions, want.Transactions[1])
	}
	golden(t, "commit-v3-compressed", want, feed.AppendCompressed(nil, want, 0), false)
}

// compressed encodes c, and fails unless it was compressed.
func compressed(tb testing.TB, c *feed.Commit) []byte {
	tb.Helper()
	data := feed.AppendCompressed(nil, c, 0)
	if data[0] != 3 || data[1]&2 == 0 {
		tb.Fatalf("version %d, flags %02x: it is not compressed", data[0], data[1])
	}
	return data
}

func TestCompressed_ComesBack(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 50 {
		want := randomCommit(t, r)
		want.Trimmed = feed.LSN(i % 3)
		// What is written twice can be compressed, however random it is.
		want.Transactions = append(want.Transactions, want.Transactions...)
		data := feed.AppendCompressed(nil, want, 0)
		got, err := feed.DecodeCommit(data)
		if err != nil {
			t.Fatal(err)
		}
		// Not cmp.Diff, which takes seconds for so many fields under the race detector.
		sum := got.Sum
		plain := feed.AppendCommit(nil, want)
		if again := feed.AppendCommit(nil, got); !bytes.Equal(plain, again) {
			t.Fatalf("what was decoded is encoded to %d bytes, what was encoded to %d", len(again), len(plain))
		}
		if want := feed.Checksum(xxhash.Sum64(data)); sum != want {
			t.Errorf("checksum %s, want %s", sum, want)
		}
		if data[0] == 3 && len(data) >= len(plain) {
			t.Errorf("%d bytes compressed, %d plain", len(data), len(plain))
		}
		h, err := feed.DecodeHeader(data)
		if err != nil || h.Bytes < len(plain)-5 || h.Bytes > len(plain) || h.Changes != want.ChangeCount() || h.Trimmed != want.Trimmed {
			t.Errorf("header %+v, %v; the commit has %d bytes", h, err, len(plain))
		}
	}
}

func TestCompressed_AppendsBehindWhatIsThere(t *testing.T) {
	c := orders(t, 3, 3)
	alone := compressed(t, c)
	sum := c.Sum
	behind := feed.AppendCompressed([]byte("head"), c, 0)
	if !bytes.Equal(behind[4:], alone) || c.Sum != sum {
		t.Error("the encoding depends on what stands before it")
	}
}

// A commit stays in the first version that has what it needs where compression is not worth it.
func TestCompressed_OnlyWhereItPays(t *testing.T) {
	random := make([]byte, 4096)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	large := orders(t, 1, 0)
	large.Transactions[0].Changes[0].After = make([]byte, 8<<20)
	noise := &feed.Commit{Transactions: []feed.Transaction{{Control: &feed.Control{Kind: "x", Data: random}}}}
	for name, c := range map[string]struct {
		commit   *feed.Commit
		bytesMin int
	}{
		"below the least size":       {orders(t, 1, 0), 4096},
		"no eighth is saved":         {noise, 0},
		"more than any commit has":   {large, 0},
		"a commit without substance": {&feed.Commit{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := feed.AppendCompressed(nil, c.commit, c.bytesMin)
			if want := feed.AppendCommit(nil, c.commit); !bytes.Equal(got, want) {
				t.Errorf("version %d, %d bytes; want version %d, %d bytes", got[0], len(got), want[0], len(want))
			}
		})
	}
}

func TestCompressed_RefusesWhatIsNotAWholeCommit(t *testing.T) {
	refusesParts(t, compressed(t, orders(t, 3, 3)))
}

// blockAt returns where the block of a compressed commit begins: behind owner and counts, which
// are short here, and no trim point.
func blockAt(data []byte) int {
	at := 58 + 1 + int(data[58])
	for range 2 {
		_, n := binary.Uvarint(data[at:])
		at += n
	}
	return at
}

// forge puts other bytes in the place of a block's length, and the right checksum behind.
func forge(tb testing.TB, data []byte, length ...byte) []byte {
	tb.Helper()
	at := blockAt(data)
	_, n := binary.Uvarint(data[at:])
	return feed.Seal(slices.Concat(data[:at], length, data[at+n:]))
}

// Whoever can write to a stream can seal what he likes.
func TestCompressed_RefusesForgedLengths(t *testing.T) {
	c := orders(t, 3, 3)
	data := compressed(t, c)
	at := blockAt(data)
	plain, err := s2.Decode(nil, data[at:len(data)-8])
	if err != nil {
		t.Fatal(err)
	}
	packed := func(plain []byte) []byte {
		return feed.Seal(slices.Concat(data[:at], s2.Encode(nil, plain), make([]byte, 8)))
	}
	flags := func(version, flags byte) []byte {
		other := bytes.Clone(data)
		other[0], other[1] = version, flags
		return feed.Seal(other)
	}
	counts := bytes.Clone(data)
	counts[at-1] = 0x7F // 127 changes in three transactions
	for name, refused := range map[string][]byte{
		"one byte more":                  forge(t, data, binary.AppendUvarint(nil, uint64(len(plain)+1))...),
		"one byte less":                  forge(t, data, binary.AppendUvarint(nil, uint64(len(plain)-1))...),
		"none":                           forge(t, data, 0),
		"one above the limit":            forge(t, data, binary.AppendUvarint(nil, 8<<20+1)...),
		"four gigabytes":                 forge(t, data, binary.AppendUvarint(nil, 1<<32-1)...),
		"more than an integer has":       forge(t, data, binary.AppendUvarint(nil, 1<<64-1)...),
		"longer than a number":           forge(t, data, bytes.Repeat([]byte{0xFF}, 11)...),
		"a length in too many bytes":     forge(t, data, 0x80|byte(len(plain)), 0x80|byte(len(plain)>>7), 0x80, 0x80, 0x80, 0),
		"the limit, with nothing behind": forge(t, data[:at+1], 0x80, 0x80, 0x80, 0x04),
		"transactions cut short":         packed(plain[:len(plain)-1]),
		"a byte behind transactions":     packed(append(plain, 0)),
		"other counts":                   feed.Seal(counts),
		"a block behind the block":       feed.Seal(slices.Concat(data[:len(data)-8], data[at:])),
		"a flag of no version":           flags(3, 2|4),
		"the flag in version 2":          flags(2, 2),
		"the flag in version 1":          flags(1, 2),
		"not the flag":                   flags(3, 0),
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := feed.DecodeCommit(refused)
			runtime.ReadMemStats(&after)
			if !isFormat(err) {
				t.Errorf("error %v", err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 9<<20 {
				t.Errorf("%d bytes were allocated", took)
			}
		})
	}
	if _, err := feed.DecodeCommit(packed(append(plain, 0))); err == nil || !strings.Contains(err.Error(), "decompressed") {
		t.Errorf("the error does not say what its offset counts: %v", err)
	}
}

// A commit that was decompressed takes the memory of what it was decompressed to.
func TestCompressed_MemoryIsWhatItTakes(t *testing.T) {
	for _, n := range []int{3, 50, 500} {
		data := compressed(t, orders(t, n, n))
		took, one := decoded(t, data)
		got := one.Memory() + len(data) // decoded keeps the messages too
		t.Logf("%d orders: message %d bytes, takes %d, Memory says %d", n, len(data), took, got)
		if got < took*3/4 || got > took*3/2 {
			t.Errorf("%d orders: Memory says %d bytes, the commit takes %d", n, got, took)
		}
	}
}

// A page ends by the bytes that its commits are decompressed to. Behind the first page the server
// is asked for no more than that.
func TestCompressed_APageIsBoundedByWhatItHolds(t *testing.T) {
	bed := newBed(t)
	l := bed.log(t)
	c := orders(t, 50, 50)
	c.Log = bed.id
	const commits = 40
	plain, stored := 0, 0
	for lsn := range feed.LSN(commits) {
		c.ID = feed.NewCommitID()
		data := compressed(t, c)
		c.Prev = c.Sum
		if _, err := l.Append(t.Context(), lsn, c.ID, data); err != nil {
			t.Fatal(err)
		}
		plain, stored = len(feed.AppendCommit(nil, c)), stored+len(data)
	}
	next, pages := feed.LSN(1), 0
	before := bed.nc.Stats().InMsgs
	for next <= commits {
		page, err := l.ReadPage(t.Context(), next, commits, stored)
		if err != nil || len(page) == 0 {
			t.Fatalf("%d commits, %v", len(page), err)
		}
		if most := stored/plain + 1; len(page) > most {
			t.Errorf("a page of %d bytes at most has %d commits of %d bytes", stored, len(page), plain)
		}
		next, pages = next+feed.LSN(len(page)), pages+1
	}
	if pages < 2 {
		t.Errorf("%d pages", pages)
	}
	// All of them for the first page, which throws most away; then each commit, and the end of each
	// page. The client counts a message twice. Without the expansion there are some 600.
	if sent := int(bed.nc.Stats().InMsgs - before); sent > 2*(commits+commits+2*pages) {
		t.Errorf("the server sent %d messages for %d commits in %d pages", sent, commits, pages)
	}
	expect(t, mustTail(t, l, 1, feed.TailOptions{}), 1, commits)
}
