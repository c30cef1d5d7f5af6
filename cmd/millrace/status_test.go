package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
)

// twoPipelines are declarations of two pipelines, each of which reads a container of its own.
const twoPipelines = `
apiVersion: millrace/v1
kind: Container
metadata: {name: quiet}
spec: {partitionKey: [/id], partitions: 2}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: loud}
spec: {partitionKey: [/id], partitions: 1}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: of-quiet}
spec:
  source: {container: quiet}
  project: {sink: {parquet: {path: ./quiet}}, tables: {rows: {key: [id], columns: {id: id}}}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: of-loud}
spec:
  source: {container: loud}
  project: {sink: {parquet: {path: ./loud}}, tables: {rows: {key: [id], columns: {id: id}}}}
`

// TestStatus_ALogIsSilent tells all the rest, says which log and which pipeline could not be read, and exits with 1. A
// pipeline that does not read the log is as it is.
func TestStatus_ALogIsSilent(t *testing.T) {
	s := plainServer(t)
	t.Setenv("MILLRACE_DIR", t.TempDir())
	at := "--server=" + s.ClientURL()
	file := filepath.Join(t.TempDir(), "two.yaml")
	if err := os.WriteFile(file, []byte(twoPipelines), 0o644); err != nil {
		t.Fatal(err)
	}
	mustRun(t, "", "apply", at, "-f", file)
	mustRun(t, "", "pause", at, "of-loud") // no worker runs, which is not to count here
	silent := silence(t, s, "quiet")

	run := func(want int, args ...string) string {
		t.Helper()
		out, errs, code := command(t, "", append([]string{args[0], at, "--timeout", "10s"}, args[1:]...)...)
		if code != want {
			t.Errorf("millrace %s: exit %d, want %d\n%s%s", strings.Join(args, " "), code, want, out, errs)
		}
		return out
	}
	named := "not all could be read: 1 log of pipeline of-quiet (" + silent.String() + "), so what is left to do there is not known"
	page := run(codeBad, "status")
	for _, want := range []string{named, "of-quiet is stuck: source " + silent.String() + ": its log does not answer", "of-loud is paused", "logs: 0 of 3 read whole"} {
		if !strings.Contains(page, want) {
			t.Errorf("nothing of %q in\n%s", want, page)
		}
	}
	var told status.Status
	if err := json.Unmarshal([]byte(run(codeBad, "status", "of-quiet", "-o", "json")), &told); err != nil {
		t.Fatal(err)
	}
	if len(told.Pipelines) != 1 || !slices.Equal(told.Pipelines[0].Unread, []string{silent.String()}) || !told.Pipelines[0].Lag.Unknown {
		t.Errorf("as JSON: %+v", told.Pipelines)
	}
	if page := run(codeOK, "status", "of-loud"); strings.Contains(page, "not all could be read") {
		t.Errorf("of a pipeline that reads other logs it says\n%s", page)
	}
	if page := run(codeOK, "describe", "pipeline", "of-quiet"); !strings.Contains(page, named) {
		t.Errorf("describe does not say which log is silent\n%s", page)
	}
	// A pipeline that is paused hides no log that cannot be read.
	mustRun(t, "", "pause", at, "of-quiet")
	if page := run(codeBad, "status", "of-quiet"); !strings.Contains(page, named) || !strings.Contains(page, "of-quiet is paused") {
		t.Errorf("of a pipeline that is paused it says\n%s", page)
	}
}

// plainServer runs a NATS server of its own, which asks for no credentials.
func plainServer(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		ServerName: "plain", Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, MaxPayload: 8 << 20, JetStream: true, StoreDir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(poll.Most) {
		t.Fatal("the server is not ready")
	}
	return s
}

// silence lets nobody who asks for the stream of a container's first log have an answer, as JetStream does where the stream
// has no leader.
func silence(t *testing.T, s *server.Server, container string) feed.Partition {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	catalog, err := store.OpenCatalog(t.Context(), js, store.CatalogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := catalog.Get(t.Context(), "default", container)
	if err != nil {
		t.Fatal(err)
	}
	p := feed.Partition{Container: info.ID, Number: info.Partitions[0].Number}
	const nowhere = "nobody.answers"
	// Somebody listens there: else the server says that nobody does, which is an answer.
	if _, err := nc.Subscribe(nowhere, func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := s.GlobalAccount().AddMapping("$JS.API.STREAM.INFO."+p.Stream(), nowhere); err != nil {
		t.Fatal(err)
	}
	return p
}
