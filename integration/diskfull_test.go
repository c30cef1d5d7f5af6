//go:build linux

package integration_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/process"
	"github.com/millrace/millrace/store"
)

// ownMounts says, in its environment, that the process may mount.
const ownMounts = "MILLRACE_TEST_OWN_MOUNTS"

// withOwnMounts runs a test in a child process that has a mount namespace of its
// own, as unshare -rm makes it, so that nothing is left mounted whatever happens.
// It returns true in the child; the parent has nothing left to do.
func withOwnMounts(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownMounts) != "" {
		return true
	}
	probe := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		return cmd
	}
	if out, err := probe("mount", "-t", "tmpfs", "tmpfs", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("a small disk cannot be mounted here: %v %s", err, out)
	}
	cmd := probe(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), ownMounts+"=1", process.Given+"="+millrace(t))
	out, err := cmd.CombinedOutput()
	t.Logf("with mounts of its own:\n%s", out)
	if err != nil {
		t.Error(err)
	}
	return false
}

// disk is a small disk.
type disk struct {
	t   testing.TB
	dir string
}

func mountDisk(t testing.TB, megabytes int) *disk {
	t.Helper()
	return mountDiskAt(t, filepath.Join(t.TempDir(), "disk"), megabytes)
}

// mountDiskAt mounts it at a directory that is made.
func mountDiskAt(t testing.TB, dir string, megabytes int) *disk {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return &disk{t, dir}
}

// ballast takes megabytes of the disk until free is called.
func (d *disk) ballast(megabytes int) (free func()) {
	d.t.Helper()
	file := filepath.Join(d.dir, "ballast")
	if err := os.WriteFile(file, make([]byte, megabytes<<20), 0o600); err != nil {
		d.t.Fatal(err)
	}
	return func() {
		d.t.Helper()
		if err := os.Remove(file); err != nil {
			d.t.Fatal(err)
		}
	}
}

