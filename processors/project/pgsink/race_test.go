package pgsink_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
)

// Partitions that claim each other's keys at the same time, over and over: in the
// end each key that somebody claims has one row, and all others that claim it wait.
func TestPartitionsThatClaimTheSameKeys(t *testing.T) {
	t.Parallel()
	const (
		partitions = 4
		keys       = 5
	)
	batches := 30
	if testing.Short() {
		batches = 10
	}
	newDatabase(t)
	s, schema := newSink(t), orders(t, 1)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	claims := make([]map[string]project.Row, partitions) // by key and source
	var wg sync.WaitGroup
	for p := range partitions {
		claims[p] = map[string]project.Row{}
		w := open(t, s, schema, p, 1)
		r := rand.New(rand.NewPCG(seed, uint64(p)))
		wg.Go(func() {
			var position feed.Position
			for range batches {
				b := claimBatch(r, p, keys, claims[p])
				b.After, b.UpTo = position, feed.Position{LSN: position.LSN + 1}
				if _, err := w.Write(t.Context(), &b); err != nil {
					t.Error(err)
					return
				}
				position = b.UpTo
			}
		})
	}
	wg.Wait()
	compareClaims(t, claims, rowsOf(t, s, schema, 0), rejectsOf(t, s, schema, 0))
}

// claimBatch makes and withdraws claims of a partition, which it notes.
func claimBatch(r *rand.Rand, partition, keys int, claims map[string]project.Row) project.Batch {
	var b project.Batch
	touched := map[string]bool{}
	for range 1 + r.IntN(6) {
		source := fmt.Sprintf("c/[%d]/%d", partition, r.IntN(3))
		row := order(source, fmt.Sprint("k", r.IntN(keys)), fmt.Sprint(r.IntN(100)), r.Int64N(1000))
		row.Element = row.Key[0].Text()
		name := rowName(&row)
		if touched[name] {
			continue
		}
		touched[name] = true
		if r.IntN(2) == 0 {
			b.Drop = append(b.Drop, gone(row))
			delete(claims, name)
		} else {
			b.Put = append(b.Put, row)
			claims[name] = row
		}
	}
	return b
}

func compareClaims(t *testing.T, claims []map[string]project.Row, rows []project.Row, rejects []project.Reject) {
	t.Helper()
	want := map[string]project.Row{}
	claimed := map[string]bool{}
	for _, of := range claims {
		for name, r := range of {
			want[name], claimed[r.Key[0].Text()] = r, true
		}
	}
	held := map[string]string{}
	for i := range rows {
		r := &rows[i]
		if w, ok := want[rowName(r)]; !ok || !project.EqualRows(&w, r) {
			t.Errorf("row %v of %s, want %v", r.Values, r.Source, w.Values)
		}
		held[r.Key[0].Text()] = r.Source
		delete(want, rowName(r))
	}
	if len(held) != len(claimed) {
		t.Errorf("%d keys are claimed, %d have a row", len(claimed), len(held))
	}
	for i := range rejects {
		r := &rejects[i]
		w, ok := want[rowName(&project.Row{Key: r.Key, Source: r.Source})]
		if !ok || r.Reason != project.HeldBy(held[r.Key[0].Text()]) || string(r.Row) != fmt.Sprintf(`{"id":%q,"customer":%q,"total":%s}`,
			w.Values[0], w.Values[1], w.Values[2]) {
			t.Errorf("claim %s of %s, %s: want %v", r.Row, r.Source, r.Reason, w.Values)
		}
		delete(want, rowName(&project.Row{Key: r.Key, Source: r.Source}))
	}
	for _, r := range want {
		t.Errorf("%v of %s is neither a row nor waits", r.Values, r.Source)
	}
}
