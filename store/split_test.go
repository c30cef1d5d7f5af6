package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/store"
)

// splits is a container whose partitions the test splits: their logs are there, and in place of owners there is a map.
type splits struct {
	t       *testing.T
	server  *natstest.Server
	catalog *store.Catalog
	local   *store.Local
	client  *store.Client
	began   int64 // unix milliseconds

	mu    sync.Mutex // guards what follows: pages ask from goroutines
	info  store.ContainerInfo
	logs  map[uint32]*splitLog
	items map[string]store.Item // by their cursors
	asked map[string]int        // requests, by partition and kind
}

// splitLog is the log of one partition.
type splitLog struct {
	*feed.Log
	last    feed.LSN
	sum     feed.Checksum
	trimmed feed.LSN
}

// newSplits makes a container of one partition.
func newSplits(t *testing.T) *splits {
	t.Helper()
	s := &splits{t: t, server: natstest.Start(t), local: &store.Local{}, logs: map[uint32]*splitLog{}, items: map[string]store.Item{}, asked: map[string]int{}}
	s.catalog = catalogOf(t, s.server.JS)
	var err error
	s.info, err = s.catalog.Create(t.Context(), "shop", "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	s.must(err)
	s.client = store.NewClient(s.server.NC, s.catalog, store.ClientConfig{Local: s.local})
	s.open(0, 0)
	s.serve(0)
	return s
}

func (s *splits) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *splits) partition(number uint32) feed.Partition {
	return feed.Partition{Container: s.info.ID, Number: number}
}

func (s *splits) container() *store.Container {
	s.t.Helper()
	c, err := s.client.Container(s.t.Context(), "shop", "things")
	s.must(err)
	return c
}

func (s *splits) open(number uint32, after feed.LSN) {
	s.t.Helper()
	log, err := feed.OpenLog(s.t.Context(), s.server.JS, s.partition(number), feed.LogConfig{})
	s.must(err)
	s.t.Cleanup(log.Close)
	l := &splitLog{Log: log, last: after, trimmed: after}
	if _, last, err := log.Bounds(s.t.Context()); err == nil && last > after { // the genesis, by the catalog
		c, err := log.Read(s.t.Context(), last)
		s.must(err)
		l.last, l.sum, s.began = last, c.Sum, c.Time
	}
	s.logs[number] = l
}

func (s *splits) append(number uint32, transactions ...feed.Transaction) *feed.Commit {
	s.t.Helper()
	l := s.logs[number]
	c := &feed.Commit{
		ID: feed.NewCommitID(), Log: l.ID(), Prev: l.sum, Epoch: 1, Time: s.timeBehind(l.last), Trimmed: l.trimmed, Transactions: transactions,
	}
	data := feed.AppendCommit(nil, c)
	lsn, err := l.Append(s.t.Context(), l.last, c.ID, data)
	s.must(err)
	l.last, l.sum = lsn, c.Sum
	return c
}

// timeBehind is the time of the commit behind an LSN.
func (s *splits) timeBehind(lsn feed.LSN) int64 { return s.began + int64(lsn) }

