package snapshot_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/store/snapshot"
)

// FuzzEntries reads parts, manifests and pointers of any bytes: no input makes a reader
// panic, and none but the right one is taken.
func FuzzEntries(f *testing.F) {
	f.Add([]byte("x"), 0)
	f.Add([]byte(`{"format":1}`), 1)
	f.Add([]byte(`{"format":1,"snapshots":[]}`), 2)
	base := snapshot.Directory(filepath.Join("testdata", "v1"))
	all, _, err := snapshot.Newest(context.Background(), base, part)
	if err != nil || len(all) == 0 {
		f.Fatalf("testdata/v1: %v", err)
	}
	names := []string{all[0].ID() + "/000001", all[0].ID() + "/manifest.json", "newest.json"}
	for i, name := range names {
		data, err := base.Get(context.Background(), "c7k2x4ab/3/"+name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, i)
	}
	f.Fuzz(func(t *testing.T, data []byte, which int) {
		s := replaced{base, "c7k2x4ab/3/" + names[uint(which)%3], data}
		all, _, err := snapshot.Newest(t.Context(), s, part)
		must(t, err)
		for _, m := range all {
			entries := uint64(0)
			for _, err = range snapshot.Entries(t.Context(), s, m, always) {
				if err == nil {
					entries++
				}
			}
			if err == nil && entries != m.Entries {
				t.Errorf("%d entries, the manifest says %d", entries, m.Entries)
			}
		}
	})
}

type replaced struct {
	snapshot.Store
	name string
	data []byte
}

func (r replaced) Get(ctx context.Context, name string) ([]byte, error) {
	if name == r.name {
		return r.data, nil
	}
	return r.Store.Get(ctx, name)
}
