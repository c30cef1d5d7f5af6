//go:build linux && (amd64 || arm64)

package mapguard_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/store/internal/mapguard"
)

// role names, in the environment of a child process, what it does in place of tests.
const role = "MILLRACE_TEST_ROLE"

func TestMain(m *testing.M) {
	if do := roles[os.Getenv(role)]; do != nil {
		do()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var pageSize = os.Getpagesize()

// mapped maps a file of so many pages, each full of its letter, and cuts it to less: beyond
// that each access is a fault.
func mapped(t testing.TB, flags, pages, left int) (data []byte, f *os.File) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	for i := range pages {
		if _, err := f.Write(bytes.Repeat([]byte{'a' + byte(i)}, pageSize)); err != nil {
			t.Fatal(err)
		}
	}
	if data, err = unix.Mmap(int(f.Fd()), 0, pages*pageSize, unix.PROT_READ|unix.PROT_WRITE, flags); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(data); err != nil {
			t.Error(err)
		}
	})
	if err := f.Truncate(int64(left * pageSize)); err != nil {
		t.Fatal(err)
	}
	return data, f
}

func install(t testing.TB) {
	t.Helper()
	if err := mapguard.Install(); err != nil {
		t.Fatal(err)
	}
}

// met returns the faults since before.
func met(before mapguard.Faults) mapguard.Faults {
	now := mapguard.Met()
	return mapguard.Faults{Reads: now.Reads - before.Reads, Writes: now.Writes - before.Writes}
}

func TestTheProcessOutlivesFaultsInMappedFiles(t *testing.T) {
	install(t)
	data, f := mapped(t, unix.MAP_SHARED, 6, 2)
	before, count := mapguard.Met(), mapguard.Count()

	data[0] = 'A'
	if got := met(before); got != (mapguard.Faults{}) {
		t.Errorf("a page that is there counted as %+v", got)
	}
	copy(data[3*pageSize+100:], "written")
	if got := met(before); got != (mapguard.Faults{Writes: 1}) {
		t.Errorf("a page that was written counted as %+v", got)
	}
	if got := data[4*pageSize+7]; got != 0 {
		t.Errorf("a page that cannot be read reads as %q", got)
	}
	if got := met(before); got != (mapguard.Faults{Reads: 1, Writes: 1}) {
		t.Errorf("a page that was read and one that was written counted as %+v", got)
	}
	if got := mapguard.Count() - count; got != 2 {
		t.Errorf("2 pages counted as %d", got)
	}

	// All goes on: what was written is read back, and pages beside it are as they were.
	want := append(bytes.Repeat([]byte{0}, 100), "written"...)
	if got := data[3*pageSize:][:len(want)]; !bytes.Equal(got, want) {
		t.Errorf("read back: %q", got)
	}
	if data[0] != 'A' || data[pageSize] != 'b' {
		t.Errorf("pages beside it: %q %q", data[0], data[pageSize])
	}
	if got := mapguard.Count() - count; got != 2 {
		t.Errorf("pages that were replaced met faults again: %d", got)
	}
	// Neither tells of a page that the file lacks: who syncs has to look at Count.
	if err := unix.Msync(data, unix.MS_SYNC); err != nil {
		t.Errorf("msync: %v", err)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("fsync: %v", err)
	}
}

// TestManyThreadsMeetOneFault lets threads meet the same faults at the same time: none of
// them takes the page of another away.
func TestManyThreadsMeetOneFault(t *testing.T) {
	install(t)
	const threads, pages, rounds = 8, 32, 50
	for range rounds {
		data, _ := mapped(t, unix.MAP_SHARED, pages, 0)
		count := mapguard.Count()
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range threads {
			wg.Go(func() {
				<-start
				for p := range pages {
					data[p*pageSize+i] = byte(i + 1)
				}
			})
		}
		close(start)
		wg.Wait()
		if got := mapguard.Count() - count; got != pages {
			t.Fatalf("%d pages counted as %d", pages, got)
		}
		for p := range pages {
			for i := range threads {
				if got := data[p*pageSize+i]; got != byte(i+1) {
					t.Fatalf("page %d: what thread %d wrote is %d", p, i, got)
				}
			}
		}
	}
}