func keyOf(t testing.TB, name string) feed.PartitionKey {
	t.Helper()
	key, err := feed.NewPartitionKey(name)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// holder returns the number of the partition that holds a key now.
func (s *splits) holder(key feed.PartitionKey) uint32 { return s.info.HolderOf(key.Hash()).Number }

// write writes version n of the item "1" of a logical partition, and returns it as changes show it.
func (s *splits) write(name string, n int) string {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	key := keyOf(s.t, name)
	number := s.holder(key)
	body := fmt.Appendf(nil, `{"id":"1","k":%q,"n":%d}`, name, n)
	cursor := string(store.AppendCursor(nil, key, "1"))
	change := feed.Change{Op: feed.OpCreate, Key: key, ID: "1", After: body, Modified: 1000, Written: s.logs[number].last + 1}
	if was, ok := s.items[cursor]; ok {
		change.Op, change.Prev, change.Before = feed.OpReplace, feed.Position(was.ETag), was.Body
	}
	s.append(number, feed.Transaction{Changes: []feed.Change{change}})
	s.items[cursor] = store.Item{Key: key, ID: "1", Body: body, ETag: store.ETag{LSN: s.logs[number].last}, Modified: 1000, Written: change.Written}
	return fmt.Sprintf("%s=%d", name, n)
}

// cut makes the split commit of a partition and the logs of its children, which nobody knows of yet, and returns the
// record that names them.
func (s *splits) cut(number uint32) store.ContainerInfo {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.info.Partitions, func(p store.PartitionInfo) bool { return p.Number == number })
	parent := s.info.Partitions[at]
	next := uint32(len(s.info.Partitions) + len(s.info.Former) + 4) // with gaps
	for _, p := range s.info.Partitions {
		next = max(next, p.Number+1)
	}
	middle := s.middle(parent.Range)
	low, high := feed.Range{Min: parent.Range.Min, Max: middle}, feed.Range{Min: middle, Max: parent.Range.Max}
	split := &feed.Split{ID: "s", First: s.logs[number].last + 1<<20, Children: []feed.Offshoot{
		{Number: next, Range: low, Log: feed.NewLogID(), Genesis: feed.NewCommitID()},
		{Number: next + 1, Range: high, Log: feed.NewLogID(), Genesis: feed.NewCommitID()},
	}}
	control, err := split.Control(feed.ControlSplit)
	s.must(err)
	s.append(number, feed.Transaction{Control: control})
	info := s.info
	former := store.FormerPartition{PartitionInfo: parent, Last: s.logs[number].last, First: split.First}
	var children []store.PartitionInfo
	for _, child := range split.Children {
		s.must(feed.CreateLog(s.t.Context(), s.server.JS, s.partition(child.Number), child.Log, feed.LogConfig{After: split.First - 1}))
		s.open(child.Number, split.First-1)
		s.append(child.Number, feed.Transaction{Control: &feed.Control{Kind: "genesis", Data: []byte(`{}`)}})
		former.Children = append(former.Children, child.Number)
		children = append(children, store.PartitionInfo{Number: child.Number, Range: child.Range, Log: child.Log})
	}
	info.Partitions = slices.Replace(slices.Clone(info.Partitions), at, at+1, children...)
	info.Former = append(slices.Clone(info.Former), former)
	return info
}

// middle returns a hash between those of the items in a range, so that each half has some.
func (s *splits) middle(span feed.Range) feed.EPK {
	var hashes []feed.EPK
	for _, item := range s.items {
		if hash := item.Key.Hash(); span.Contains(hash) {
			hashes = append(hashes, hash)
		}
	}
	slices.Sort(hashes)
	if len(hashes) < 2 {
		s.t.Fatal("a partition with fewer than two items cannot be split")
	}
	return hashes[len(hashes)/2]
}

// publish writes a record to the catalog, and opens the partitions that it names.
func (s *splits) publish(info store.ContainerInfo) {
	s.t.Helper()
	s.mu.Lock()
	data, err := json.Marshal(info)
	s.must(err)
	kv, err := s.server.JS.KeyValue(s.t.Context(), store.CatalogBucket)
	s.must(err)
	info.Revision, err = kv.Put(s.t.Context(), store.CatalogKey("shop", "things"), data)
	s.must(err)
	s.info = info
	s.mu.Unlock()
	for _, p := range info.Partitions {
		s.serve(p.Number)
	}
	for _, f := range info.Former {
		s.local.Add(s.partition(f.Number), gone{})
	}
}

// split is all that a split does.
func (s *splits) split(number uint32) (low, high uint32) {
	s.t.Helper()
	info := s.cut(number)
	s.publish(info)
	children := info.Former[len(info.Former)-1].Children
	return children[0], children[1]
}

// forget deletes the log of a partition that was split.
func (s *splits) forget(number uint32) {
	s.t.Helper()
	s.must(feed.DeleteLog(s.t.Context(), s.server.JS, s.partition(number)))
	info := s.info
	info.Former = slices.DeleteFunc(slices.Clone(info.Former), func(f store.FormerPartition) bool { return f.Number == number })
	s.publish(info)
}

// trim removes all but the last commit of a log.
func (s *splits) trim(number uint32) {
	s.t.Helper()
	l := s.logs[number]
	l.trimmed = l.last
	s.append(number, feed.Transaction{})
	_, err := l.Trim(s.t.Context(), l.trimmed)
	s.must(err)
}

// gone is what is left of an owner whose partition was split.
type gone struct{}

func (gone) Handle(context.Context, *store.Request) *store.Response {
	return &store.Response{Err: &store.Error{Status: store.StatusGone, Message: "was split", RetryAfter: 1}}
}

