//go:build linux && (amd64 || arm64)

package engine_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// fault makes the process meet a fault in a mapped file.
func fault(t *testing.T, write bool) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "mapped"))
	must(t, err)
	defer func() { must(t, f.Close()) }()
	data, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	if write {
		data[0] = 1
	} else if data[0] != 0 {
		t.Error("a page that cannot be read has bytes")
	}
	must(t, unix.Munmap(data))
}

// TestAFaultUnderAMappedFileIsDamage meets a fault of a write and of a read, and goes on in the
// same process or in another: nothing is believed that rests on it.
func TestAFaultUnderAMappedFileIsDamage(t *testing.T) {
	for _, write := range []bool{true, false} {
		for _, killed := range []bool{true, false} {
			t.Run(fmt.Sprintf("write=%v,killed=%v", write, killed), func(t *testing.T) {
				m := newModel(t, 22)
				for range 20 {
					m.next()
				}
				dir := filepath.Join(t.TempDir(), "db")
				db, err := engine.Open(dir, small, quiet)
				must(t, err)
				p := openPartition(t, db, partA)
				m.apply(t, p, 0, 10)
				must(t, db.SyncPartitions())
				m.apply(t, p, 10, 20)
				want := digest(t, p)
				must(t, db.Sound())

				fault(t, write)
				if killed { // before anybody has asked
					copyOf := filepath.Join(t.TempDir(), "db")
					must(t, os.Mkdir(copyOf, 0o700))
					for name, data := range files(t, dir) {
						must(t, os.WriteFile(filepath.Join(copyOf, name), data, 0o600))
					}
					t.Cleanup(func() { _ = db.Close() })
					dir = copyOf
				} else {
					if err := db.SyncPartitions(); err == nil {
						t.Error("a sync after it succeeds, though msync and fsync did")
					}
					damage, ok := errors.AsType[*engine.DamagedError](db.Sound())
					if !ok || damage.Full != (write || engine.InPlace(dir, false)) {
						t.Fatalf("the DB says %v", db.Sound())
					}
					t.Log(damage)
				}

				inPlace := engine.InPlace(dir, write)
				var again *engine.DB
				var aside string
				if killed {
					again, aside, err = engine.OpenOrSetAside(dir, small, quiet)
				} else {
					again, aside, err = db.Renew(0)
				}
				must(t, err)
				if (aside == "") != inPlace {
					t.Errorf("set aside %q", aside)
				}
				q := openPartition(t, again, partA)
				state, err := q.State()
				must(t, err)
				from := feed.LSN(0)
				if inPlace {
					from = 10
				}
				if state.Applied != from || q.Kept() {
					t.Errorf("it goes on from %d, kept %v; want %d", state.Applied, q.Kept(), from)
				}
				m.apply(t, q, int(from), 20)
				if got := digest(t, q); got != want {
					t.Error("applying the log again gives another state")
				}
				must(t, again.SyncPartitions())
				must(t, again.Sound())
				must(t, again.Close())
				again, aside, err = engine.OpenOrSetAside(dir, small, quiet)
				if err != nil || aside != "" {
					t.Errorf("closed in order and opened again: aside %q, %v", aside, err)
				}
				if state, err := openPartition(t, again, partA).State(); err != nil || state.Applied != 20 {
					t.Errorf("then it has applied %d, %v", state.Applied, err)
				}
				must(t, again.Close())
			})
		}
	}
}

// smallDisk says, in its environment, that the process is on a disk of its own.
const smallDisk = "MILLRACE_TEST_SMALL_DISK"

// TestAFullDiskUnderTheEngine fills the disk under a DB that is written, in a child process that
// may mount: the process goes on, the DB says that it is not to be believed, and when there is
// room it goes on from its last good sync, or is made anew.
func TestAFullDiskUnderTheEngine(t *testing.T) {
	if os.Getenv(smallDisk) != "" {
		fullDisk(t)
		t.Run("when it is opened", openOnFullDisk)
		t.Run("when it is closed", closeOnFullDisk)
		t.Run("when it has no inodes", mergeWithoutInodes)
		t.Run("when it is full under a merge", mergeOnFullDisk)
		return
	}
	own := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		return cmd
	}
	if out, err := own("mount", "-t", "tmpfs", "tmpfs", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("a small disk cannot be mounted here: %v %s", err, out)
	}
	cmd := own(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), smallDisk+"=1")
	out, err := cmd.CombinedOutput()
	t.Logf("on a disk of its own:\n%s", out)
	if err != nil {
		t.Error(err)
	}
}

