package engine_test

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/dgraph-io/badger/v4/y"

	"github.com/millrace/millrace/store/engine"
)

// damage changes a file of a directory at random and says what it did.
func damage(t testing.TB, r *rand.Rand, dir string, names []string) string {
	t.Helper()
	name := names[r.IntN(len(names))]
	path := filepath.Join(dir, name)
	data, err := os.ReadFile(path)
	must(t, err)
	used := len(data)
	for used > 0 && data[used-1] == 0 { // logs are mostly empty
		used--
	}
	used = max(used, 1)
	at := r.IntN(used)
	what := ""
	switch r.IntN(5) {
	case 0:
		what = "flipped a bit"
		data[at] ^= 1 << r.IntN(8)
	case 1:
		what = "zeroed a page"
		clear(data[at:min(at+4096, len(data))])
	case 2:
		what = "cut"
		data = data[:at]
	case 3:
		what = "filled the end with garbage"
		for i := at; i < used; i++ {
			data[i] = byte(r.Uint32())
		}
	case 4:
		must(t, os.Remove(path))
		return "removed " + name
	}
	must(t, os.WriteFile(path, data, 0o644))
	return fmt.Sprintf("%s %s at %d of %d", what, name, at, used)
}

// TestOpenOrSetAside damages files. Whatever it was, the DB opens, and applying the
// log from its State gives what it gave before; what cannot be read was set aside.
func TestOpenOrSetAside(t *testing.T) {
	const commits = 80
	m := newModel(t, 11)
	for range commits {
		m.next()
	}
	parent := t.TempDir()
	dir := filepath.Join(parent, "db")
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	p := openPartition(t, db, partA)
	m.apply(t, p, 0, commits/2)
	for range 6 {
		fill(t, openPartition(t, db, partB), 2<<20)
	}
	m.apply(t, p, commits/2, commits)
	want := digest(t, p)
	must(t, db.Close())
	original := files(t, dir)

	var tables, others []string
	for name := range original {
		if strings.HasSuffix(name, ".sst") {
			tables = append(tables, name)
		} else if name == "MANIFEST" || name == "KEYREGISTRY" {
			others = append(others, name)
		}
	}
	cfg := small
	cfg.Verify = true
	asides := 0
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 5))
		copyOf := filepath.Join(parent, fmt.Sprint("copy-", seed))
		must(t, os.Mkdir(copyOf, 0o755))
		for name, data := range original {
			must(t, os.WriteFile(filepath.Join(copyOf, name), data, 0o644))
		}
		names := tables
		if seed%4 == 0 {
			names = others
		}
		what := damage(t, r, copyOf, names)
		db, aside, err := engine.OpenOrSetAside(copyOf, cfg, quiet)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, what, err)
		}
		if aside != "" {
			asides++
			if _, err := os.Stat(aside); err != nil {
				t.Errorf("seed %d: %s: %v", seed, what, err)
			}
		}
		p := openPartition(t, db, partA)
		state, err := p.State()
		must(t, err)
		m.apply(t, p, int(state.Applied), commits)
		if got := digest(t, p); got != want {
			t.Errorf("seed %d: %s: set aside %q, state %d: the digest differs", seed, what, aside, state.Applied)
		}
		must(t, db.Close())
		must(t, os.RemoveAll(copyOf))
		must(t, os.RemoveAll(copyOf+".corrupt-1"))
	}
	if asides == 0 {
		t.Error("nothing was set aside")
	}
}

// TestOpenOrSetAside_logs damages the log of a memtable after an unclean stop.
func TestOpenOrSetAside_logs(t *testing.T) {
	const commits = 90
	m := newModel(t, 12)
	for range commits {
		m.next()
	}
	parent := t.TempDir()
	dir := filepath.Join(parent, "db")
	db := openDB(t, dir)
	p := openPartition(t, db, partA)
	for n := 0; n < commits; n += 30 {
		m.apply(t, p, n, n+30)
		must(t, db.SyncPartitions())
	}
	want := digest(t, p)
	original := files(t, dir)
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 6))
		copyOf := filepath.Join(parent, fmt.Sprint("copy-", seed))
		must(t, os.Mkdir(copyOf, 0o755))
		var names []string
		for name, data := range original {
			must(t, os.WriteFile(filepath.Join(copyOf, name), data, 0o644))
			if name != "LOCK" && name != "UNCLEAN" && name != "DISCARD" {
				names = append(names, name)
			}
		}
		what := damage(t, r, copyOf, names)
		db, aside, err := engine.OpenOrSetAside(copyOf, small, quiet)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, what, err)
		}
		p := openPartition(t, db, partA)
		state, err := p.State()
		must(t, err)
		m.apply(t, p, int(state.Applied), commits)
		if got := digest(t, p); got != want {
			t.Errorf("seed %d: %s: set aside %q, state %d: the digest differs", seed, what, aside, state.Applied)
		}
		must(t, db.Close())
		must(t, os.RemoveAll(copyOf))
		must(t, os.RemoveAll(copyOf+".corrupt-1"))
	}
}