// takeAll takes what is free of the disk at once, until free is called.
func (d *disk) takeAll() (free func()) {
	d.t.Helper()
	file := filepath.Join(d.dir, "ballast")
	f, err := os.Create(file)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // its size is all that counts
	var size int64
	for step := int64(64 << 20); step >= int64(os.Getpagesize()); {
		if err := unix.Fallocate(int(f.Fd()), 0, size, step); err != nil {
			step /= 2
			continue
		}
		size += step
	}
	return func() {
		d.t.Helper()
		if err := os.Remove(file); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *disk) freeMegabytes() int64 {
	d.t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(d.dir, &fs); err != nil {
		d.t.Fatal(err)
	}
	return int64(fs.Bavail) * fs.Bsize >> 20
}

// filler writes products with much text in them, and knows which of them were
// acknowledged.
type filler struct {
	product *store.Container
	next    atomic.Int64

	mu    sync.Mutex
	acked map[int64]bool
	tried map[int64]error // what the writer was answered
}

// fillerBody has a text that cannot be compressed, since the log's commits are. The tag has few
// products: a rename is to have copies, and not to write the whole disk once more.
func fillerBody(n int64) []byte {
	tag := catalogueTag
	if n%32 != 0 {
		tag = "rare"
	}
	random := make([]byte, 15_000)
	var seed [32]byte
	copy(seed[:], strconv.FormatInt(n, 10))
	if _, err := rand.NewChaCha8(seed).Read(random); err != nil {
		panic(err)
	}
	return fmt.Appendf(nil, `{"id":"f%d","categoryId":"c%02d","n":%d,"tags":[{"id":%q}],"text":%q}`,
		n, n%catalogueCategories, n, tag, base64.StdEncoding.EncodeToString(random))
}

// one writes the next product.
func (f *filler) one(ctx context.Context) error {
	n := f.next.Add(1)
	_, err := f.product.Upsert(ctx, fillerBody(n))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tried[n] = err
	if err == nil {
		f.acked[n] = true
	}
	return err
}

// fill writes by several writers until each of them was refused, for a reason for
// which over holds, and for as long as patience without a write between, and
// returns the last reasons.
func (f *filler) fill(t *testing.T, patience time.Duration, over func(error) bool) (reasons []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poll.Most)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 8 {
		wg.Go(func() {
			var since time.Time
			for ctx.Err() == nil {
				err := f.one(ctx)
				switch {
				case err == nil || !over(err):
					since = time.Time{}
					continue
				case since.IsZero():
					since = time.Now()
				case time.Since(since) < patience:
					pause(t, 20*time.Millisecond)
					continue
				}
				if time.Since(since) >= patience {
					mu.Lock()
					reasons = append(reasons, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		t.Fatalf("the disk is not full after %s", poll.Most)
	}
	return reasons
}

// check reads every product that was tried: those that were acknowledged are
// there, as they were written. Of the others it counts those that are there, and
// those of them that were refused for want of space.
func (f *filler) check(t *testing.T) (acked, unanswered, refused int) {
	t.Helper()
	for n := range f.tried {
		key := keyOf(t, fmt.Sprintf("c%02d", n%catalogueCategories))
		items, err := f.product.ReadMany(t.Context(), []store.ItemRef{{Key: key, ID: fmt.Sprint("f", n)}}, false)
		if err != nil {
			t.Fatal(err)
		}
		there := items[0].ETag != (store.ETag{})
		switch {
		case f.acked[n] && !there:
			t.Errorf("product %d was acknowledged and is not there", n)
		case f.acked[n]:
			acked++
		case there:
			unanswered++
			if errors.Is(f.tried[n], store.ErrDiskFull) {
				refused++
			}
		}
		var got, want struct{ Text string }
		if there {
			if err := errors.Join(json.Unmarshal(items[0].Body, &got), json.Unmarshal(fillerBody(n), &want)); err != nil || got != want {
				t.Errorf("product %d is not as it was written: %v", n, err)
			}
		}
	}
	return acked, unanswered, refused
}

// ready asks a process whether it is.
func ready(t testing.TB, address string) (r node.Readiness, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r, resp.StatusCode
}

// TestDiskFull_WritesAreRefusedBeforeAnythingBreaks fills a small disk under load
// up to the reserve: writes are refused with the reason, reads go on, nothing
// breaks, and when there is space again all goes on by itself.
func TestDiskFull_WritesAreRefusedBeforeAnythingBreaks(t *testing.T) {
	t.Parallel()
	if !withOwnMounts(t) {
		return
	}
	const reserve = 160
	d := mountDisk(t, 512)
	free := d.ballast(200)
	port, address := strconv.Itoa(freePort(t)), "127.0.0.1:"+strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	up := spawn(t, "up", "--dir", filepath.Join(d.dir, "data"), "--port", port, "--listen", address,
		"--set", fmt.Sprintf("store.diskReserve=%dMiB", reserve), "--set", "engine.memTableBytes=8MiB", "--set", "engine.memTables=2",
		"--set", "store.compressBytesMin=-1")
	tellOnFailure(t, up)
	meta, f := fillable(t, server)
	// The reserve is reached, and stays: a merge that frees some is over by then.
	for _, err := range f.fill(t, 10*time.Second, func(err error) bool { return errors.Is(err, store.ErrDiskFull) }) {
		for _, part := range []string{"disk nearly full", "store.diskReserve", fmt.Sprintf("below %d MiB", reserve), "free some space"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the refusal does not say %q: %v", part, err)
			}
		}
	}
	// A merge of the engine's tables may have freed some since; writes are taken again when
	// a sixteenth more than the reserve is free.
	left := d.freeMegabytes()
	if left < reserve/2 || left > reserve+reserve/16 {
		t.Errorf("writes were refused with %d MiB free; the reserve is %d", left, reserve)
	}
	poll.Until(t, func() error {
		r, status := ready(t, address)
		return poll.Unless(status == http.StatusServiceUnavailable && strings.Contains(strings.Join(r.Problems, "\n"), "disk nearly full"), fmt.Sprintf("/readyz says %d %v", status, r.Problems))
	})
	if err := put(t.Context(), meta, metaItem{catalogueTag, "tag", "v1"}); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("a rename is answered %v", err)
	}
	if out, exit := run(t, server, "feed", "product", "--limit", "1"); exit != 0 {
		t.Errorf("feed: exit %d\n%s", exit, out)
	}
	acked, _, refused := f.check(t) // reads go on
	t.Logf("refused with %d MiB free, after %d products; all can be read", left, acked)
	if refused > 0 {
		t.Errorf("%d products are there though they were refused", refused)
	}
	if bytes.Contains([]byte(up.output()), []byte("no space")) {
		t.Errorf("something met the end of the disk:\n%s", up.output())
	}

	if n := strings.Count(up.output(), "is opened anew"); n != 0 {
		t.Errorf("the embedded server was opened anew %d times while there was no space", n)
	}
	free()
	began := time.Now()
	f.comeBack(t, meta)
	t.Logf("writes are taken again, and 100 more were, %s after space was freed", time.Since(began).Round(time.Millisecond))
	f.checkAll(t, server, address)
}

// TestDiskFull_TheLogMeetsTheEnd lets the embedded server itself run into the end
// of its disk, with nothing that guards it: nothing that was acknowledged is
// lost, it is said, and when there is space again it recovers by itself.
func TestDiskFull_TheLogMeetsTheEnd(t *testing.T) {
	t.Parallel()
	if !withOwnMounts(t) {
		return
	}
	d := mountDisk(t, 160)
	free := d.ballast(100)
	port, address := strconv.Itoa(freePort(t)), "127.0.0.1:"+strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	up := spawn(t, "up", "--dir", t.TempDir(), "--port", port, "--listen", address,
		"--set", "nats.dir="+filepath.Join(d.dir, "nats"), "--set", "store.diskReserve=-1", "--set", "leases.ttl=2s",
		"--set", "store.compressBytesMin=-1") // what the writers write is to fill the disk
	tellOnFailure(t, up)
	meta, f := fillable(t, server)
	// On a busy machine a writer may be refused before, for a lease that was not renewed in time.
	for _, err := range f.fill(t, 0, func(error) bool { return d.freeMegabytes() < 2 }) {
		if !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrDiskFull) {
			t.Errorf("a writer was answered: %v", err)
		}
	}
	for looks := range 5 { // it says so, and again
		poll.Until(t, func() error {
			r, status := ready(t, address)
			return poll.Unless(status == http.StatusServiceUnavailable && strings.Contains(strings.Join(r.Problems, "\n"), "is full: "), fmt.Sprintf("look %d: /readyz says %d %q", looks, status, r.Problems))
		})
		pause(t, 500*time.Millisecond)
	}
	t.Logf("full: %d products acknowledged, %d MiB free", len(f.acked), d.freeMegabytes())

	if n := strings.Count(up.output(), "is opened anew"); n != 0 {
		t.Errorf("the embedded server was opened anew %d times while there was no space", n)
	}
	free()
	began := time.Now()
	f.comeBack(t, meta)
	t.Logf("writes are taken again, and 100 more were, %s after space was freed", time.Since(began).Round(time.Millisecond))
	f.checkAll(t, server, address)
	if !strings.Contains(up.output(), "is opened anew") { // more than once where the disk was slow
		t.Error("the embedded server was not opened anew when there was space")
	}
}

// tellOnFailure shows what a process said if the test fails.
func tellOnFailure(t *testing.T, c *child) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s said:\n%s", c.name, c.output())
		}
	})
}

// fillable declares the WebStore with one tag, and returns what fills it.
func fillable(t *testing.T, server string) (meta *store.Container, f *filler) {
	t.Helper()
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	client := dial(t, server)
	meta = open(t, client, "productMeta")
	for _, s := range []metaItem{{catalogueTag, "tag", "v0"}, {"c00", "category", "First"}} {
		if err := put(t.Context(), meta, s); err != nil {
			t.Fatal(err)
		}
	}
	return meta, &filler{product: open(t, client, "product"), acked: map[int64]bool{}, tried: map[int64]error{}}
}
