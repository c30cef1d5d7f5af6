package integration_test

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// inDirectory opens the embedded server of a directory that no process uses, and
// closes it again.
func inDirectory(t *testing.T, dir string, f func(js jetstream.JetStream)) {
	t.Helper()
	srv, err := natsd.Open(t.Context(), natsd.Config{Dir: filepath.Join(dir, "nats"), DontListen: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	nc, err := srv.Conn()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	f(js)
}

// directory is a process with a small shop in its directory.
type directory struct {
	t           *testing.T
	dir, server string
	up          *child
}

func newDirectory(t *testing.T) *directory {
	t.Helper()
	port := strconv.Itoa(freePort(t))
	s := &directory{t: t, dir: t.TempDir(), server: "nats://127.0.0.1:" + port}
	s.up = spawn(t, "up", "--dir", s.dir, "--port", port, "--listen", "off")
	files, _ := shopFiles(t)
	mustRun(t, s.server, "apply", "-f", "../configs/webstore")
	mustRun(t, s.server, "import", "productMeta", filepath.Join(files, "productMeta.json"))
	mustRun(t, s.server, "import", "product", filepath.Join(files, "product.ndjson"))
	mustRun(t, s.server, "verify")
	return s
}

// items are all items of the shop's products, in order.
func (s *directory) items() string {
	s.t.Helper()
	lines := strings.Split(mustRun(s.t, s.server, "export", "product"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// refuses checks that the process does not start, and says why.
func (s *directory) refuses(words string) {
	s.t.Helper()
	out, errs, exit := command(s.t, "", nil, "up", "--dir", s.dir, "--port", "-1", "--listen", "off", "--gateway", "off")
	if exit != 2 || !strings.Contains(errs, words) || !strings.Contains(errs, "millrace doctor --dir") {
		s.t.Fatalf("up on a damaged catalog: exit %d, want 2 and %q\n%s%s", exit, words, out, errs)
	}
}

// TestI3_ALostCatalogIsRefusedAndMadeAgain loses both buckets of a shop, as a disk
// or a careless hand does, and has doctor make them again from the logs.
func TestI3_ALostCatalogIsRefusedAndMadeAgain(t *testing.T) {
	t.Parallel()
	s := newDirectory(t)
	before, pipelines := s.items(), mustRun(t, s.server, "get", "pipelines", "-o", "json")

	// While it runs: nobody may say that there is nothing.
	nc, err := nats.Connect(s.server, asTester(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	client := dial(t, s.server)
	for _, bucket := range []string{store.CatalogBucket, "millrace_pipelines"} {
		if err := js.DeleteKeyValue(t.Context(), bucket); err != nil {
			t.Fatal(err)
		}
	}
	poll.Until(t, func() error { // what was found sound counts for two seconds
		_, err := client.Container(t.Context(), "default", "product")
		return poll.Unless(err != nil && strings.Contains(err.Error(), "the catalog is damaged"), fmt.Sprint(err))
	})
	for _, args := range [][]string{{"verify"}, {"apply", "-f", "../configs/webstore"}, {"get", "containers"}, {"status"}, {"export", "product"}} {
		out, exit := run(t, s.server, args...)
		if exit != 2 || !strings.Contains(out, "its bucket millrace_catalog is not there") || !strings.Contains(out, "millrace doctor") {
			t.Errorf("%s without a catalog: exit %d\n%s", args[0], exit, out)
		}
	}
	s.up.stop()

	s.refuses("its bucket millrace_catalog is not there")
	out, errs, exit := command(t, "", nil, "doctor", "--dir", s.dir)
	if exit != 1 || !strings.Contains(out, "they tell that it is default/product") || !strings.Contains(out, "bucket millrace_pipelines") {
		t.Fatalf("doctor: exit %d\n%s%s", exit, out, errs)
	}
	s.refuses("its bucket millrace_catalog is not there") // doctor changed nothing
	if out, errs, exit = command(t, "", nil, "doctor", "--dir", s.dir, "--fix"); exit != 0 {
		t.Fatalf("doctor --fix: exit %d\n%s%s", exit, out, errs)
	}
	s.up.start()
	if after := s.items(); after != before {
		t.Errorf("the products are other ones now:\n%s\nwant\n%s", after, before)
	}
	if after := mustRun(t, s.server, "get", "pipelines", "-o", "json"); after != pipelines {
		t.Errorf("the pipelines are other ones now:\n%s\nwant\n%s", after, pipelines)
	}
	mustRun(t, s.server, "verify")
	if out := mustRun(t, s.server, "apply", "-f", "../configs/webstore"); strings.Contains(out, "created") || strings.Contains(out, "changed:") {
		t.Errorf("apply of the same declarations did\n%s", out)
	}
	if out := mustRun(t, s.server, "doctor"); !strings.Contains(out, "nothing is wrong") {
		t.Errorf("doctor at a running process says\n%s", out)
	}
}

// TestDoctor_NamesLogsOfTheEarlierVersion takes from the streams what the release
// before this one did not write, loses the catalog, and gives names by hand.
func TestDoctor_NamesLogsOfTheEarlierVersion(t *testing.T) {
	t.Parallel()
	s := newDirectory(t)
	before := s.items()
	s.up.stop()
	inDirectory(t, s.dir, func(js jetstream.JetStream) {
		names, err := feed.StreamNames(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if _, ok := feed.ParseStream(name); !ok {
				continue
			}
			stream, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			cfg := stream.CachedInfo().Config
			cfg.Metadata = maps.Clone(cfg.Metadata)
			delete(cfg.Metadata, store.LabelContainer)
			delete(cfg.Metadata, store.LabelRange)
			if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}
	})
	// First start of this release: it labels them. Taken away again below, with the
	// record of the products.
	s.up.start()
	poll.Until(t, func() error {
		out, _ := run(t, s.server, "doctor")
		return poll.Unless(!strings.Contains(out, "do not carry the record"), out)
	})
	s.up.stop()
	var rid string
	inDirectory(t, s.dir, func(js jetstream.JetStream) {
		exam, err := store.Examine(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		kv, err := js.KeyValue(t.Context(), store.CatalogBucket)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range exam.Containers {
			if info.Name != "product" {
				continue
			}
			rid = string(info.ID)
			for _, p := range info.Partitions {
				stream, err := js.Stream(t.Context(), feed.Partition{Container: info.ID, Number: p.Number}.Stream())
				if err != nil {
					t.Fatal(err)
				}
				cfg := stream.CachedInfo().Config
				if !strings.Contains(cfg.Metadata[store.LabelContainer], `"name":"product"`) {
					t.Errorf("the label is %s", cfg.Metadata[store.LabelContainer])
				}
				cfg.Metadata = maps.Clone(cfg.Metadata)
				delete(cfg.Metadata, store.LabelContainer)
				if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
					t.Fatal(err)
				}
			}
			if err := kv.Purge(t.Context(), store.CatalogKey("default", "product")); err != nil {
				t.Fatal(err)
			}
		}
	})
	s.refuses("belongs to no container")
	out, errs, exit := command(t, "", nil, "doctor", "--dir", s.dir, "--fix")
	if exit != 1 || !strings.Contains(out, "--name "+rid+"=DATABASE/CONTAINER") {
		t.Fatalf("doctor --fix without a name: exit %d\n%s%s", exit, out, errs)
	}
	out, errs, exit = command(t, "", nil, "doctor", "--dir", s.dir, "--fix", "--name", rid+"=default/product")
	if exit != 0 || !regexp.MustCompile(`entered container default/product \(`+rid).MatchString(out) {
		t.Fatalf("doctor --fix --name: exit %d\n%s%s", exit, out, errs)
	}
	s.up.start()
	if after := s.items(); after != before {
		t.Errorf("the products are other ones now:\n%s\nwant\n%s", after, before)
	}
	mustRun(t, s.server, "apply", "-f", "../configs/webstore")
	mustRun(t, s.server, "verify")
}

// TestI3_ANodeWhoseNATSHasNothingDoesNotBegin starts a node without the directory of its NATS server, as where a volume is
// not mounted. It makes no catalog, which would tell that there are no items, and goes on when the directory is back.
func TestI3_ANodeWhoseNATSHasNothingDoesNotBegin(t *testing.T) {
	t.Parallel()
	s := newDirectory(t)
	before := s.items()
	s.up.stop()
	logs, away := filepath.Join(s.dir, "nats"), filepath.Join(s.dir, "away")
	if err := os.Rename(logs, away); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first has made nothing that the second takes for its own
		out, errs, exit := command(t, "", nil, "up", "--dir", s.dir, "--port", "-1", "--listen", "off", "--gateway", "off")
		if exit != 2 || !strings.Contains(errs, "NATS has nothing of Millrace's, though this node's engine holds") || !strings.Contains(errs, "nats.dir") {
			t.Fatalf("up without the logs: exit %d\n%s%s", exit, out, errs)
		}
	}
	if err := os.RemoveAll(logs); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, logs); err != nil {
		t.Fatal(err)
	}
	s.up.start()
	if after := s.items(); after != before {
		t.Errorf("the products are other ones now:\n%s\nwant\n%s", after, before)
	}
}
