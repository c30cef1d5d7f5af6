package s3_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store/s3"
)

// place is the URL of a bucket.
func place(in s3.Config) string { return "s3://" + in.Bucket + "/" + in.Prefix }

// A backup goes to a bucket while the store works, one that is killed is none, the next one
// sends what is new, an old one is pruned, and another store is made of what stays. Wrong
// bytes are found before anything is restored.
func TestBackup_ThroughABucket(t *testing.T) {
	t.Parallel()
	in := newBucket(t)
	s := newShop(t)
	s.start()
	s.declare("{partitionKey: [/k], partitions: 4}")
	s.fill(0, 500)
	path, err := binary()
	must(t, err)
	cut := exec.Command(path, "backup", "create", place(in), "--server", s.nats, "--creds", filepath.Join(s.dir, "credentials", "admin.json"),
		"--endpoint", "http://"+endpoint, "--region", "us-east-1")
	cut.Env = environ()
	must(t, cut.Start())
	poll.Until(t, func() error {
		return poll.Unless(len(files(t, in)) > 0, "nothing was sent")
	})
	_ = cut.Process.Kill() // it may have ended
	err = cut.Wait()
	if out, _ := command(t, "backup", "list", place(in)); err != nil && strings.Count(out, "\n") > 1 {
		t.Errorf("a backup that was killed is listed: %s", out)
	}
	first := s.mustRun("backup", "create", place(in))
	s.fill(0, 20)
	want := s.items()
	second := s.mustRun("backup", "create", place(in), "-o", "json")
	var made struct {
		ID          string
		Bytes, Sent uint64
	}
	must(t, json.Unmarshal([]byte(second), &made))
	if made.Sent == 0 || made.Sent*2 > made.Bytes {
		t.Errorf("%s\nthen %s: all was sent again", first, second)
	}
	if out, code := command(t, "backup", "prune", place(in), "--keep", "1"); code != 0 || !strings.Contains(out, "would be deleted") {
		t.Errorf("prune, dry: exit %d, %s", code, out)
	}
	if out, code := command(t, "backup", "prune", place(in), "--keep", "1", "--yes"); code != 0 {
		t.Errorf("prune: exit %d, %s", code, out)
	}
	if out, code := command(t, "backup", "list", place(in)); code != 0 || !strings.Contains(out, made.ID) || strings.Count(out, "\n") != 2 {
		t.Errorf("list: exit %d, %s", code, out)
	}
	if out, code := command(t, "backup", "verify", place(in)); code != 0 || !strings.Contains(out, "all is whole") {
		t.Errorf("verify: exit %d, %s", code, out)
	}
	to := newShop(t)
	all := files(t, in)
	right, err := os.ReadFile(all[0])
	must(t, err)
	wrong := append([]byte{}, right...)
	wrong[len(wrong)/2] ^= 1
	must(t, os.WriteFile(all[0], wrong, 0o600))
	if out, code := command(t, "restore", place(in), "--dir", to.dir); code == 0 || !strings.Contains(out, "nothing was changed") {
		t.Errorf("restore of wrong bytes: exit %d, %s", code, out)
	}
	must(t, os.WriteFile(all[0], right, 0o600))
	if out, code := command(t, "restore", place(in), "--dir", to.dir); code != 0 || strings.Contains(out, secret) {
		t.Fatalf("restore: exit %d, %s", code, out)
	}
	to.start()
	if got := to.items(); got != want {
		t.Error("the items that were restored are not those that were written")
	}
	for want, args := range map[string][]string{
		"does not exist":   {"backup", "create", "s3://not-there/x", "--server", s.nats, "--creds", filepath.Join(s.dir, "credentials", "admin.json")},
		"is expected":      {"backup", "list", "gs://b/x"},
		"holds no backups": {"backup", "list", place(newBucket(t))},
	} {
		if out, code := command(t, args...); code == 0 || !strings.Contains(out, want) {
			t.Errorf("millrace %v: exit %d, %s; want %q", args, code, out, want)
		}
	}
}

// files are those of a bucket that hold parts and segments.
func files(t testing.TB, in s3.Config) (all []string) {
	t.Helper()
	_ = filepath.WalkDir(filepath.Join(objects, in.Bucket, in.Prefix), func(path string, d fs.DirEntry, err error) error { // what goes meanwhile is not listed
		if err == nil && !d.IsDir() && (strings.Contains(path, "/log/") || strings.Contains(path, "/parts/")) {
			all = append(all, path)
		}
		return nil
	})
	return all
}
