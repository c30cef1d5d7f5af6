package s3_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/s3"
)

const oneTrimmed = "{partitionKey: [/k], changeFeed: {retention: 0s}}"

// described is a partition of the container, as describe prints it.
type described struct {
	Status *store.PartitionStatus `json:"status"`
	text   string
}

func (s *shop) described() (all []described) {
	s.t.Helper()
	var c struct {
		Partitions json.RawMessage `json:"partitions"`
	}
	out := s.mustRun("describe", "container", "things", "-o", "json")
	must(s.t, json.Unmarshal([]byte(out), &c))
	must(s.t, json.Unmarshal(c.Partitions, &all))
	for i := range all {
		all[i].text = out
	}
	return all
}

// trimmed waits until the log of the container was trimmed up to the newest snapshot. Of less an
// older snapshot could make what the newest one holds, and one of nothing has no parts.
func (s *shop) trimmed() {
	s.t.Helper()
	poll.Until(s.t, func() error {
		for _, p := range s.described() {
			if p.Status == nil || p.Status.Snapshot == nil || p.Status.Trim == nil || p.Status.Trim.First < max(p.Status.Snapshot.LSN, 3) {
				return fmt.Errorf("no snapshot, or nothing trimmed: %s", p.text)
			}
		}
		return nil
	})
}

// parts are the files of the bucket that hold parts of snapshots.
func parts(t testing.TB, in s3.Config) (files []string) {
	t.Helper()
	must(t, filepath.WalkDir(filepath.Join(objects, in.Bucket), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.HasSuffix(path, ".json") {
			files = append(files, path)
		}
		return err
	}))
	if len(files) == 0 {
		t.Fatal("the bucket has no parts")
	}
	return files
}

// A store is killed, and loses its engine. Its log was trimmed, so what is in the bucket is
// all that there is of most items: with wrong bytes there it answers nothing and says why,
// and when they are right again it opens by itself and has everything.
func TestSnapshots_AnEngineIsMadeOfTheBucket(t *testing.T) {
	t.Parallel()
	in := newBucket(t)
	s := newShop(t, settings(in)...)
	s.start()
	s.declare(oneTrimmed)
	s.fill(0, 500)
	s.fill(100, 300)
	s.trimmed()
	want := s.items()
	s.Kill()
	lose := func() { must(t, os.RemoveAll(filepath.Join(s.dir, "engine"))) }
	lose()
	s.start()
	if got := s.items(); got != want || !strings.Contains(s.log.String(), "snapshot loaded") {
		t.Errorf("the items are not those that were written, or no snapshot was loaded")
	}
	s.Kill()
	lose()
	right := map[string][]byte{}
	for _, file := range parts(t, in) {
		data, err := os.ReadFile(file)
		must(t, err)
		right[file] = data
		wrong := append([]byte{}, data...)
		wrong[len(wrong)/2] ^= 1
		must(t, os.WriteFile(file, wrong, 0o600))
	}
	s.begin() // it may not become ready
	poll.Until(t, func() error {
		said := s.log.String()
		return poll.Unless(strings.Contains(said, "has checksum") && strings.Contains(said, "there is no usable snapshot in s3://"+in.Bucket), "it does not say what is wrong: "+said)
	})
	for file, data := range right {
		must(t, os.WriteFile(file, data, 0o600))
	}
	poll.Until(t, func() error { // it is looked for every few seconds
		out, code := s.run("export", "things")
		return poll.Unless(code == 0, out)
	})
	if got := s.items(); got != want {
		t.Error("with the right bytes back the items are not those that were written")
	}
	if said := s.log.String(); strings.Contains(said, secret) {
		t.Error("a key is in the log")
	}
}

// A bucket that is not there keeps no store from starting and writing. It is said, and
// nothing is trimmed; when the bucket is there it is used.
func TestSnapshots_ABucketThatIsAway(t *testing.T) {
	t.Parallel()
	in := newBucket(t)
	folder := filepath.Join(objects, in.Bucket)
	must(t, os.Rename(folder, folder+"-away"))
	s := newShop(t, settings(in)...)
	s.start()
	s.declare(oneTrimmed)
	s.fill(0, 200)
	poll.Until(t, func() error {
		said := s.log.String()
		return poll.Unless(strings.Contains(said, "no snapshot could be taken") && strings.Contains(said, in.Bucket), "it does not say that the bucket is away: "+said)
	})
	for _, p := range s.described() {
		if st := p.Status; st.Trim != nil && st.Trim.First > 1 || st.Snapshot == nil || st.Snapshot.LSN > 0 || st.Snapshot.Failed == "" {
			t.Errorf("it has trimmed, or a snapshot, or does not tell that it has none: %s", p.text)
		}
	}
	must(t, os.Rename(folder+"-away", folder))
	s.fill(0, 200)
	s.trimmed()
}
