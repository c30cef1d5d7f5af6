package owner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/clustertest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// backup is a stream as JetStream's snapshots have it.
type backup struct {
	stream string
	about  json.RawMessage // configuration and state
	chunks [][]byte
}

// asked sends a request to JetStream's API and fails if it is refused.
func asked(t *testing.T, nc *nats.Conn, subject string, body []byte) []byte {
	t.Helper()
	m, err := nc.Request("$JS.API."+subject, body, time.Minute)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	return answered(t, subject, m)
}

func answered(t *testing.T, what string, m *nats.Msg) []byte {
	t.Helper()
	var refused struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &refused); err != nil || refused.Error != nil {
		t.Fatalf("%s: %v, %v", what, refused.Error, err)
	}
	return m.Data
}

// backUp takes a snapshot of a stream.
func backUp(t *testing.T, nc *nats.Conn, stream string) *backup {
	t.Helper()
	inbox := nc.NewInbox()
	chunks, err := nc.SubscribeSync(inbox)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = chunks.Unsubscribe() }()
	var about struct {
		Config json.RawMessage `json:"config"`
		State  json.RawMessage `json:"state"`
	}
	answer := asked(t, nc, "STREAM.SNAPSHOT."+stream, fmt.Appendf(nil, `{"deliver_subject":%q,"no_consumers":true}`, inbox))
	b := &backup{stream: stream}
	if err = json.Unmarshal(answer, &about); err == nil {
		b.about, err = json.Marshal(about)
	}
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := chunks.NextMsg(time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Data) == 0 {
			return b
		}
		b.chunks = append(b.chunks, m.Data)
		if m.Reply == "" {
			continue
		}
		if err := m.Respond(nil); err != nil {
			t.Fatal(err)
		}
	}
}

// restore puts a stream in place of the one that is there.
func (b *backup) restore(t *testing.T, nc *nats.Conn) {
	t.Helper()
	b.remove(t, nc)
	b.put(t, nc)
}

// remove removes the stream that is there.
func (b *backup) remove(t *testing.T, nc *nats.Conn) {
	t.Helper()
	asked(t, nc, "STREAM.DELETE."+b.stream, nil)
}

