package natsd_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd"
)

// A kill between the two files of a stream's configuration left a stream that the next
// server passed over, with all of its messages. Damage at rest is none of that.
func TestOpen_AnUpdateThatWasCutOffLosesNoStream(t *testing.T) {
	for _, c := range []struct {
		name string
		// spoil makes of the files before the update and after it what is found.
		spoil func(t *testing.T, meta, sum string, before, after [2][]byte)
		kept  bool
	}{
		{"between the two files", func(t *testing.T, meta, sum string, before, after [2][]byte) {
			t.Helper()
			put(t, sum, before[1])
			put(t, meta, after[0])
			at(t, sum, -time.Minute)
		}, true},
		{"a creation that was cut off and done again", func(t *testing.T, meta, sum string, _, after [2][]byte) {
			t.Helper()
			put(t, meta, after[0])
			if err := os.Remove(sum); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"damaged at rest", func(t *testing.T, meta, sum string, before, after [2][]byte) {
			t.Helper()
			put(t, meta, before[0])
			put(t, sum, after[1])
			at(t, meta, -time.Minute)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := natsd.Config{Dir: t.TempDir(), DontListen: true}
			s, js := openStream(t, cfg)
			stream := jetstream.StreamConfig{Name: "LOG", Subjects: []string{"log"}}
			if _, err := js.CreateStream(t.Context(), stream); err != nil {
				t.Fatal(err)
			}
			if _, err := js.Publish(t.Context(), "log", []byte("acknowledged")); err != nil {
				t.Fatal(err)
			}
			found, err := filepath.Glob(filepath.Join(cfg.Dir, "jetstream", "*", "streams", "LOG", "meta.inf"))
			if err != nil || len(found) != 1 {
				t.Fatalf("%v, %v", found, err)
			}
			meta, sum := found[0], filepath.Join(filepath.Dir(found[0]), "meta.sum")
			files := func() [2][]byte { return [2][]byte{get(t, meta), get(t, sum)} }
			before := files()
			stream.Metadata = map[string]string{"label": "new"}
			if _, err := js.UpdateStream(t.Context(), stream); err != nil {
				t.Fatal(err)
			}
			after := files()
			s.Close()
			c.spoil(t, meta, sum, before, after)

			_, js = openStream(t, cfg)
			m, err := js.Stream(t.Context(), "LOG")
			if !c.kept {
				if err == nil {
					t.Error("a damaged configuration is believed")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if info := m.CachedInfo(); info.State.Msgs != 1 || info.Config.Metadata["label"] != "new" {
				t.Errorf("%d messages, metadata %v", info.State.Msgs, info.Config.Metadata)
			}
		})
	}
}

func openStream(t *testing.T, cfg natsd.Config) (*natsd.Server, jetstream.JetStream) {
	t.Helper()
	s, err := natsd.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	nc, err := s.Conn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return s, js
}

func get(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func put(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// at sets when a file was written, from now.
func at(t *testing.T, name string, from time.Duration) {
	t.Helper()
	when := time.Now().Add(from)
	if err := os.Chtimes(name, when, when); err != nil {
		t.Fatal(err)
	}
}

// A kill while a stream was being deleted left a directory that every later server said it could not recover, so that the
// node was never ready.
func TestOpen_ADeletionThatWasCutOffIsFinished(t *testing.T) {
	cfg := natsd.Config{Dir: t.TempDir(), DontListen: true}
	stream := jetstream.StreamConfig{Name: "LOG", Subjects: []string{"log"}}
	for _, want := range []string{"LOG", "LOG.2"} { // the second time one of the name has been moved aside already
		s, js := openStream(t, cfg)
		if _, err := js.CreateStream(t.Context(), stream); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), "log", []byte("deleted")); err != nil {
			t.Fatal(err)
		}
		s.Close()
		found, err := filepath.Glob(filepath.Join(cfg.Dir, "jetstream", "*", "streams", "LOG", "meta.inf"))
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		if err := os.Remove(found[0]); err != nil {
			t.Fatal(err)
		}
		s, js = openStream(t, cfg)
		if err := s.Health(); err != nil {
			t.Errorf("after a deletion that was cut off: %v", err)
		}
		if _, err := js.Stream(t.Context(), "LOG"); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("the stream: %v", err)
		}
		s.Close()
		if blocks, err := filepath.Glob(filepath.Join(cfg.Dir, "deleted", "*", want, "msgs", "*.blk")); err != nil || len(blocks) == 0 {
			t.Errorf("what is left of it is not in %s: %v", want, err)
		}
	}
}
