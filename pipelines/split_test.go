package pipelines_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// splitter has a container of one partition whose logs and catalog record the test writes: nobody owns it.
type splitter struct {
	*node
	t    testing.TB
	dir  string
	info store.ContainerInfo
	last map[uint32]feed.LSN
	sums map[uint32]feed.Checksum
}

const (
	splitContainer = `
apiVersion: millrace/v1
kind: Container
metadata: {name: customer}
spec: {partitionKey: [/customerId], partitions: 1}
`
	lsnRoom = 1 << 20
)

// newSplitter has a pipeline that writes the orders to Parquet files. It has no worker yet.
func newSplitter(t *testing.T) *splitter {
	t.Helper()
	n := nodeOf(t, storetest.System(t))
	s := &splitter{node: n, t: t, dir: t.TempDir(), last: map[uint32]feed.LSN{}, sums: map[uint32]feed.Checksum{}}
	n.apply(t, decode(t, splitContainer))
	n.apply(t, rows(t, "{parquet: {path: "+s.dir+", commitInterval: 1s}}", doubleTotals))
	s.info = n.container(t, "customer").Info()
	log := s.open(0)
	defer log.Close()
	_, last, err := log.Bounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := log.Read(t.Context(), last)
	if err != nil {
		t.Fatal(err)
	}
	s.last[0], s.sums[0] = last, c.Sum
	return s
}

func (s *splitter) open(number uint32) *feed.Log {
	s.t.Helper()
	log, err := feed.OpenLog(s.t.Context(), s.js, feed.Partition{Container: s.info.ID, Number: number}, feed.LogConfig{})
	if err != nil {
		s.t.Fatal(err)
	}
	return log
}

// commit appends one transaction to a partition's log.
func (s *splitter) commit(number uint32, id feed.CommitID, tx feed.Transaction) {
	s.t.Helper()
	log := s.open(number)
	defer log.Close()
	c := &feed.Commit{
		ID: id, Log: log.ID(), Prev: s.sums[number], Epoch: 1, Owner: "test", Time: time.Now().UnixMilli(), Transactions: []feed.Transaction{tx},
	}
	if s.sums[number] == 0 {
		c.Trimmed = s.last[number]
	}
	last, err := log.Append(s.t.Context(), s.last[number], id, feed.AppendCommit(nil, c))
	if err != nil {
		s.t.Fatal(err)
	}
	s.last[number], s.sums[number] = last, c.Sum
}

// order commits one order of a customer; its total tells which write of it it is.
func (s *splitter) order(number uint32, id string, total int) {
	s.t.Helper()
	key, err := feed.NewPartitionKey("c1")
	if err != nil {
		s.t.Fatal(err)
	}
	body := fmt.Appendf(nil, `{"id":%q,"customerId":"c1","type":"order","total":%d}`, id, total)
	s.commit(number, feed.NewCommitID(), feed.Transaction{Changes: []feed.Change{{Op: feed.OpCreate, Key: key, ID: id, After: body}}})
}

// split ends the log of a partition and begins those of its children. The catalog learns of it by publish.
func (s *splitter) split(parent, left, right uint32) store.FormerPartition {
	s.t.Helper()
	split := &feed.Split{ID: fmt.Sprint("s", parent), First: s.last[parent] + lsnRoom}
	former := store.FormerPartition{PartitionInfo: store.PartitionInfo{Number: parent}, Children: []uint32{left, right}, First: split.First}
	for _, n := range former.Children {
		log := feed.NewLogID()
		p := feed.Partition{Container: s.info.ID, Number: n}
		if err := feed.CreateLog(s.t.Context(), s.js, p, log, feed.LogConfig{After: split.First - 1}); err != nil {
			s.t.Fatal(err)
		}
		split.Children = append(split.Children, feed.Offshoot{Number: n, Log: log, Genesis: feed.NewCommitID()})
		s.last[n] = split.First - 1
	}
	control, err := split.Control(feed.ControlSplit)
	if err != nil {
		s.t.Fatal(err)
	}
	s.commit(parent, feed.NewCommitID(), feed.Transaction{Control: control})
	former.Last = s.last[parent]
	for _, c := range split.Children {
		s.commit(c.Number, c.Genesis, feed.Transaction{Control: &feed.Control{Kind: store.ControlGenesis, Data: []byte(`{}`)}})
	}
	return former
}

// publish makes the catalog name the children in place of a parent.
func (s *splitter) publish(former store.FormerPartition) {
	s.t.Helper()
	info, err := s.client.Catalog().Get(s.t.Context(), s.info.Database, s.info.Name)
	if err != nil {
		s.t.Fatal(err)
	}
	at := slices.IndexFunc(info.Partitions, func(p store.PartitionInfo) bool { return p.Number == former.Number })
	former.PartitionInfo = info.Partitions[at]
	children := make([]store.PartitionInfo, 2)
	for i, n := range former.Children {
		log := s.open(n)
		children[i] = store.PartitionInfo{Number: n, Range: former.Range, Log: log.ID()}
		log.Close()
	}
	children[0].Range.Max, children[1].Range.Min = feed.EPK([]byte{8, byte(former.Number)}), feed.EPK([]byte{8, byte(former.Number)})
	info.Partitions = slices.Replace(info.Partitions, at, at+1, children...)
	info.Former = append(info.Former, former)
	data, err := json.Marshal(info)
	if err != nil {
		s.t.Fatal(err)
	}
	kv, err := s.js.KeyValue(s.t.Context(), store.CatalogBucket)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := kv.Update(s.t.Context(), store.CatalogKey(info.Database, info.Name), data, info.Revision); err != nil {
		s.t.Fatal(err)
	}
}