// put puts the stream where there is none.
func (b *backup) put(t *testing.T, nc *nats.Conn) {
	t.Helper()
	var to struct {
		Deliver string `json:"deliver_subject"`
	}
	if err := json.Unmarshal(asked(t, nc, "STREAM.RESTORE."+b.stream, b.about), &to); err != nil {
		t.Fatal(err)
	}
	for _, chunk := range b.chunks {
		m, err := nc.Request(to.Deliver, chunk, time.Minute)
		if err != nil || len(m.Data) > 0 {
			t.Fatalf("restore: %v, %s", err, m.Data)
		}
	}
	m, err := nc.Request(to.Deliver, nil, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	answered(t, "restore", m)
}

// TestI2_AnOlderLogUnderARunningStoreIsSaid restores a partition's stream as it was some
// writes ago, below a store that runs on. It refuses writes with the LSNs that are gone,
// and serves what its engine holds; it goes on when the newer stream is restored.
func TestI2_AnOlderLogUnderARunningStoreIsSaid(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.cfg.CheckInterval = 50 * time.Millisecond
	if _, err := c.catalog.Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/a"}}); err != nil {
		t.Fatal(err)
	}
	p := c.process("one", t.TempDir())
	ct := c.container(p.client, "things")
	id := ct.Partitions()[0]
	nc := c.conn()
	create := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := ct.Create(t.Context(), fmt.Appendf(nil, `{"id":"%d","a":"x"}`, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(0, 10)
	older := backUp(t, nc, id.Stream())
	create(10, 15)
	newer := backUp(t, nc, id.Stream())
	status, err := ct.Status(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	last := status.Applied
	gone := fmt.Sprintf("LSN %d to %d", last-4, last)
	refused := func(reason string) {
		t.Helper()
		poll.Until(t, func() error {
			_, err := ct.Create(t.Context(), []byte(`{"id":"new","a":"x"}`))
			if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), reason) {
				return fmt.Errorf("a write is answered %w, without %s", err, reason)
			}
			return nil
		})
	}
	older.remove(t, nc)
	refused("its stream is gone") // a restore that takes a while, which is said first
	older.put(t, nc)
	refused(gone)
	k := mustKey(t)
	for i := range 15 {
		if _, err := ct.Read(t.Context(), k, fmt.Sprint(i)); err != nil {
			t.Errorf("item %d, which the engine has: %v", i, err)
		}
	}
	if status, err := ct.Status(t.Context(), id); err != nil || !strings.Contains(status.Refusing, gone) || status.Unreadable {
		t.Errorf("status %+v, %v", status, err)
	}
	newer.restore(t, nc)
	poll.Until(t, func() error {
		_, err := ct.Upsert(t.Context(), []byte(`{"id":"new","a":"x"}`))
		return err
	})
}

// TestScrub_AStepDownIsNoDamage has the leader of a replicated log step down again and
// again, while writes go on and the log's shape and bytes are looked at all the time.
func TestScrub_AStepDownIsNoDamage(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster takes seconds to elect its leaders")
	}
	t.Parallel()
	three := clustertest.Start(t)
	c := &cluster{t: t, connect: func() *nats.Conn { return three.Dial() }, cfg: owner.Config{
		CheckInterval: 50 * time.Millisecond, Scrub: owner.ScrubConfig{Interval: 100 * time.Millisecond, SharePercent: 100}, Logger: slog.New(&damageLog{t: t}),
	}}
	c.js = three.JetStream()
	var info store.ContainerInfo
	three.Wait(func(ctx context.Context) (err error) {
		if c.catalog, err = store.OpenCatalog(ctx, c.js, store.CatalogConfig{Replicas: 3, Log: feed.LogConfig{Replicas: 3}}); err == nil {
			info, err = c.catalog.Create(ctx, "default", "things", store.ContainerSpec{PartitionKey: []string{"/a"}})
		}
		return err
	})
	ct, err := c.process("one", t.TempDir()).client.Open(info)
	if err != nil {
		t.Fatal(err)
	}
	id, nc := ct.Partitions()[0], c.conn()
	written := 0
	write := func(n int) {
		t.Helper()
		for range n {
			three.Wait(func(ctx context.Context) error {
				_, err := ct.Upsert(ctx, fmt.Appendf(nil, `{"id":"%d","a":"x"}`, written))
				return err
			})
			written++
		}
	}
	led := map[string]bool{}
	var scrubbed time.Time
	for round := 0; round < 12 || len(led) < 2; round++ {
		write(20)
		stream, err := c.js.Stream(t.Context(), id.Stream())
		if err == nil && stream.CachedInfo().Cluster != nil {
			led[stream.CachedInfo().Cluster.Leader] = true
		}
		// It may be refused while an election is on.
		_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+id.Stream(), nil, 2*time.Second)
		// Looks must have come to an end since.
		three.Wait(func(ctx context.Context) error {
			status, err := ct.Status(ctx, id)
			switch {
			case err != nil:
				return err
			case status.Refusing != "":
				t.Errorf("writes are refused: %s", status.Refusing)
			case status.Scrub == nil || !status.Scrub.Ended.After(scrubbed):
				return errors.New("the log was not scrubbed since")
			case status.Scrub.Finding != "":
				t.Errorf("the scrub found %s", status.Scrub.Finding)
			}
			if status.Scrub != nil {
				scrubbed = status.Scrub.Ended
			}
			return nil
		})
	}
	write(1)
	if n, err := ct.Count(t.Context(), id, store.Scope{}); err != nil || n != written {
		t.Errorf("%d items are counted, %v; %d were written", n, err, written)
	}
}

// damageLog fails a test whose store says that something is damaged.
type damageLog struct {
	slog.Handler
	t *testing.T
}

func (d *damageLog) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

func (d *damageLog) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "refuses writes") || strings.Contains(r.Message, "answers nothing") {
		d.t.Errorf("the store says: %s", r.Message)
	}
	return nil
}

func (d *damageLog) WithAttrs([]slog.Attr) slog.Handler { return d }
