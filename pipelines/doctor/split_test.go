package doctor_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/doctor"
	"github.com/millrace/millrace/store"
)

// split splits partition 0 of a container as its owner does, and returns it.
func (w *ward) split(name string) feed.Partition {
	w.t.Helper()
	info := w.container(name)
	parent := feed.Partition{Container: info.ID}
	log, err := feed.OpenLog(w.t.Context(), w.js, parent, feed.LogConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	_, last, err := log.Bounds(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	genesis, err := log.Read(w.t.Context(), last)
	if err != nil {
		w.t.Fatal(err)
	}
	plan, err := w.catalog.PlanSplit(w.t.Context(), info.Database, info.Name, 0, feed.EPK("\x10"+strings.Repeat("\x00", store.BoundaryBytes-1)), false)
	if err != nil {
		w.t.Fatal(err)
	}
	planned := w.container(name)
	split := &feed.Split{ID: plan.ID, First: last + 1000}
	for _, child := range plan.Children {
		split.Children = append(split.Children, feed.Offshoot{Number: child.Number, Range: child.Range, Log: child.Log, Genesis: feed.NewCommitID()})
	}
	control, err := split.Control(feed.ControlSplit)
	if err != nil {
		w.t.Fatal(err)
	}
	end := commitOf(log, genesis.Sum, 0, control)
	if last, err = log.Append(w.t.Context(), last, end.ID, feed.AppendCommit(nil, end)); err != nil {
		w.t.Fatal(err)
	}
	former := store.FormerPartition{PartitionInfo: info.Partitions[0], Last: last, Checksum: end.Sum.String(), First: split.First}
	for _, child := range plan.Children {
		log, err := w.catalog.MakeChildLog(w.t.Context(), &planned, child, split.First-1)
		if err != nil {
			w.t.Fatal(err)
		}
		data, err := json.Marshal(store.Parent{Partition: parent.String(), Log: former.Log, LSN: last, Checksum: former.Checksum, Range: &child.Range})
		if err != nil {
			w.t.Fatal(err)
		}
		first := commitOf(log, end.Sum, split.First-1, &feed.Control{Kind: store.ControlGenesis, Data: []byte(`{}`)}, &feed.Control{Kind: store.ControlParent, Data: data})
		if _, err := log.Append(w.t.Context(), split.First-1, first.ID, feed.AppendCommit(nil, first)); err != nil {
			w.t.Fatal(err)
		}
		log.Close()
		former.Children = append(former.Children, child.Number)
	}
	if _, err := w.catalog.EndSplit(w.t.Context(), info.Database, info.Name, plan.ID, former); err != nil {
		w.t.Fatal(err)
	}
	return parent
}

func commitOf(log *feed.Log, prev feed.Checksum, trimmed feed.LSN, controls ...*feed.Control) *feed.Commit {
	c := &feed.Commit{ID: feed.NewCommitID(), Log: log.ID(), Prev: prev, Owner: "test", Epoch: 1, Time: time.Now().UnixMilli(), Trimmed: trimmed}
	for _, control := range controls {
		c.Transactions = append(c.Transactions, feed.Transaction{Control: control})
	}
	return c
}

// TestExamine_TellsOfFormerLogsThatAreGone and that the children may need.
func TestExamine_TellsOfFormerLogsThatAreGone(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.apply()
	parent := w.split("product")
	if r := w.examine(); !r.Well() {
		t.Fatalf("of a container that was split: %+v", r.Findings)
	}
	if err := w.js.DeleteStream(t.Context(), parent.Stream()); err != nil {
		t.Fatal(err)
	}
	if r := w.examine(); r.Well() || !strings.Contains(fmt.Sprint(r.Findings), "stream "+parent.Stream()+" is not there") ||
		!strings.Contains(fmt.Sprint(r.Findings), "partitions 2 and 3") {
		t.Errorf("%+v", r.Findings)
	}
}

// TestFix_DoesNotGuessTheRangesOfASplitContainer: without a label nothing tells them. With one, it is as it was.
func TestFix_DoesNotGuessTheRangesOfASplitContainer(t *testing.T) {
	t.Parallel()
	w := newSoundWard(t)
	parent := w.split("product")
	info := w.container("product")
	names := map[feed.ResourceID]doctor.Name{info.ID: {Database: "default", Container: "product"}}
	// A log's label may be older, and then the log goes on with the split.
	w.lose(store.CatalogBucket, store.CatalogKey("default", "product"))
	if r := w.fix(nil); !r.Well() {
		t.Fatalf("with labels: %+v", r)
	}
	w.open()
	if is := w.container("product"); is.PlannedOf(0) == nil && len(is.Former) != 1 {
		t.Errorf("it is %+v, and was %+v", is, info)
	}
	w.unlabel()
	w.lose(store.CatalogBucket, store.CatalogKey("default", "product"))
	refused := func(says string) {
		t.Helper()
		if r := w.fix(names); r.Well() || !strings.Contains(fmt.Sprint(r.Findings), "was split: log "+says) || !strings.Contains(fmt.Sprint(r.Findings), store.LabelContainer) {
			t.Errorf("%+v; want %q", r, says)
		}
	}
	refused(parent.String() + " ends with a split into 2 and 3")
	if err := w.js.DeleteStream(t.Context(), parent.Stream()); err != nil {
		t.Fatal(err)
	}
	refused(feed.Partition{Container: info.ID, Number: 2}.String() + " goes on from LSN")
}