// await waits until the rows are those of the orders, by id and total.
func (s *splitter) await(want ...string) {
	s.t.Helper()
	poll.Until(s.t, func() error {
		var got []string
		for _, row := range s.parquet(s.t, s.dir, "double") {
			var text []string
			for _, v := range row.Values {
				text = append(text, v.String())
			}
			got = append(got, strings.Join(text, " "))
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("rows (-want +got):\n%s", diff)
		}
		return nil
	})
}

// lease returns the checkpoint of a partition's reader; nil if it has not begun.
func (s *splitter) lease(number uint32) *processors.Checkpoint {
	s.t.Helper()
	held, err := leases.List(s.t.Context(), s.js, "")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, l := range held {
		if strings.HasSuffix(l.Resource, fmt.Sprintf("/source/%s/%d", s.info.ID, number)) && len(l.Checkpoint) > 0 {
			cp, err := processors.DecodeCheckpoint(l.Checkpoint)
			if err != nil {
				s.t.Fatal(err)
			}
			return cp
		}
	}
	return nil
}

// A worker that runs goes on through a split, and through that of a child, without a restart.
func TestSplit_AWorkerGoesOnThroughTwoGenerations(t *testing.T) {
	t.Parallel()
	s := newSplitter(t)
	s.work(t, s.client, compile.SinkLimits{})
	s.order(0, "a", 1)
	s.order(0, "b", 1)
	s.await("c1 a 1", "c1 b 1")
	first := s.split(0, 1, 2)
	s.order(1, "a", 2)
	s.order(2, "b", 2)
	s.publish(first)
	s.await("c1 a 2", "c1 b 2")
	second := s.split(2, 3, 4)
	s.order(4, "b", 3)
	s.publish(second)
	s.await("c1 a 2", "c1 b 3")
	s.ended(0, 2)
	if cp := s.lease(4); cp.Parent == nil || cp.Parent.Number != 2 || cp.Parent.Last != second.Last {
		t.Errorf("the last child notes %+v", cp.Parent)
	}
}

// ended waits until the readers of partitions have ended, and nothing of them is told any more.
func (s *splitter) ended(numbers ...uint32) {
	s.t.Helper()
	poll.Until(s.t, func() error {
		for _, n := range numbers {
			if cp := s.lease(n); cp == nil || !cp.Ended() {
				return fmt.Errorf("partition %d has %+v", n, cp)
			}
		}
		return nil
	})
	s.idle(s.t)
	status, err := s.monitor.Read(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, p := range status.Pipelines[0].Processors {
		for _, n := range numbers {
			if p.Partition == fmt.Sprintf("%s/%d", s.info.ID, n) {
				s.t.Errorf("status tells of a partition that was split and is read to its end: %+v", p)
			}
		}
	}
	if !status.Pipelines[0].Lag.None() {
		s.t.Errorf("lag: %+v", status.Pipelines[0].Lag)
	}
}

// A worker that was away for both splits reads the logs in their order: each item has its last write.
func TestSplit_AWorkerSleepsThroughTwoGenerations(t *testing.T) {
	t.Parallel()
	s := newSplitter(t)
	stop := s.work(t, s.client, compile.SinkLimits{})
	s.order(0, "a", 1)
	s.await("c1 a 1")
	stop()
	s.order(0, "a", 2)
	s.order(0, "b", 2)
	first := s.split(0, 1, 2)
	s.order(1, "a", 3)
	s.order(2, "b", 3)
	second := s.split(2, 3, 4)
	s.order(3, "b", 4)
	s.publish(first)
	s.publish(second)
	s.work(t, s.client, compile.SinkLimits{})
	s.await("c1 a 3", "c1 b 4")
	s.ended(0, 2)
	if cp := s.lease(4); cp == nil || cp.Parent == nil || cp.Parent.Number != 2 {
		t.Errorf("a child to which nothing came was not begun with: %+v", cp)
	}
}

// Two workers, of which each sees the parent end, make one beginning of each child; and what ended is not read again when
// the record of its lease is lost.
func TestSplit_WhatHasEndedIsNotReadAgain(t *testing.T) {
	t.Parallel()
	s := newSplitter(t)
	s.work(t, s.client, compile.SinkLimits{})
	stop := s.work(t, s.client, compile.SinkLimits{})
	s.order(0, "a", 1)
	first := s.split(0, 1, 2)
	s.order(1, "a", 2)
	s.publish(first)
	s.await("c1 a 2")
	s.ended(0)
	held, err := leases.List(t.Context(), s.js, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range held {
		if strings.HasSuffix(l.Resource, "/source/"+string(s.info.ID)+"/0") {
			if err := leases.Forget(t.Context(), s.js, "", l.Group, l.Resource); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop()
	s.order(1, "a", 3)
	s.await("c1 a 3")
	s.idle(t)
	if cp := s.lease(0); cp != nil {
		t.Errorf("the parent is read again: %+v", cp)
	}
}

// The bucket of the leases is lost behind a split: the parent is read again, its children begin where it ends, and the rows are
// what they were.
func TestSplit_LostLeasesBeginWithTheParent(t *testing.T) {
	t.Parallel()
	s := newSplitter(t)
	stop := s.work(t, s.client, compile.SinkLimits{})
	s.order(0, "a", 1)
	first := s.split(0, 1, 2)
	s.order(1, "a", 2)
	s.publish(first)
	s.await("c1 a 2")
	s.ended(0)
	stop()
	for _, l := range s.workerLeases(t) {
		if err := leases.Forget(t.Context(), s.js, "", l.Group, l.Resource); err != nil {
			t.Fatal(err)
		}
	}
	s.order(1, "a", 3)
	s.order(2, "b", 1)
	s.work(t, s.client, compile.SinkLimits{})
	s.await("c1 a 3", "c1 b 1")
	s.ended(0)
}
