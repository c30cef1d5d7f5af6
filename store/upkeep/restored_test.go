package upkeep_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/spare"
	"github.com/millrace/millrace/store/upkeep"
)

// saved is a stream as somebody has saved it.
type saved struct {
	cfg      jetstream.StreamConfig
	messages []*jetstream.RawStreamMsg
}

// save saves the stream in which the log of a partition began.
func save(t testing.TB, js jetstream.JetStream, p feed.Partition) *saved {
	t.Helper()
	stream := must[jetstream.Stream](t)(js.Stream(t.Context(), p.Stream()))
	s := &saved{cfg: stream.CachedInfo().Config}
	for seq := stream.CachedInfo().State.FirstSeq; seq <= stream.CachedInfo().State.LastSeq && seq > 0; seq++ {
		s.messages = append(s.messages, must[*jetstream.RawStreamMsg](t)(stream.GetMsg(t.Context(), seq)))
	}
	return s
}

// restore makes the stream again with what it held.
func (s *saved) restore(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	must[jetstream.Stream](t)(js.CreateStream(t.Context(), s.cfg))
	for _, m := range s.messages {
		must[*jetstream.PubAck](t)(js.PublishMsg(t.Context(), &nats.Msg{Subject: m.Subject, Data: m.Data}))
	}
}

// appendTo appends a commit to a log.
func appendTo(t testing.TB, js jetstream.JetStream, p feed.Partition) {
	t.Helper()
	log := must[*feed.Log](t)(feed.OpenLog(t.Context(), js, p, feed.LogConfig{}))
	defer log.Close()
	_, last, err := log.Bounds(t.Context())
	before := must[*feed.Commit](t)(log.Read(t.Context(), last))
	c := &feed.Commit{ID: feed.NewCommitID(), Log: log.ID(), Prev: before.Sum, Time: before.Time, Owner: "somebody", Transactions: []feed.Transaction{{Control: &feed.Control{Kind: "test"}}}}
	if err == nil {
		_, err = log.Append(t.Context(), last, c.ID, feed.AppendCommit(nil, c))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// streamsLeft lets a keeper make a pass, and returns which of some streams are there then.
func streamsLeft(t testing.TB, js jetstream.JetStream, catalog *store.Catalog, logs ...feed.Partition) (there []bool) {
	t.Helper()
	if _, err := keeper(js, catalog, 1).Pass(t.Context()); err != nil {
		t.Error(err)
	}
	for _, p := range logs {
		_, err := catalog.FirstCommit(t.Context(), p)
		if err != nil && !errors.Is(err, feed.ErrNoLog) && !errors.Is(err, feed.ErrNotFound) {
			t.Error(err)
		}
		there = append(there, !errors.Is(err, feed.ErrNoLog))
	}
	return there
}

// TestKeeper_LeavesWhatIsRestoredOfADeletedContainer: who has deleted a container by mistake brings back its streams before
// the catalog, which tells then that it was deleted. No log of a container is removed of which one holds more than a
// maker puts there.
func TestKeeper_LeavesWhatIsRestoredOfADeletedContainer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		written []uint32 // to which partitions
		change  func(t testing.TB, js jetstream.JetStream, streams []*saved)
		want    bool // they stay
	}{
		"that was never written to": {},
		"that was written to":       {written: []uint32{0, 1}, want: true},
		"of which the first was":    {written: []uint32{0}, want: true},
		"of which the second was":   {written: []uint32{1}, want: true},
		"whose commits went afterwards": {written: []uint32{0, 1}, want: true, change: func(t testing.TB, js jetstream.JetStream, streams []*saved) {
			t.Helper()
			for _, s := range streams {
				must[any](t)(nil, must[jetstream.Stream](t)(js.Stream(t.Context(), s.cfg.Name)).Purge(t.Context()))
			}
		}},
		"of which the second has no label": {want: true, change: func(t testing.TB, js jetstream.JetStream, streams []*saved) {
			t.Helper()
			delete(streams[1].cfg.Metadata, store.LabelContainer)
			must[jetstream.Stream](t)(js.UpdateStream(t.Context(), streams[1].cfg))
		}},
		"under whose name there is what cannot be read": {want: true, change: func(t testing.TB, js jetstream.JetStream, _ []*saved) {
			t.Helper()
			kv := must[jetstream.KeyValue](t)(js.KeyValue(t.Context(), store.CatalogBucket))
			must[uint64](t)(kv.Put(t.Context(), store.CatalogKey("default", "orders"), []byte("{")))
		}},
		"whose name another one has": {change: func(t testing.TB, js jetstream.JetStream, _ []*saved) {
			t.Helper()
			kv := must[jetstream.KeyValue](t)(js.KeyValue(t.Context(), store.CatalogBucket))
			history := must[[]jetstream.KeyValueEntry](t)(kv.History(t.Context(), store.CatalogKey("default", "orders")))
			must[uint64](t)(kv.Put(t.Context(), store.CatalogKey("default", "orders"), renamed(t, history[0].Value(), "orders", feed.NewResourceID())))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := alone(t)
			catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
			info := must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 2}))
			logs := []feed.Partition{{Container: info.ID}, {Container: info.ID, Number: 1}}
			for _, n := range c.written {
				appendTo(t, js, logs[n])
			}
			streams := []*saved{save(t, js, logs[0]), save(t, js, logs[1])}
			if err := catalog.Delete(t.Context(), "default", "orders"); err != nil {
				t.Fatal(err)
			}
			for _, s := range streams {
				s.restore(t, js)
			}
			if c.change != nil {
				c.change(t, js, streams)
			}
			if there := streamsLeft(t, js, catalog, logs...); !slices.Equal(there, []bool{c.want, c.want}) {
				t.Errorf("there are %v, want %v of both", there, c.want)
			}
			exam := must[*store.Exam](t)(store.Examine(t.Context(), js))
			if c.want && (exam.Err() == nil || len(exam.Left) > 0 || !slices.Equal(exam.Unnamed, logs)) {
				t.Errorf("%v: unnamed %v, left %v; want damage", exam.Err(), exam.Unnamed, exam.Left)
			}
		})
	}
}

