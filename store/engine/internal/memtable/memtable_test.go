package memtable_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/millrace/millrace/store/engine/internal/memtable"
)

// opened opens Badger in dir.
func opened(t *testing.T, dir string) *badger.DB {
	t.Helper()
	b, err := badger.OpenManaged(badger.DefaultOptions(dir).WithLogger(nil).WithBlockCacheSize(0).WithMetricsEnabled(false).WithValueLogFileSize(2 << 20).WithCompression(options.None).WithNumCompactors(0).WithMemTableSize(8 << 20).WithValueThreshold(1 << 20))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestWrite_ALogThatIsCutHasWholeTransactions copies the log at any byte, as a kill or a power loss leaves it: the Badger that is opened
// there has all transactions before that byte, and nothing of the one in which it is.
func TestWrite_ALogThatIsCutHasWholeTransactions(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	dir := t.TempDir()
	b := opened(t, dir)
	defer func() { _ = b.Close() }() // its files were copied
	tables, err := memtable.Start(b, slog.New(slog.DiscardHandler), func(y.Iterator) error { return errors.New("nothing is full") })
	if err != nil {
		t.Fatal(err)
	}
	defer tables.Stop(true)
	names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil || len(names) != 1 {
		t.Fatalf("logs %v, %v", names, err)
	}
	size := func() int {
		data, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		return len(strings.TrimRight(string(data), "\x00"))
	}
	const txns = 30
	ends := []int{size()}
	for ts := uint64(1); ts <= txns; ts++ {
		var writes []memtable.Write
		for i := range 1 + r.IntN(4) {
			writes = append(writes, memtable.Write{Key: fmt.Appendf(nil, "k%d-%d", i, r.IntN(5)), Value: fmt.Appendf(nil, "%d %s", ts, strings.Repeat("v", r.IntN(300)))})
		}
		writes = append(writes, memtable.Write{Key: []byte("last"), Value: fmt.Append(nil, ts)}, memtable.Write{Key: []byte("gone"), Delete: ts%2 == 0, Value: map[bool][]byte{false: {1}}[ts%2 == 0]})
		if err := tables.Write(ts, writes); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, size())
	}
	log, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	for range 12 {
		at := ends[0] + r.IntN(ends[txns]-ends[0]+1)
		whole := 0
		for whole < txns && ends[whole+1] <= at {
			whole++
		}
		there := cut(t, dir, names[0], log[:at])
		if there != whole {
			t.Errorf("cut at %d, behind transaction %d, which ends at %d: %d transactions are there", at, whole, ends[whole], there)
		}
	}
}

// cut opens a copy of dir with another log, and returns the last transaction that is there.
func cut(t *testing.T, dir, name string, log []byte) (last int) {
	t.Helper()
	copied := t.TempDir()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if e.Name() == filepath.Base(name) {
			data = log
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(copied, e.Name()), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b := opened(t, copied)
	defer func() { _ = b.Close() }() // it was only read
	txn := b.NewTransactionAt(1<<40, false)
	defer txn.Discard()
	item, err := txn.Get([]byte("last"))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	value, err := item.ValueCopy(nil)
	if err == nil {
		_, err = fmt.Sscan(string(value), &last)
	}
	if err != nil {
		t.Fatal(err)
	}
	if item.Version() != uint64(last) {
		t.Errorf("transaction %d has version %d", last, item.Version())
	}
	if _, err := txn.Get([]byte("gone")); errors.Is(err, badger.ErrKeyNotFound) != (last%2 == 0) {
		t.Errorf("behind transaction %d the key that every second one deletes: %v", last, err)
	}
	return last
}
