package doctor_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

// TestFix_LeavesWhatWasWrittenSinceTheLook: another process may have repaired or made a record
// meanwhile.
func TestFix_LeavesWhatWasWrittenSinceTheLook(t *testing.T) {
	t.Parallel()
	const nothing = "container.default.nothing"
	for name, c := range map[string]struct{ bucket, key, bad string }{
		"a container that cannot be read":      {store.CatalogBucket, "container.default.product", "{"},
		"a container that is lost":             {store.CatalogBucket, "container.default.product", ""},
		"a database that cannot be read":       {store.CatalogBucket, "database.empty", "?"},
		"a pipeline that cannot be read":       {registry.Bucket, "pipeline.default.names", "[]"},
		"a pipeline that is lost":              {registry.Bucket, "pipeline.default.names", ""},
		"a pipeline that nothing can tell of":  {registry.Bucket, "pipeline.default.new", "[]"},
		"a record that no log has":             {store.CatalogBucket, nothing, "{}"},
		"a record that was deleted meanwhile":  {store.CatalogBucket, nothing, "{}"},
		"a database that was deleted likewise": {store.CatalogBucket, "database.empty", "?"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSoundWard(t)
			kv := w.bucket(c.bucket)
			right := []byte(`{"written":"since"}`) // where the fix could tell nothing
			if entry, err := kv.Get(t.Context(), c.key); err == nil {
				right = append(entry.Value(), ' ') // as good, and other bytes
			}
			if c.bad == "" {
				w.lose(c.bucket, c.key)
			} else {
				w.put(c.bucket, c.key, c.bad)
			}
			deleted := strings.Contains(name, "deleted")
			r, err := w.doctor.FixBetween(t.Context(), nil, func() {
				if deleted {
					if err := kv.Delete(t.Context(), c.key); err != nil {
						t.Fatal(err)
					}
					return
				}
				w.put(c.bucket, c.key, string(right))
			})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(fmt.Sprint(r.Done), "left record "+c.key) {
				t.Errorf("it does not tell that it left the record: %q", r.Done)
			}
			entry, err := kv.Get(t.Context(), c.key)
			switch {
			case deleted && !errors.Is(err, jetstream.ErrKeyNotFound):
				t.Errorf("what somebody has deleted is there again: %v", err)
			case !deleted && err != nil:
				t.Errorf("what somebody has written is gone: %v", err)
			case !deleted && string(entry.Value()) != string(right):
				t.Errorf("it is %s, and somebody has written %s", entry.Value(), right)
			}
		})
	}
}