// TestOpen_afterAKillBetweenALogAndItsSize leaves a log of each kind, the newest and one
// before the others, without its bytes, as a kill does between two calls: the DB opens with
// what it had.
func TestOpen_afterAKillBetweenALogAndItsSize(t *testing.T) {
	const commits = 20
	for _, name := range []string{"000000.vlog", "999999.vlog", "99999.mem"} {
		t.Run(name, func(t *testing.T) {
			m := newModel(t, 13)
			for range commits {
				m.next()
			}
			dir := filepath.Join(t.TempDir(), "db")
			db, err := engine.Open(dir, small, quiet)
			must(t, err)
			p := openPartition(t, db, partA)
			m.apply(t, p, 0, commits)
			want := digest(t, p)
			must(t, db.Close())
			must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
			db, err = engine.Open(dir, small, quiet)
			must(t, err)
			defer db.Close() //nolint:errcheck // it was only read
			if got := digest(t, openPartition(t, db, partA)); got != want {
				t.Error("the digest differs")
			}
		})
	}
}

// TestOpen_verifiesAfterCrashes damages a block, which nobody notices at first, and
// crashes twice: the third time all tables are read.
func TestOpen_verifiesAfterCrashes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	fill(t, openPartition(t, db, partA), 4<<20)
	must(t, db.Close())
	for name, data := range files(t, dir) {
		if strings.HasSuffix(name, ".sst") {
			data[len(data)/3] ^= 1
			must(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
		}
	}
	unclean := filepath.Join(dir, "UNCLEAN")
	for stops := range 3 {
		db, err := engine.Open(dir, small, quiet)
		if stops == 2 {
			if !errors.Is(err, engine.ErrCorrupt) {
				t.Fatalf("the third start after two crashes: %v", err)
			}
			return
		}
		must(t, err)
		must(t, db.Close())
		must(t, os.WriteFile(unclean, []byte(fmt.Sprint(stops+1)), 0o644)) // as if it had not
	}
}

func TestOpen_laterFormat(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	must(t, engine.SetVersion(db, 2))
	must(t, db.Close())
	_, aside, err := engine.OpenOrSetAside(dir, small, quiet)
	later, ok := errors.AsType[*engine.FormatError](err)
	if !ok || aside != "" || later.Version != 2 || later.Known != 1 {
		t.Errorf("a later format: %q %v", aside, err)
	}
}

// TestAnErrorOfTheMachineIsNotTheFiles gives errors of the machine as Badger does, which keeps
// nothing of a cause but its text.
func TestAnErrorOfTheMachineIsNotTheFiles(t *testing.T) {
	opening := func(cause error) error {
		return engine.OpenError("dir", y.Wrapf(&fs.PathError{Op: "open", Path: "1.sst", Err: cause}, "while opening a table"))
	}
	for _, cause := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EACCES, syscall.EPERM, syscall.ENOSPC, syscall.EROFS,
	} {
		if err := opening(cause); errors.Is(err, engine.ErrCorrupt) || !errors.Is(err, cause) {
			t.Errorf("%v: %v", cause, err)
		}
	}
	err := engine.OpenError("dir", y.Wrapf(syscall.EWOULDBLOCK, "Cannot acquire directory lock"))
	if _, ok := errors.AsType[*engine.LockedError](err); !ok || errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("a lock that another has: %v", err)
	}
	for _, cause := range []error{syscall.EIO, errors.New("bad magic")} {
		if err := opening(cause); !errors.Is(err, engine.ErrCorrupt) {
			t.Errorf("%v: %v", cause, err)
		}
	}
}
