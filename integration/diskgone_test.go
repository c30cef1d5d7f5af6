//go:build linux

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// TestDiskFull_OthersFillItAtOnce takes all that is free of a small disk in an instant while
// writes run, so that no reserve can help. The engine writes through mappings, for which a full
// disk ends a process that is not guarded. It goes on and refuses writes; when there is space
// again it takes them, and nothing that was acknowledged is lost.
func TestDiskFull_OthersFillItAtOnce(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("mapped files are not guarded here: the process ends")
	}
	if !withOwnMounts(t) {
		return
	}
	for _, which := range []string{"the disk of the engine", "the disk of everything"} {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			d := mountDisk(t, 512)
			port, address := strconv.Itoa(freePort(t)), "127.0.0.1:"+strconv.Itoa(freePort(t))
			server := "nats://127.0.0.1:" + port
			args := []string{
				"up", "--dir", filepath.Join(d.dir, "data"), "--port", port, "--listen", address,
				"--set", "store.diskReserve=64MiB", "--set", "engine.memTableBytes=8MiB", "--set", "engine.memTables=2",
			}
			if which == "the disk of the engine" {
				args = append(args, "--set", "nats.dir="+t.TempDir())
			}
			up := spawn(t, args...)
			tellOnFailure(t, up)
			meta, f := fillable(t, server)

			taken := make(chan func(), 1)
			var full atomic.Bool
			go func() {
				for f.next.Load() < 300 {
					pause(t, 5*time.Millisecond)
				}
				free := d.takeAll()
				full.Store(true)
				taken <- free
			}()
			// Leases that cannot be written where the disk was full run out: then nobody answers, and
			// nobody says why. The engine, which is closed then, may have left some MiB.
			reasons := f.fill(t, 2*time.Second, func(err error) bool {
				return errors.Is(err, store.ErrDiskFull) || which == "the disk of everything" && full.Load()
			})
			free := <-taken
			lives(t, up)
			for _, err := range reasons {
				if errors.Is(err, store.ErrDiskFull) && !strings.Contains(err.Error(), "free some space") {
					t.Errorf("a writer was refused: %v", err)
				}
			}
			if which == "the disk of the engine" {
				// A flush that ends at that moment may free some MiB: then the reserve refuses
				// writes before one meets a page that its file cannot have.
				n := strings.Count(up.output(), "level=ERROR msg=\"the engine is damaged")
				spared := n == 0 && strings.Contains(up.output(), "disk nearly full")
				if !spared && (n != 1 || !strings.Contains(up.output(), "under mapped files") && !strings.Contains(up.output(), "no space left on device")) {
					t.Errorf("it is said %d times that the disk was full under the engine", n)
				}
			}
			poll.Until(t, func() error {
				r, status := ready(t, address)
				return poll.Unless(status == http.StatusServiceUnavailable && len(r.Problems) > 0, fmt.Sprintf("full: /readyz says %d %q", status, r.Problems))
			})
			r, _ := ready(t, address)
			t.Logf("full: %d products acknowledged, %d MiB free, refused: %v\n/readyz: %q", len(f.acked), d.freeMegabytes(), reasons[0], r.Problems)

			free()
			began := time.Now()
			f.comeBack(t, meta)
			t.Logf("writes are taken again, and 100 more were, %s after space was freed", time.Since(began).Round(time.Millisecond))
			f.checkAll(t, server, address)
			lives(t, up)
		})
	}
}

// TestDiskFull_NothingIsReserved lets everything share a small disk of which nothing is reserved,
// and fills it: the process goes on, and when there is space again nothing that was acknowledged
// is lost.
func TestDiskFull_NothingIsReserved(t *testing.T) {
	t.Parallel()
	if !withOwnMounts(t) {
		return
	}
	d := mountDisk(t, 512)
	free := d.ballast(360)
	port, address := strconv.Itoa(freePort(t)), "127.0.0.1:"+strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	up := spawn(t, "up", "--dir", filepath.Join(d.dir, "data"), "--port", port, "--listen", address,
		"--set", "store.diskReserve=-1", "--set", "leases.ttl=2s", "--set", "engine.memTableBytes=8MiB", "--set", "engine.memTables=2")
	tellOnFailure(t, up)
	meta, f := fillable(t, server)
	// On a busy machine a writer may be refused before, for a lease that was not renewed in time. And
	// the disk need not stay full: a snapshot that found no space gives back what it had.
	f.fill(t, 2*time.Second, func(error) bool {
		said := up.output()
		return strings.Contains(said, "no space left on device") || strings.Contains(said, "under mapped files")
	})
	t.Logf("full: %d products acknowledged, %d MiB free", len(f.acked), d.freeMegabytes())
	lives(t, up)

	free()
	f.comeBack(t, meta)
	f.checkAll(t, server, address)
	lives(t, up)
}

// comeBack waits until a rename is taken, and 100 writes are. Others may be refused in between:
// parts come back one after the other.
func (f *filler) comeBack(t *testing.T, meta *store.Container) {
	t.Helper()
	for n := range 101 {
		poll.Until(t, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			var err error
			if n == 0 {
				err = put(ctx, meta, metaItem{catalogueTag, "tag", "v1"})
			} else {
				err = f.one(ctx)
			}
			return poll.Unless(err == nil, fmt.Sprintf("after space was freed, write %d: %v", n, err))
		})
	}
}

// checkAll waits until a process is ready, and compares the copies, and what is there with what
// was acknowledged.
func (f *filler) checkAll(t *testing.T, server, address string) {
	t.Helper()
	poll.Until(t, func() error {
		r, status := ready(t, address)
		return poll.Unless(status == http.StatusOK, fmt.Sprintf("/readyz says %d %q", status, r.Problems))
	})
	// The embedded server may be opened anew once more, at which a command that runs gives up.
	out, exit := run(t, server, "verify")
	for tries := 0; exit == 2 && tries < 5; tries++ {
		t.Logf("verify could not be done:\n%s", out)
		out, exit = run(t, server, "verify")
	}
	if exit != 0 {
		t.Errorf("with space again: exit %d\n%s", exit, out)
	}
	acked, unanswered, _ := f.check(t)
	t.Logf("%d products were acknowledged and all are there; %d are there whose writer was not answered", acked, unanswered)
}

// lives fails the test if a process has ended.
func lives(t *testing.T, c *child) {
	t.Helper()
	select {
	case <-c.Ended:
		t.Fatalf("%s has ended", c.name)
	default:
	}
}
