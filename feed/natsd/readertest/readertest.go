// Package readertest tells whether a NATS system holds its readers: what a
// read-only user must be able to ask, and all the ways in which it must not be
// able to write.
//
// This package is no API for other programs.
package readertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/guard"
)

// world is a log and a bucket, as their writer and as a reader see them.
type world struct {
	admin, reader *nats.Conn
	writer        jetstream.JetStream
	js            jetstream.JetStream // the reader's
	log           jetstream.Stream
	kv            jetstream.KeyValue
	replicas      int
	refused       chan string // what the reader was told
}

const (
	logStream  = "MILLRACE_reader_0"
	logSubject = "millrace.log.reader.0"
	bucket     = "millrace_reader"
)

// Hold fails the test if the reader at connect cannot read, or can do more than
// that. admin makes what there is to read and to spoil.
func Hold(t *testing.T, admin *nats.Conn, replicas int, connect func(...nats.Option) (*nats.Conn, error)) {
	t.Helper()
	w := &world{admin: admin, replicas: replicas, refused: make(chan string, 64)}
	g, err := guard.New(t.Context(), admin, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(g.Close)
	w.reader, err = connect(nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case w.refused <- err.Error():
		default: // the test looks at the first only
		}
	}))
	must(t, err)
	t.Cleanup(w.reader.Close)
	w.writer, err = jetstream.New(admin)
	must(t, err)
	w.js, err = jetstream.New(w.reader)
	must(t, err)
	w.log, err = w.writer.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: logStream, Subjects: []string{logSubject}, AllowDirect: true, Replicas: replicas,
	})
	must(t, err)
	w.kv, err = w.writer.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket, Replicas: replicas, History: 5})
	must(t, err)
	for i := range 5 {
		_, err := w.writer.Publish(t.Context(), logSubject, fmt.Appendf(nil, "commit %d", i+1))
		must(t, err)
		_, err = w.kv.Put(t.Context(), "container.a", fmt.Appendf(nil, "record %d", i+1))
		must(t, err)
	}
	t.Run("reads", w.reads)
	t.Run("gets bounded pages", w.bounded)
	t.Run("writes nothing", w.writesNothing)
	t.Run("spoils nothing by the subject of an answer", w.spoilsNothing)
	t.Run("has no consumer that pushes", w.pushes)
	t.Run("deletes its own consumers only", w.consumers)
	t.Run("has few consumers", w.fewConsumers)
	w.unchanged(t)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// unchanged says that nothing came to the log or the bucket.
func (w *world) unchanged(t *testing.T) {
	t.Helper()
	info, err := w.log.Info(t.Context())
	must(t, err)
	if s := info.State; s.FirstSeq != 1 || s.LastSeq != 5 || s.Msgs != 5 {
		t.Errorf("the log holds %d messages, %d to %d; want 1 to 5", s.Msgs, s.FirstSeq, s.LastSeq)
	}
	e, err := w.kv.Get(t.Context(), "container.a")
	if err != nil || string(e.Value()) != "record 5" {
		t.Errorf("the bucket holds %v, %v; want record 5", e, err)
	}
}

func (w *world) reads(t *testing.T) {
	if _, err := w.js.AccountInfo(t.Context()); err != nil {
		t.Errorf("account: %v", err)
	}
	var names []string
	for name := range w.js.StreamNames(t.Context()).Name() {
		names = append(names, name)
	}
	if len(names) < 2 {
		t.Errorf("streams %q, want the log and the bucket", names)
	}
	stream, err := w.js.Stream(t.Context(), logStream)
	must(t, err)
	if m, err := stream.GetMsg(t.Context(), 3); err != nil || string(m.Data) != "commit 3" {
		t.Errorf("message 3 is %v, %v", m, err)
	}
	leader, err := w.reader.Request("$JS.API.STREAM.MSG.GET."+logStream, []byte(`{"seq":2}`), 5*time.Second)
	if err != nil || len(leader.Data) == 0 {
		t.Errorf("message 2 of the leader is %v, %v", leader, err)
	}
	kv, err := w.js.KeyValue(t.Context(), bucket)
	must(t, err)
	if e, err := kv.Get(t.Context(), "container.a"); err != nil || string(e.Value()) != "record 5" {
		t.Errorf("record is %v, %v", e, err)
	}
	w.readsBatch(t)
	ordered, err := w.js.OrderedConsumer(t.Context(), logStream, jetstream.OrderedConsumerConfig{})
	must(t, err)
	batch, err := ordered.Fetch(5)
	must(t, err)
	n := 0
	for m := range batch.Messages() {
		n++
		if want := fmt.Sprintf("commit %d", n); string(m.Data()) != want {
			t.Errorf("consumed %q, want %q", m.Data(), want)
		}
	}
	if n != 5 || batch.Error() != nil {
		t.Errorf("consumed %d messages, %v; want 5", n, batch.Error())
	}
}

