package owner

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

// What a process has of a child may be older than the trim point of the parent, or of another history of its log, when a
// split was given up and is prepared anew. It is not gone on from then: the child begins with a seed.
func TestHeir_BeginsAnewWhereTheParentsLogDoesNotGoOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 1})
	n := w.start(t.TempDir())
	end := n.state.Load()
	id := feed.Partition{Container: w.id.Container, Number: 1}
	child, err := n.db.Partition(id)
	if err != nil {
		t.Fatal(err)
	}
	parent, err := n.engine.State()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		sum  feed.Checksum
		fits bool
	}{
		{"the log has another commit there", end.sum + 1, false},
		{"the log goes on from it", end.sum, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := child.NewBatch(nil)
			b.SetState(engine.State{Log: n.log.ID(), Applied: end.lsn, Sum: tt.sum, Time: end.time, Settings: parent.Settings})
			if err := b.Commit(); err != nil {
				t.Fatal(err)
			}
			p := newPartition(id, n.cfg, n.log, child, noRight{}, "node-1/1")
			h, err := p.inherit(t.Context(), n.log, w.id, feed.Range{Max: feed.EPKMax}, end.lsn)
			if tt.fits && err != nil || !tt.fits && !errors.Is(err, errNoSeed) {
				t.Errorf("%v; it fits: %t", err, tt.fits)
			}
			if h != nil {
				h.close()
			}
		})
	}
}