// fullDisk fills the disk under a DB, so that its log cannot be written, or a table before it.
func fullDisk(t *testing.T) {
	t.Helper()
	for _, filled := range []string{"while it is written", "when it is flushed"} {
		t.Run(filled, func(t *testing.T) {
			disk := filepath.Join(t.TempDir(), "disk")
			must(t, os.Mkdir(disk, 0o700))
			must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=128m"))
			t.Cleanup(func() { must(t, unix.Unmount(disk, unix.MNT_DETACH)) })
			dir := filepath.Join(disk, "db")
			db, err := engine.Open(dir, small, quiet)
			must(t, err)
			p := openPartition(t, db, partA)
			body := func(i int) string {
				return fmt.Sprintf(`{"id":"item-%05d","fill":%q}`, i, strings.Repeat(string(rune('a'+i%26)), 20_000))
			}
			commit := func(p *engine.Partition, n int) error {
				b := p.NewBatch(&engine.Schema{})
				for i := n * 10; i < n*10+10; i++ {
					must(t, b.Put(item(key(t, i%50), fmt.Sprintf("item-%05d", i), body(i)), nil))
				}
				b.SetState(engine.State{Log: feed.LogID{1}, Applied: feed.LSN(n + 1), Sum: 1})
				return b.Commit()
			}
			apply := func(p *engine.Partition, n int) { must(t, commit(p, n)) }
			const synced = 20 // half of a memtable
			for n := range synced {
				apply(p, n)
			}
			must(t, db.SyncPartitions())
			flushes := filled == "when it is flushed"
			room := filepath.Join(disk, "room") // for the rest of the memtable and some commits more, not for its table
			if flushes {
				must(t, os.WriteFile(room, make([]byte, 6<<20), 0o600))
			}
			free := takeAll(t, disk)
			if flushes {
				must(t, os.Remove(room))
			}
			applied := synced
			for ; db.Sound() == nil; applied++ {
				if err := commit(p, applied); err != nil {
					t.Log(err)
					break // it is in no state, and is applied again
				}
			}
			if logs, _ := filepath.Glob(filepath.Join(dir, "*.mem")); flushes != (len(logs) > 1) {
				t.Errorf("there are the logs %v", logs)
			}
			t.Logf("after %d commits: %v", applied, db.Sound())
			if damage, ok := errors.AsType[*engine.DamagedError](db.Sound()); !ok || !damage.Full {
				t.Fatalf("the DB says %v", db.Sound())
			}
			if err := db.SyncPartitions(); err == nil {
				t.Error("a sync succeeds")
			}
			_, _, err = db.Renew(0)
			if _, ok := errors.AsType[*engine.NoRoomError](err); !ok {
				t.Fatalf("with a full disk it is made anew: %v", err)
			}
			t.Log(err)
			free()
			again, aside, err := db.Renew(0)
			must(t, err)
			q := openPartition(t, again, partA)
			state, err := q.State()
			must(t, err)
			t.Logf("opened anew at %d, aside %q", state.Applied, aside)
			if aside != "" || state.Applied != synced {
				t.Errorf("it goes on from %d, want %d", state.Applied, synced)
			}
			for n := int(state.Applied); n < applied; n++ {
				apply(q, n)
			}
			must(t, again.SyncPartitions())
			s := q.Snapshot()
			for i := range applied * 10 {
				it, ok, err := s.Get(key(t, i%50), fmt.Sprintf("item-%05d", i))
				if err != nil || !ok || string(it.Body) != body(i) {
					t.Fatalf("item %d: there %v, %v", i, ok, err)
				}
			}
			s.Close()
			must(t, again.Verify())
			must(t, again.Sound())
			must(t, again.Close())
		})
	}
}

