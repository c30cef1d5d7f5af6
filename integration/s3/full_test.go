package s3_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/store/s3"
)

// smallBucket makes one on a disk of its own of 4 MiB. fill leaves it no room, and free gives
// that back.
func smallBucket(t *testing.T) (in s3.Config, fill, free func()) {
	t.Helper()
	in = newBucket(t)
	dir := filepath.Join(objects, in.Bucket)
	if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("no small disk can be made here: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil { //nolint:noctx // the test has ended
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	filler := filepath.Join(scratch, in.Bucket+"-filler") // in no bucket, so that nobody lists it
	must(t, os.Symlink(filepath.Join(dir, ".filler"), filler))
	fill = func() {
		t.Helper()
		f, err := os.OpenFile(filler, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		must(t, err)
		for size := 64 << 10; size > 0; {
			if n, err := f.Write(make([]byte, size)); err != nil || n == 0 {
				size /= 2
			}
		}
		must(t, f.Close())
	}
	free = func() { t.Helper(); must(t, os.Remove(filepath.Join(dir, ".filler"))) }
	return in, fill, free
}

// full is what the server says of a disk without room.
const full = "space"

// A bucket that is full keeps no store from writing. It is said, and nothing is trimmed; when
// there is room it is used.
func TestSnapshots_ABucketThatIsFull(t *testing.T) {
	t.Parallel()
	in, fill, free := smallBucket(t)
	fill()
	s := newShop(t, settings(in)...)
	s.start()
	s.declare(oneTrimmed)
	s.fill(0, 200)
	poll.Until(t, func() error {
		said := s.log.String()
		return poll.Unless(strings.Contains(said, "no snapshot could be taken") && strings.Contains(said, full), "it does not say that the bucket is full: "+said)
	})
	poll.Until(t, func() error { // the log may have told it of another container
		for _, p := range s.described() {
			if st := p.Status; st.Snapshot == nil || st.Snapshot.Failed == "" {
				return errors.New("it does not tell that it has no snapshot: " + p.text)
			}
		}
		return nil
	})
	for _, p := range s.described() {
		if st := p.Status; st.Trim != nil && st.Trim.First > 1 || st.Snapshot.LSN > 0 {
			t.Errorf("it has trimmed, or a snapshot: %s", p.text)
		}
	}
	free()
	s.fill(0, 200)
	s.trimmed()
}

// takeAway removes files, and back makes them again, with folders that the server has removed.
func takeAway(t *testing.T, files []string) (back func()) {
	t.Helper()
	held := map[string][]byte{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(t, err)
		held[file] = data
		must(t, os.Remove(file))
	}
	return func() {
		t.Helper()
		for file, data := range held {
			must(t, os.MkdirAll(filepath.Dir(file), 0o755))
			must(t, os.WriteFile(file, data, 0o600))
		}
	}
}

// A backup into a bucket that is full is none, and leaves the one before it whole.
func TestBackup_IntoABucketThatIsFull(t *testing.T) {
	t.Parallel()
	in, fill, free := smallBucket(t)
	s := newShop(t)
	s.start()
	s.declare("{partitionKey: [/k]}")
	s.fill(0, 200)
	var first struct{ ID string }
	must(t, json.Unmarshal([]byte(s.mustRun("backup", "create", place(in), "-o", "json")), &first))
	fill()
	s.fill(0, 200)
	if out, code := s.run("backup", "create", place(in), "--endpoint", "http://"+endpoint, "--region", "us-east-1"); code == 0 || !strings.Contains(out, full) || !strings.Contains(out, in.Bucket) {
		t.Errorf("backup into a full bucket: exit %d, %s", code, out)
	}
	if out, code := command(t, "backup", "list", place(in)); code != 0 || !strings.Contains(out, first.ID) || strings.Count(out, "\n") != 2 {
		t.Errorf("list: exit %d, %s", code, out)
	}
	if out, code := command(t, "backup", "verify", place(in)); code != 0 || !strings.Contains(out, "all is whole") {
		t.Errorf("verify: exit %d, %s", code, out)
	}
	free()
	s.mustRun("backup", "create", place(in))
	if out, code := command(t, "backup", "verify", place(in)); code != 0 || !strings.Contains(out, "all is whole") {
		t.Errorf("verify of both: exit %d, %s", code, out)
	}
}

// The files of a backup are gone: verify and restore name one, and nothing is made.
func TestBackup_WithPartsThatAreGone(t *testing.T) {
	t.Parallel()
	in := newBucket(t)
	s := newShop(t)
	s.start()
	s.declare("{partitionKey: [/k]}")
	s.fill(0, 200)
	s.mustRun("backup", "create", place(in))
	gone := files(t, in)
	back := takeAway(t, gone)
	to := newShop(t)
	for _, args := range [][]string{{"backup", "verify", place(in)}, {"restore", place(in), "--dir", to.dir}} {
		out, code := command(t, args...)
		named := slices.ContainsFunc(gone, func(file string) bool { return strings.Contains(out, filepath.Base(file)) })
		if code == 0 || !named {
			t.Errorf("%s: exit %d, %s; want the name of a file", args, code, out)
		}
	}
	if made, err := os.ReadDir(to.dir); err != nil || len(made) > 0 {
		t.Errorf("the restore has made %v, %v", made, err)
	}
	back()
	if out, code := command(t, "restore", place(in), "--dir", to.dir); code != 0 {
		t.Errorf("restore: exit %d, %s", code, out)
	}
}

// A pointer names a snapshot whose parts are gone, and its log was trimmed: the store answers
// nothing without its engine, says why, and opens when they are back.
func TestSnapshots_APointerToPartsThatAreGone(t *testing.T) {
	t.Parallel()
	in := newBucket(t)
	s := newShop(t, settings(in)...)
	s.start()
	s.declare(oneTrimmed)
	s.fill(0, 300)
	s.trimmed()
	want := s.items()
	s.Kill()
	must(t, os.RemoveAll(filepath.Join(s.dir, "engine")))
	gone := parts(t, in)
	back := takeAway(t, gone)
	s.begin() // it may not become ready
	poll.Until(t, func() error {
		said := s.log.String()
		return poll.Unless(strings.Contains(said, "there is no usable snapshot in s3://"+in.Bucket), "it does not say what is wrong: "+said)
	})
	back()
	poll.Until(t, func() error { // it is looked for every few seconds
		out, code := s.run("export", "things")
		return poll.Unless(code == 0, out)
	})
	if got := s.items(); got != want {
		t.Error("with the parts back the items are not those that were written")
	}
}

// A sink writes rows to a bucket that is full, or away: it says so with the bucket's name, the
// table stays as it was, and the same rows are taken when the bucket takes them.
func TestSink_ABucketThatTakesNothing(t *testing.T) {
	t.Parallel()
	small, fill, free := smallBucket(t)
	other := newBucket(t)
	dir := filepath.Join(objects, other.Bucket)
	for name, c := range map[string]struct {
		in         s3.Config
		begin, end func()
		complain   string
	}{
		"full": {small, fill, free, full},
		"away": {other, func() { must(t, os.Rename(dir, dir+"-away")) }, func() { must(t, os.Rename(dir+"-away", dir)) }, "does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			sink, err := parquetsink.New(parquetsink.Bucket(open(t, c.in)), config())
			must(t, err)
			t.Cleanup(func() { _ = sink.Close() })
			w := orders(t, sink, 1)
			put := func(n int) error {
				values := []project.Value{project.TextOf(strings.Repeat("x", n+1)), project.TextOf("Berlin")}
				_, err := w.Write(t.Context(), &project.Batch{
					After: feed.Position{LSN: feed.LSN(n)}, UpTo: feed.Position{LSN: feed.LSN(n + 1)},
					Put: []project.Row{{Key: values[:1:1], Values: values, Source: "s"}},
				})
				if err == nil {
					_, err = w.Flush(t.Context())
				}
				return err
			}
			must(t, put(0))
			before := objectsOf(t, c.in)
			c.begin()
			err = put(1)
			if err == nil || !strings.Contains(err.Error(), c.complain) || !strings.Contains(err.Error(), c.in.Bucket) {
				t.Errorf("rows were taken, or it does not say why not: %v", err)
			}
			c.end()
			if after := objectsOf(t, c.in); !slices.Equal(before, after) {
				t.Errorf("the table has %q, had %q", after, before)
			}
			// The next term of the processor begins where the last commit was.
			w = orders(t, sink, 2)
			must(t, put(1))
			if after := objectsOf(t, c.in); len(after) <= len(before) {
				t.Errorf("nothing was written: %q", after)
			}
		})
	}
}

// orders begins a term of a producer of orders.
func orders(t *testing.T, sink *parquetsink.Sink, epoch uint64) project.Writer {
	t.Helper()
	schema := &project.Schema{Pipeline: "analytics", Generation: 1, Tables: []project.TableSchema{{
		Name: "orders", Key: []int{0}, Columns: []project.ColumnSchema{{Name: "id"}, {Name: "city"}},
	}}}
	w, _, err := sink.Open(t.Context(), schema, project.Term{Producer: feed.Producer{Pipeline: schema.Pipeline, Generation: 1, Source: "source:c7k2x4ab/0"}, Epoch: epoch})
	must(t, err)
	return w
}

// objectsOf are the names of a bucket's objects.
func objectsOf(t *testing.T, in s3.Config) (all []string) {
	t.Helper()
	for o, err := range open(t, in).List(t.Context(), "", "") {
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		must(t, err)
		all = append(all, o.Name)
	}
	return all
}