func (s *splits) serve(number uint32) { s.local.Add(s.partition(number), shelf{s, number}) }

// shelf answers for the items of one partition.
type shelf struct {
	s      *splits
	number uint32
}

func (h shelf) Handle(_ context.Context, r *store.Request) *store.Response {
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[fmt.Sprintf("%d %s", h.number, r.Kind())]++
	holds := func(key feed.PartitionKey) bool { return s.holder(key) == h.number }
	resp := &store.Response{}
	switch {
	case r.Versions != nil:
		resp.Versions = []store.ETag{}
		for _, ref := range r.Versions.Refs {
			if !holds(ref.Key) {
				return &store.Response{Err: store.Refuse(store.StatusBadRequest, "not of this partition")}
			}
			resp.Versions = append(resp.Versions, s.items[string(store.AppendCursor(nil, ref.Key, ref.ID))].ETag)
		}
	case r.Read != nil:
		for _, ref := range r.Read.Refs {
			if !holds(ref.Key) {
				return &store.Response{Err: store.Refuse(store.StatusBadRequest, "not of this partition")}
			}
			resp.Read = append(resp.Read, s.items[string(store.AppendCursor(nil, ref.Key, ref.ID))])
		}
	case r.Scan != nil:
		resp.Scan = &store.ScanResult{LSN: s.logs[h.number].last}
		for _, item := range h.all() {
			cursor := store.AppendCursor(nil, item.Key, item.ID)
			if bytes.Compare(cursor, r.Scan.After) <= 0 || !r.Scan.Key.IsZero() && item.Key != r.Scan.Key {
				continue
			}
			if r.Scan.ItemsMax > 0 && len(resp.Scan.Items) == r.Scan.ItemsMax {
				last := resp.Scan.Items[len(resp.Scan.Items)-1]
				resp.Scan.Cursor = store.AppendCursor(nil, last.Key, last.ID)
				break
			}
			resp.Scan.Items = append(resp.Scan.Items, item)
		}
	case r.Count != nil:
		resp.Count = len(h.all())
	case r.Transact != nil:
		if !holds(r.Transact.Key) {
			return &store.Response{Err: store.Refuse(store.StatusBadRequest, "not of this partition")}
		}
		item := s.items[string(store.AppendCursor(nil, r.Transact.Key, r.Transact.Ops[0].ID))]
		resp.Transact = &store.TransactResult{LSN: s.logs[h.number].last, Results: []store.OpResult{{Status: store.StatusOK, Item: item}}}
	default:
		resp.Err = store.Refuse(store.StatusBadRequest, "asked for %s", r.Kind())
	}
	return resp
}

// all returns the items of the partition in order.
func (h shelf) all() []store.Item {
	var all []store.Item
	for _, item := range h.s.items {
		if h.s.holder(item.Key) == h.number {
			all = append(all, item)
		}
	}
	slices.SortFunc(all, func(a, b store.Item) int {
		return bytes.Compare(store.AppendCursor(nil, a.Key, a.ID), store.AppendCursor(nil, b.Key, b.ID))
	})
	return all
}

// reading is a reader of a feed, which keeps what it has seen.
type reading struct {
	s    *splits
	c    *store.Container
	r    store.ChangesRequest
	seen []string
	end  bool
}

func (s *splits) reader(r store.ChangesRequest) *reading {
	s.t.Helper()
	return &reading{s: s, c: s.container(), r: r}
}

// page reads one page.
func (r *reading) page() []string {
	r.s.t.Helper()
	page, err := r.c.Changes(r.s.t.Context(), r.r)
	r.s.must(err)
	r.r.Continuation, r.end = page.Continuation, page.End
	var got []string
	for _, c := range page.Changes {
		var body struct {
			K string
			N int
		}
		r.s.must(json.Unmarshal(c.Item.Body, &body))
		got = append(got, fmt.Sprintf("%s=%d", body.K, body.N))
	}
	r.seen = append(r.seen, got...)
	return got
}

// rest reads to the end.
func (r *reading) rest() []string {
	r.s.t.Helper()
	var got []string
	for pages := 0; ; pages++ {
		got = append(got, r.page()...)
		if r.end {
			return got
		}
		if pages == 1000 {
			r.s.t.Fatalf("no end behind %d pages; at %s", pages, r.r.Continuation)
		}
	}
}