// TestOtherFaultsAreTheRuntimes meets a fault in a private mapping, such as those of the heap
// and of the executable.
func TestOtherFaultsAreTheRuntimes(t *testing.T) {
	install(t)
	data, _ := mapped(t, unix.MAP_PRIVATE, 2, 0)
	count := mapguard.Count()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r == nil {
			t.Error("a fault in a private mapping was guarded")
		}
		if got := mapguard.Count() - count; got != 0 {
			t.Errorf("it counted as %d", got)
		}
	}()
	data[0]++
}

// TestOtherSignalsEndTheProcess sends SIGBUS, and meets faults that are not guarded, in child
// processes: each ends as it would without the guard.
func TestOtherSignalsEndTheProcess(t *testing.T) {
	for name, want := range map[string]string{
		"sent":    "SIGBUS: bus error",
		"private": "unexpected fault address",
		"nil":     "nil pointer dereference",
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), role+"="+name)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, want %q in\n%s", name, err, want, out)
		}
	}
}

var roles = map[string]func(){
	"sent": func() {
		child(mapguard.Install())
		child(syscall.Kill(os.Getpid(), syscall.SIGBUS))
		select {}
	},
	"private": func() {
		child(mapguard.Install())
		f, err := os.CreateTemp("", "private")
		child(err)
		child(os.Remove(f.Name()))
		data, err := unix.Mmap(int(f.Fd()), 0, pageSize, unix.PROT_READ, unix.MAP_PRIVATE)
		child(err)
		os.Exit(int(data[0]))
	},
	"nil": func() {
		child(mapguard.Install())
		var p *int
		os.Exit(*p)
	},
	"full": full,
}

// child ends a child process if something failed.
func child(err error) {
	if err != nil {
		panic(err)
	}
}

// TestAFullDiskUnderAMapping fills a file through its mapping beyond the end of its disk.
func TestAFullDiskUnderAMapping(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), role+"=full")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if bytes.Contains(out, []byte(noMount)) || err != nil && len(out) == 0 {
		t.Skipf("a small disk cannot be mounted here: %v %s", err, out)
	}
	if err != nil || !bytes.Contains(out, []byte("it lives")) {
		t.Errorf("%v\n%s", err, out)
	}
}

const noMount = "cannot mount"

// full mounts a disk of a MiB on its working directory and fills a file of two.
func full() {
	const pages = 512
	dir, err := os.Getwd()
	child(err)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		_, _ = os.Stdout.WriteString(noMount + ": " + err.Error())
		os.Exit(1)
	}
	child(mapguard.Install())
	r, err := mapguard.OpenRecord(filepath.Join(dir, "FAULTS"))
	child(err)
	f, err := os.Create(filepath.Join(dir, "file"))
	child(err)
	size := pages * pageSize
	child(f.Truncate(int64(size)))
	data, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	child(err)
	for i := range data {
		data[i] = byte(i%251) + 1
	}
	for i := range data {
		if data[i] != byte(i%251)+1 {
			panic("what was written is not read back")
		}
	}
	met := mapguard.Met()
	told, err := mapguard.ReadRecord(filepath.Join(dir, "FAULTS"))
	child(err)
	if met.Writes == 0 || met.Reads != 0 || told != (mapguard.Faults{Writes: 1}) {
		panic("it does not say that the disk is full")
	}
	stored, err := os.ReadFile(f.Name())
	child(err)
	if lacks := uint64(bytes.Count(stored, make([]byte, pageSize))); lacks != met.Writes {
		panic("other pages are missing than it says")
	}
	child(r.Close())
	_, _ = os.Stdout.WriteString("it lives")
}