// readsBatch asks one question that has several answers.
func (w *world) readsBatch(t *testing.T) {
	t.Helper()
	inbox := w.reader.NewInbox()
	sub, err := w.reader.SubscribeSync(inbox)
	must(t, err)
	must(t, w.reader.PublishRequest("$JS.API.DIRECT.GET."+logStream, inbox, []byte(`{"seq":1,"batch":4}`)))
	for i := range 4 {
		m, err := sub.NextMsg(5 * time.Second)
		must(t, err)
		if want := fmt.Sprintf("commit %d", i+1); string(m.Data) != want {
			t.Errorf("answer %d is %q, want %q", i+1, m.Data, want)
		}
	}
}

// bounded asks for more at once than a server should read between two writes.
func (w *world) bounded(t *testing.T) {
	const stream, subject, large, small = "MILLRACE_reader_1", "millrace.log.reader.1", 7, 520
	_, err := w.writer.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{subject}, AllowDirect: true, Replicas: w.replicas})
	must(t, err)
	for i := range large + small {
		data := []byte("small")
		if i < large {
			data = make([]byte, 768<<10)
		}
		_, err := w.writer.PublishAsync(subject, data)
		must(t, err)
	}
	select {
	case <-w.writer.PublishAsyncComplete():
	case <-time.After(time.Minute):
		t.Fatal("the messages are not written")
	}
	get := func(query string) (n int, status string) {
		t.Helper()
		inbox := w.reader.NewInbox()
		sub, err := w.reader.SubscribeSync(inbox)
		must(t, err)
		must(t, w.reader.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, []byte(query)))
		for ; ; n++ {
			m, err := sub.NextMsg(time.Minute)
			must(t, err)
			if status := m.Header.Get("Status"); status != "" {
				return n, status
			}
		}
	}
	for query, want := range map[string]int{
		`{"seq":1,"batch":1000000,"max_bytes":1099511627776}`: 6, // 4 MiB and what is begun
		`{"seq":1,"batch":1000000}`:                           6,
		`{"seq":1,"batch":2}`:                                 2,
		`{"seq":1,"batch":20,"max_bytes":1000000}`:            2,
		`{"seq":8,"batch":1000000}`:                           512,
	} {
		n, status := get(query)
		// A replica that lags has fewer.
		if n > want || w.replicas == 1 && n != want || n == want && status != "204" {
			t.Errorf("%s: %d messages and status %s, want %d and 204", query, n, status, want)
		}
	}
	for query, want := range map[string]string{
		`{"multi_last":[">"],"batch":10}`: "403", `{"seq":`: "403", `{"seq":100000}`: "404", `{"seq":100000,"batch":5}`: "404",
	} {
		if n, status := get(query); n != 0 || status != want {
			t.Errorf("%s: %d messages and status %s, want none and %s", query, n, status, want)
		}
	}
	if _, err := w.reader.Request("$JS.API.DIRECT.GET.none", []byte(`{"seq":1}`), time.Minute); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a stream that is not there: %v, want %v", err, nats.ErrNoResponders)
	}
}

// writesNothing tries what permissions refuse.
func (w *world) writesNothing(t *testing.T) {
	subjects := []string{
		"$JS.API.STREAM.CREATE.other", "$JS.API.STREAM.UPDATE." + logStream, "$JS.API.STREAM.DELETE." + logStream,
		"$JS.API.STREAM.PURGE." + logStream, "$JS.API.STREAM.MSG.DELETE." + logStream, "$JS.API.STREAM.SNAPSHOT." + logStream,
		"$JS.API.STREAM.RESTORE." + logStream, "$JS.API.STREAM.PEER.REMOVE." + logStream, "$JS.API.STREAM.LEADER.STEPDOWN." + logStream,
		"$JS.API.META.LEADER.STEPDOWN", "$JS.API.CONSUMER.DURABLE.CREATE." + logStream + ".d", "$JS.API.CONSUMER.PAUSE." + logStream + ".c",
		"$JS.API.CONSUMER.LIST." + logStream, logSubject, "$KV." + bucket + ".container.a", "millrace.store.reader.0",
		guard.Create + logStream, guard.Get + logStream, "$JS.ACK.x", "$SYS.REQ.SERVER.PING", "any.thing",
	}
	for _, subject := range subjects {
		must(t, w.reader.PublishRequest(subject, w.reader.NewInbox(), []byte("{}")))
		w.wantRefused(t, subject)
	}
	for _, subject := range []string{">", logSubject, "$KV.>", "millrace.>", "_R_.>"} {
		sub, err := w.reader.SubscribeSync(subject)
		must(t, err)
		w.wantRefused(t, subject)
		_ = sub.Unsubscribe() // the server knows of none
	}
	w.unchanged(t)
}

func (w *world) wantRefused(t *testing.T, subject string) {
	t.Helper()
	must(t, w.reader.FlushTimeout(10*time.Second)) // what is refused is told before the answer to the flush
	select {
	case <-w.refused:
	case <-time.After(10 * time.Second):
		t.Errorf("%s was not refused", subject)
	}
}