// TestKeeper_WaitsBeforeItRemoves: a stream that is being restored looks like one of a killed maker until its second
// commit is there.
func TestKeeper_WaitsBeforeItRemoves(t *testing.T) {
	t.Parallel()
	js := alone(t)
	catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
	info := must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", store.ContainerSpec{PartitionKey: []string{"/id"}}))
	stream := save(t, js, feed.Partition{Container: info.ID})
	if err := catalog.Delete(t.Context(), "default", "orders"); err != nil {
		t.Fatal(err)
	}
	stream.restore(t, js)
	k := upkeep.NewKeeper(js, catalog, upkeep.Config{
		Wish: upkeep.Wish{Replicas: 1, Leases: "millrace_leases"}, Copies: []spare.Source{store.DatabaseRecords()}, LeftMin: time.Hour, Logger: quiet,
	})
	for range 3 {
		if _, err := k.Pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Stream(t.Context(), stream.cfg.Name); err != nil {
			t.Fatalf("the stream is gone: %v", err)
		}
	}
}

// renamed returns a record under another name and id.
func renamed(t testing.TB, record []byte, name string, id feed.ResourceID) []byte {
	t.Helper()
	info := must[store.ContainerInfo](t)(store.DecodeContainer(record))
	info.Name, info.ID, info.State = name, id, store.ContainerReady
	return must[[]byte](t)(json.Marshal(info))
}

// interrupted is JetStream where something happens before the stream of a log is asked for the first time.
type interrupted struct {
	jetstream.JetStream
	once sync.Once
	do   func()
}

func (i *interrupted) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if _, isLog := feed.ParseStream(name); isLog {
		i.once.Do(i.do)
	}
	return i.JetStream.Stream(ctx, name)
}

