package s3_test

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/store/s3"
)

func TestS3_ObjectsAreMadeOnce(t *testing.T) {
	b := open(t, newBucket(t))
	ctx := t.Context()
	const rivals = 16
	var won atomic.Int64
	var wg sync.WaitGroup
	for i := range rivals {
		wg.Go(func() {
			switch err := b.PutExclusive(ctx, "_manifest/1", fmt.Appendf(nil, "rival %d", i)); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Errorf("rival %d: %v, want fs.ErrExist", i, err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d of %d made the object, want 1", won.Load(), rivals)
	}
}

func TestS3_ReadsListsAndDeletes(t *testing.T) {
	b := open(t, newBucket(t))
	ctx := t.Context()
	if _, err := b.Get(ctx, "a/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("get of nothing: %v, want fs.ErrNotExist", err)
	}
	names := []string{"a/b/1", "a/b/2", "a/c=%2F é/3.parquet", "ab/4"}
	for _, name := range names {
		if err := b.Put(ctx, name, []byte("first")); err != nil {
			t.Fatal(err)
		}
		if err := b.Put(ctx, name, []byte(name)); err != nil {
			t.Fatal(err)
		}
		if got, err := b.Get(ctx, name); err != nil || string(got) != name {
			t.Errorf("get %s: %q, %v", name, got, err)
		}
	}
	for _, c := range []struct {
		prefix, after string
		want          []string
	}{{"a/", "", names[:3]}, {"a/", "a/b/1", names[1:3]}, {"", "", names}, {"none/", "", nil}} {
		var got []string
		for o, err := range b.List(ctx, c.prefix, c.after) {
			if err != nil {
				t.Fatal(err)
			}
			if age := time.Since(o.Modified); age > time.Hour || age < -time.Hour {
				t.Errorf("%s was modified %s ago", o.Name, age)
			}
			got = append(got, o.Name)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("list %q after %q: %q, want %q", c.prefix, c.after, got, c.want)
		}
	}
	for prefix, want := range map[string][]string{"": {"a/", "ab/"}, "a/": {"b/", "c=%2F é/"}, "a/b/": {"1", "2"}, "none/": nil} {
		if got, err := b.Names(ctx, prefix); err != nil || !slices.Equal(got, want) {
			t.Errorf("names below %q: %q, %v; want %q", prefix, got, err, want)
		}
	}
	if err := b.Delete(ctx, append(names, "none")...); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(ctx, "none"); err != nil {
		t.Fatal(err)
	}
	if left, err := b.Names(ctx, ""); err != nil || len(left) > 0 {
		t.Errorf("folders are left: %q, %v", left, err)
	}
	for o, err := range b.List(ctx, "", "") {
		t.Errorf("left: %s %v", o.Name, err)
	}
}

// Of those who saw the same object one replaces it, and what was not seen is not replaced.
func TestBucket_ReplacesWhatWasSeen(t *testing.T) {
	b, ctx := open(t, newBucket(t)), t.Context()
	const name = "newest.json"
	if err := b.PutMatching(ctx, name, []byte("0"), "abc"); !errors.Is(err, s3.ErrChanged) {
		t.Errorf("an object that is not there: %v, want ErrChanged", err)
	}
	if err := b.PutExclusive(ctx, name, []byte("0")); err != nil {
		t.Fatal(err)
	}
	if err := b.Prove(ctx, name, []byte("0")); err != nil {
		t.Errorf("the server is taken for one that does not compare: %v", err)
	}
	_, seen, err := b.Look(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	var won atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			switch err := b.PutMatching(ctx, name, fmt.Appendf(nil, "rival %d", i), seen); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, s3.ErrChanged):
				t.Errorf("rival %d: %v, want ErrChanged", i, err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d of 16 replaced the object, want 1", won.Load())
	}
}

// What is wrong is told with the bucket, and without the keys.
func TestBucket_SaysWhatIsWrong(t *testing.T) {
	in := newBucket(t)
	away, denied := in, in
	away.Bucket = "not-there"
	denied.SecretKeyEnv = "TEST_WRONG_SECRET"
	t.Setenv("TEST_WRONG_SECRET", "a-wrong-secret")
	for want, c := range map[string]s3.Config{"does not exist": away, "": denied} {
		b := open(t, c)
		_, list := b.Names(t.Context(), "")
		for what, err := range map[string]error{"put": b.Put(t.Context(), "a", nil), "list": list} {
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), c.Bucket) || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v; want %q and the bucket's name", what, err, want)
			}
			if err != nil && (strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "a-wrong-secret")) {
				t.Errorf("%s tells a key: %v", what, err)
			}
		}
	}
}