// spoilsNothing asks what it may and has the answers go where it may not write.
func (w *world) spoilsNothing(t *testing.T) {
	for _, reply := range []string{logSubject, "$KV." + bucket + ".container.a"} {
		for _, subject := range []string{
			"$JS.API.INFO", "$JS.API.STREAM.INFO." + logStream, "$JS.API.DIRECT.GET." + logStream, "$JS.API.STREAM.MSG.GET." + logStream,
			"$JS.API.CONSUMER.CREATE." + logStream, "millrace.read.reader.0",
		} {
			must(t, w.reader.PublishRequest(subject, reply, []byte(`{"seq":1}`)))
		}
		c, err := w.js.CreateConsumer(t.Context(), logStream, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
		must(t, err)
		next := "$JS.API.CONSUMER.MSG.NEXT." + logStream + "." + c.CachedInfo().Name
		must(t, w.reader.PublishRequest(next, reply, []byte(`{"batch":5,"no_wait":true}`)))
	}
	// Answers to a later question come later.
	_, err := w.js.AccountInfo(t.Context())
	must(t, err)
	w.unchanged(t)
}

func (w *world) pushes(t *testing.T) {
	type config struct {
		Name    string `json:"name"`
		Deliver string `json:"deliver_subject"`
		Policy  string `json:"deliver_policy"`
		Ack     string `json:"ack_policy"`
	}
	for i, subject := range []string{"$KV." + bucket + ".container.a", w.reader.NewInbox()} {
		name := fmt.Sprintf("push%d", i)
		data, err := json.Marshal(map[string]any{"stream_name": logStream, "config": config{name, subject, "all", "none"}})
		must(t, err)
		m, err := w.reader.Request("$JS.API.CONSUMER.CREATE."+logStream+"."+name, data, 5*time.Second)
		must(t, err)
		var answer struct {
			Error *jetstream.APIError `json:"error"`
		}
		must(t, json.Unmarshal(m.Data, &answer))
		if answer.Error == nil {
			t.Errorf("a consumer that pushes to %s was made", subject)
		}
	}
	if _, err := w.js.CreateConsumer(t.Context(), logStream, jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckNonePolicy}); err == nil {
		t.Error("a durable consumer was made")
	}
	w.unchanged(t)
}

func (w *world) consumers(t *testing.T) {
	mine, err := w.js.CreateConsumer(t.Context(), logStream, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	must(t, err)
	must(t, w.js.DeleteConsumer(t.Context(), logStream, mine.CachedInfo().Name))
	theirs, err := w.writer.CreateConsumer(t.Context(), logStream, jetstream.ConsumerConfig{Name: "theirs", AckPolicy: jetstream.AckNonePolicy})
	must(t, err)
	if err := w.js.DeleteConsumer(t.Context(), logStream, "theirs"); err == nil {
		t.Error("a reader deleted another's consumer")
	}
	_, err = w.js.CreateConsumer(t.Context(), logStream, jetstream.ConsumerConfig{
		Name: "theirs", AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverLastPolicy,
	})
	if err == nil {
		t.Error("a reader changed another's consumer")
	}
	if _, err := theirs.Info(t.Context()); err != nil {
		t.Errorf("another's consumer: %v", err)
	}
	var makers sync.WaitGroup
	for range 50 {
		makers.Go(func() {
			if _, err := w.js.CreateConsumer(t.Context(), logStream, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}); err != nil &&
				!errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("one of many consumers: %v", err)
			}
		})
	}
	makers.Wait()
}

// fewConsumers makes as many consumers as it can: each write to a stream wakes all of them.
func (w *world) fewConsumers(t *testing.T) {
	const stream, subject, most = "MILLRACE_reader_2", "millrace.log.reader.2", 64
	_, err := w.writer.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{subject}, Replicas: w.replicas})
	must(t, err)
	config := jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}
	var last jetstream.Consumer
	for range most {
		last, err = w.js.CreateConsumer(t.Context(), stream, config)
		must(t, err)
	}
	if c := last.CachedInfo().Config; c.MaxWaiting != 4 || c.MaxRequestBatch != 512 {
		t.Errorf("a reader's consumer has %d requests of %d messages, want 4 of 512", c.MaxWaiting, c.MaxRequestBatch)
	}
	if _, err := w.js.CreateConsumer(t.Context(), stream, config); err == nil {
		t.Fatalf("a reader has more than %d consumers of one stream", most)
	}
	// One that is gone, by whomever, makes room.
	must(t, w.writer.DeleteConsumer(t.Context(), stream, last.CachedInfo().Name))
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err = w.js.CreateConsumer(t.Context(), stream, config); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no room after a consumer was deleted: %v", err)
		}
	}
	if _, err := w.js.CreateConsumer(t.Context(), stream, config); err == nil {
		t.Errorf("a reader has more than %d consumers of one stream", most)
	}
}