// TestKeeper_LooksAgainBeforeItRemoves: what was left when streams and catalog were looked at may be somebody's since.
func TestKeeper_LooksAgainBeforeItRemoves(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		between func(t testing.TB, js jetstream.JetStream, kv jetstream.KeyValue, p feed.Partition, record []byte)
		want    bool // it stays
	}{
		"nothing happens": {between: func(testing.TB, jetstream.JetStream, jetstream.KeyValue, feed.Partition, []byte) {}},
		"its record is entered under another name": {want: true, between: func(t testing.TB, _ jetstream.JetStream, kv jetstream.KeyValue, p feed.Partition, record []byte) {
			t.Helper()
			must[uint64](t)(kv.Create(t.Context(), store.CatalogKey("default", "rescued"), renamed(t, record, "rescued", p.Container)))
		}},
		"a record is entered that cannot be read": {want: true, between: func(t testing.TB, _ jetstream.JetStream, kv jetstream.KeyValue, _ feed.Partition, _ []byte) {
			t.Helper()
			must[uint64](t)(kv.Create(t.Context(), store.CatalogKey("default", "rescued"), []byte("?")))
		}},
		"it is written to": {want: true, between: func(t testing.TB, js jetstream.JetStream, _ jetstream.KeyValue, p feed.Partition, _ []byte) {
			t.Helper()
			appendTo(t, js, p)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := alone(t)
			catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
			info := must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", store.ContainerSpec{PartitionKey: []string{"/id"}}))
			p := feed.Partition{Container: info.ID}
			kv := must[jetstream.KeyValue](t)(js.KeyValue(t.Context(), store.CatalogBucket))
			record := must[jetstream.KeyValueEntry](t)(kv.Get(t.Context(), store.CatalogKey("default", "orders"))).Value()
			stream := save(t, js, p)
			if err := catalog.Delete(t.Context(), "default", "orders"); err != nil {
				t.Fatal(err)
			}
			between := &interrupted{JetStream: js, do: func() { c.between(t, js, kv, p, record) }}
			slow := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), between, store.CatalogConfig{}))
			stream.restore(t, js)
			if there := streamsLeft(t, between, slow, p); there[0] != c.want {
				t.Errorf("it is there: %v, want %v", there[0], c.want)
			}
		})
	}
}

// firstSilent is JetStream that does not answer for one stream, and is waited for until another one was asked for in time.
type firstSilent struct {
	jetstream.JetStream
	silent, other string
	asked         chan struct{} // closed when the other one was asked for
	once          sync.Once
}

func (s *firstSilent) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	switch name {
	case s.silent:
		select {
		case <-s.asked: // nobody has to wait out the time that it gets
		case <-ctx.Done():
		}
		return nil, nats.ErrTimeout
	case s.other:
		if ctx.Err() == nil {
			s.once.Do(func() { close(s.asked) })
		}
	}
	return s.JetStream.Stream(ctx, name)
}

// TestExamine_ASilentStreamHoldsUpNoOther: of two logs that were left one does not answer. That one may be of a lost record,
// and the other is known to be of no use.
func TestExamine_ASilentStreamHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	js := alone(t)
	catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
	var logs []feed.Partition
	var streams []*saved
	for _, name := range []string{"orders", "events"} {
		info := must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", name, store.ContainerSpec{PartitionKey: []string{"/id"}}))
		p := feed.Partition{Container: info.ID}
		logs, streams = append(logs, p), append(streams, save(t, js, p))
		if err := catalog.Delete(t.Context(), "default", name); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range streams {
		s.restore(t, js)
	}
	slices.SortFunc(logs, func(a, b feed.Partition) int { // as they are asked for
		if a.Stream() < b.Stream() {
			return -1
		}
		return 1
	})
	silent := &firstSilent{JetStream: js, silent: logs[0].Stream(), other: logs[1].Stream(), asked: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	exam := must[*store.Exam](t)(store.Examine(ctx, silent))
	if !slices.Equal(exam.Left, logs[1:]) || !slices.Equal(exam.Unnamed, logs[:1]) {
		t.Errorf("left %v, unnamed %v; want %v and %v", exam.Left, exam.Unnamed, logs[1:], logs[:1])
	}
}