// openOnFullDisk opens a DB that was closed in order while its disk is full.
func openOnFullDisk(t *testing.T) {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk")
	must(t, os.Mkdir(disk, 0o700))
	must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64m"))
	t.Cleanup(func() { must(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	dir := filepath.Join(disk, "db")
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	b := openPartition(t, db, partA).NewBatch(&engine.Schema{})
	must(t, b.Put(item(key(t, "k"), "a", `{"id":"a"}`), nil))
	b.SetState(engine.State{Log: feed.LogID{1}, Applied: 1, Sum: 1})
	must(t, b.Commit())
	must(t, db.Close())
	free := takeAll(t, disk)
	for range 2 {
		_, aside, err := engine.OpenOrSetAside(dir, small, quiet)
		if !errors.Is(err, syscall.ENOSPC) || aside != "" {
			t.Fatalf("on a full disk: aside %q, %v", aside, err)
		}
		t.Log(err)
	}
	free()
	db, aside, err := engine.OpenOrSetAside(dir, small, quiet)
	if err != nil || aside != "" {
		t.Fatalf("with room: aside %q, %v", aside, err)
	}
	s := openPartition(t, db, partA).Snapshot()
	if _, ok, err := s.Get(key(t, "k"), "a"); err != nil || !ok {
		t.Errorf("the item: there %v, %v", ok, err)
	}
	s.Close()
	must(t, db.Close())
}

// closeOnFullDisk closes a DB that found its disk full: what was synced stays whole.
func closeOnFullDisk(t *testing.T) {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk")
	must(t, os.Mkdir(disk, 0o700))
	must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=64m"))
	t.Cleanup(func() { must(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	dir := filepath.Join(disk, "db")
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	p := openPartition(t, db, partA)
	apply := func(n int) error {
		b := p.NewBatch(&engine.Schema{})
		must(t, b.Put(item(key(t, "k"), fmt.Sprint(n), fmt.Sprintf(`{"id":"%d","fill":%q}`, n, strings.Repeat("x", 100_000))), nil))
		b.SetState(engine.State{Log: feed.LogID{1}, Applied: feed.LSN(n), Sum: 1})
		return b.Commit()
	}
	must(t, apply(1))
	must(t, db.SyncPartitions())
	free := takeAll(t, disk)
	for n := 2; db.Sound() == nil; n++ {
		if err := apply(n); err != nil {
			t.Log(err)
		}
	}
	must(t, db.Close())
	free()
	if tables, _ := filepath.Glob(filepath.Join(dir, "*.sst")); len(tables) > 0 {
		t.Errorf("on a full disk it wrote %v", tables)
	}
	copyOf := filepath.Join(t.TempDir(), "db") // as the next process finds it
	must(t, os.Mkdir(copyOf, 0o700))
	for name, data := range files(t, dir) {
		must(t, os.WriteFile(filepath.Join(copyOf, name), data, 0o600))
	}
	again, aside, err := engine.OpenOrSetAside(copyOf, small, quiet)
	must(t, err)
	if state, err := openPartition(t, again, partA).State(); err != nil || state.Applied != 1 || aside != "" {
		t.Errorf("it goes on from %d, want 1; aside %q, %v", state.Applied, aside, err)
	}
	must(t, again.Close())
}

// mergeWithoutInodes merges tables while the disk has room but takes three more files only, and
// when it takes more again.
func mergeWithoutInodes(t *testing.T) {
	t.Helper()
	made := filepath.Join(t.TempDir(), "db")
	items, _ := mergeable(t, made)
	disk := filepath.Join(t.TempDir(), "disk")
	must(t, os.Mkdir(disk, 0o700))
	must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=128m,nr_inodes=1000"))
	t.Cleanup(func() { must(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	dir := filepath.Join(disk, "db")
	writeFiles(t, dir, files(t, made))
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	before := engine.Levels(db)
	intact(t, db, items)
	var disks unix.Statfs_t
	must(t, unix.Statfs(disk, &disks))
	must(t, unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=128m,nr_inodes=%d", disks.Files-disks.Ffree+3)))
	if err := engine.Flatten(db); err == nil {
		t.Error("a merge that cannot make its tables succeeds")
	}
	intact(t, db, items)
	if tables := engine.Levels(db); !slices.Equal(tables, before) {
		t.Errorf("the levels have %v tables, want %v", tables, before)
	}
	must(t, unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=128m,nr_inodes=1000"))
	must(t, engine.Flatten(db))
	intact(t, db, items)
	must(t, db.Close())
}

// mergeOnFullDisk merges tables while the disk has no room for what they become, and when it has again.
func mergeOnFullDisk(t *testing.T) {
	t.Helper()
	made := filepath.Join(t.TempDir(), "db")
	items, _ := mergeable(t, made)
	disk := filepath.Join(t.TempDir(), "disk")
	must(t, os.Mkdir(disk, 0o700))
	must(t, unix.Mount("tmpfs", disk, "tmpfs", 0, "size=128m"))
	t.Cleanup(func() { must(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	dir := filepath.Join(disk, "db")
	writeFiles(t, dir, files(t, made))
	db, err := engine.Open(dir, small, quiet)
	must(t, err)
	before := engine.Levels(db)
	intact(t, db, items)
	free := takeAll(t, disk)
	names := tablesIn(t, dir)
	if err := engine.Flatten(db); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("a merge without room: %v", err)
	}
	intact(t, db, items)
	if tables := engine.Levels(db); !slices.Equal(tables, before) {
		t.Errorf("the levels have %v tables, want %v", tables, before)
	}
	if left := tablesIn(t, dir); !slices.Equal(left, names) {
		t.Errorf("there are the files %v, want %v", left, names)
	}
	free()
	must(t, engine.Flatten(db))
	intact(t, db, items)
	must(t, db.Close())
}

// takeAll takes all that is free on a disk at once, until the function is called that it returns.
func takeAll(t *testing.T, disk string) (free func()) {
	t.Helper()
	name := filepath.Join(disk, "ballast")
	f, err := os.Create(name)
	must(t, err)
	for step := int64(16 << 20); step >= 4096; {
		info, err := f.Stat()
		must(t, err)
		if err := unix.Fallocate(int(f.Fd()), 0, info.Size(), step); err != nil {
			step /= 2
		}
	}
	must(t, f.Close())
	return func() { must(t, os.Remove(name)) }
}

// fewFiles says, in its environment, how many files more the process may open; the directory of
// its DB is behind.
const fewFiles = "MILLRACE_TEST_FEW_FILES"

// TestTooFewDescriptorsAreNotTheFiles opens a sound DB of several tables in child processes that
// may open one file, two, and so on: until they are enough it stays where it is. Badger ends the
// process for some that it lacks.
func TestTooFewDescriptorsAreNotTheFiles(t *testing.T) {
	if s := os.Getenv(fewFiles); s != "" {
		openWithFewFiles(t, s)
		return
	}
	parent := t.TempDir()
	dir := filepath.Join(parent, "db")
	mergeable(t, dir)
	refused := 0
	for more := 1; ; more++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %s", fewFiles, more, dir))
		out, _ := cmd.CombinedOutput() // it says what counts
		if asides, err := filepath.Glob(dir + ".corrupt-*"); err != nil || len(asides) > 0 {
			t.Fatalf("with %d files: %v\n%s", more, asides, out)
		}
		if strings.Contains(string(out), "--- PASS") {
			t.Logf("it takes %d files; for %d others it says so", more, refused)
			break
		}
		if strings.Contains(string(out), "too many open files") {
			refused++
		} else {
			t.Fatalf("with %d files:\n%s", more, out)
		}
	}
	if refused < 5 {
		t.Errorf("it was refused %d times", refused)
	}
}

// openWithFewFiles opens a DB with as many files more as s begins with.
func openWithFewFiles(t *testing.T, s string) {
	t.Helper()
	var more uint64
	_, err := fmt.Sscan(s, &more)
	must(t, err)
	_, dir, _ := strings.Cut(s, " ")
	listed, err := os.Open("/proc/self/fd")
	must(t, err)
	own := fmt.Sprint(listed.Fd())
	used, err := listed.Readdirnames(-1)
	must(t, err)
	must(t, listed.Close())
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	before := limit
	// The limit is one of numbers: what the process was given may have any.
	limit.Cur = 0
	for free := uint64(0); free < more; limit.Cur++ {
		if n := fmt.Sprint(limit.Cur); n == own || !slices.Contains(used, n) {
			free++
		}
	}
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	db, _, err := engine.OpenOrSetAside(dir, small, quiet)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) // to close it takes some, too
	must(t, err)
	must(t, db.Close())
}
