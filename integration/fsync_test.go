//go:build linux

package integration_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// ledger writes items one after the other, and knows what was acknowledged.
type ledger struct {
	t     *testing.T
	items *store.Container
	next  int
	acked []int
}

func ledgerBody(n int) []byte {
	return fmt.Appendf(nil, `{"id":"%d","pk":"k","text":%q}`, n, strings.Repeat(strconv.Itoa(n)+" ", 50))
}

// one writes the next item.
func (l *ledger) one(ctx context.Context) error {
	n := l.next
	l.next++
	_, err := l.items.Create(ctx, ledgerBody(n))
	if err == nil {
		l.acked = append(l.acked, n)
	}
	return err
}

// many writes items that must be acknowledged.
func (l *ledger) many(count int) {
	l.t.Helper()
	for range count {
		if err := l.one(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
	}
}

// goOn writes some items, each when it is taken: what was refused in between is no harm.
func (l *ledger) goOn() {
	l.t.Helper()
	for range 20 {
		poll.Until(l.t, func() error {
			ctx, cancel := context.WithTimeout(l.t.Context(), 2*time.Second)
			defer cancel()
			return l.one(ctx)
		})
	}
}

// check reads what was acknowledged: all of it is there as it was written, and what else is
// there is whole.
func (l *ledger) check(when string) {
	l.t.Helper()
	acked := map[int]bool{}
	for _, n := range l.acked {
		acked[n] = true
	}
	for n := range l.next {
		var item store.Item
		poll.Until(l.t, func() (err error) {
			ctx, cancel := context.WithTimeout(l.t.Context(), 2*time.Second)
			defer cancel()
			if item, err = l.items.Read(ctx, keyOf(l.t, "k"), strconv.Itoa(n)); errors.Is(err, store.ErrNotFound) {
				item, err = store.Item{}, nil
			}
			return err
		})
		switch {
		case len(item.Body) > 0 && !bytes.Equal(item.Body, ledgerBody(n)):
			l.t.Errorf("%s: item %d is %s", when, n, item.Body)
		case len(item.Body) == 0 && acked[n]:
			l.t.Errorf("%s: item %d was acknowledged and is not there", when, n)
		}
	}
}

// onDisk is a process whose files a test changes beneath it.
type onDisk struct {
	*ledger
	up     *child
	dir    string
	server string
}

func startOnDisk(t *testing.T, args ...string) *onDisk {
	t.Helper()
	d := &onDisk{dir: filepath.Join(t.TempDir(), "data")}
	port := strconv.Itoa(freePort(t))
	d.server = "nats://127.0.0.1:" + port
	d.up = spawn(t, append([]string{"up", "--dir", d.dir, "--port", port, "--listen", "off"}, args...)...)
	tellOnFailure(t, d.up)
	file := filepath.Join(t.TempDir(), "items.yaml")
	writeText(t, file, "apiVersion: millrace/v1\nkind: Container\nmetadata: {name: items}\nspec: {partitionKey: [/pk], partitions: 1}\n")
	mustRun(t, d.server, "apply", "-f", file)
	d.ledger = &ledger{t: t, items: open(t, dial(t, d.server), "items")}
	return d
}

// path finds the one file of a pattern below the directory.
func (d *onDisk) path(pattern string) string {
	d.t.Helper()
	found, err := filepath.Glob(filepath.Join(d.dir, pattern))
	if err != nil || len(found) != 1 {
		d.t.Fatalf("%s: %v %v", pattern, found, err)
	}
	return found[0]
}

// log is the one file of the container's log.
func (d *onDisk) log() string {
	d.t.Helper()
	return d.path("nats/jetstream/*/streams/" + d.items.Partitions()[0].Stream() + "/msgs/*.blk")
}

func (d *onDisk) read(name string) []byte {
	d.t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		d.t.Fatal(err)
	}
	return data
}

// overwrite puts data into a file that the process has open, or mapped.
func (d *onDisk) overwrite(name string, data []byte) {
	d.t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	_, err = f.WriteAt(data, 0)
	if err = errors.Join(err, f.Close()); err != nil {
		d.t.Fatal(err)
	}
}

// starts ends the process as kill -9 does, and compares what the next one finds; then the
// same without the engine, which the log makes again.
func (d *onDisk) starts() {
	d.t.Helper()
	d.up.kill()
	d.up.start()
	d.check("after kill -9")
	d.up.kill()
	if err := os.RemoveAll(filepath.Join(d.dir, "engine")); err != nil {
		d.t.Fatal(err)
	}
	d.up.start()
	d.check("without the engine")
	if out, exit := run(d.t, d.server, "status"); exit != 0 {
		d.t.Errorf("status: exit %d\n%s", exit, out)
	}
}

// TestFsync_OfTheLogFails lets the system fail to sync the file of a log, and drop what it could
// not write, while the process stands still in that call: what was acknowledged is there, in the
// same process and in the next, and what was not is whole or not there.
func TestFsync_OfTheLogFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		drop func(d *onDisk, log string, synced int)
	}{
		{"and nothing is dropped", func(*onDisk, string, int) {}},
		{"and the end is gone", func(d *onDisk, log string, synced int) {
			if err := os.Truncate(log, int64(synced)); err != nil {
				d.t.Fatal(err)
			}
		}},
		{"and the end is zeros", func(d *onDisk, log string, synced int) {
			data := d.read(log)
			clear(data[synced:])
			d.overwrite(log, data)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := startOnDisk(t)
			d.many(30)
			log := d.log()
			synced := len(d.read(log)) // each write is synced before it is acknowledged
			fault := inject(t, d.up.Cmd.Process.Pid, log, "fsync,fdatasync:error=EIO:signal=SIGSTOP:when=1")
			answered := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				answered <- d.one(ctx)
			}()
			fault.stopped(func() {
				if written := len(d.read(log)); written <= synced {
					t.Errorf("the log has %d bytes before the write and %d in its sync", synced, written)
				}
				c.drop(d, log, synced)
			})
			t.Logf("the write whose sync failed was answered: %v", <-answered)
			d.goOn()
			d.check("in the same process")
			lives(t, d.up)
			d.starts()
			if out := d.up.output(); !strings.Contains(out, "is opened anew") {
				t.Error("it is not said that the embedded server is opened anew")
			}
		})
	}
}

// TestFsync_OfTheEngineFails lets the system fail to sync what the engine has written, and drop
// it: the engine is not believed, and what it had is taken from the log again.
func TestFsync_OfTheEngineFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, fault, path string }{
		{"fsync", "fsync,fdatasync:error=EIO:signal=SIGSTOP:when=1", "engine/*.mem"},
		{"msync", "msync:error=EIO:signal=SIGSTOP:when=1", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := startOnDisk(t, "--set", "store.syncInterval=200ms")
			d.many(30)
			poll.Until(t, func() error { // or the sync of these is the one that fails
				status, err := d.items.Status(t.Context(), d.items.Partitions()[0])
				if err != nil {
					return err
				}
				return poll.Unless(status.Synced == status.Applied, fmt.Sprintf("%s is applied and %s synced", status.Applied, status.Synced))
			})
			mem := d.path("engine/*.mem")
			// The file as it is at any moment may be what the disk has: it tells itself up to where
			// it is synced.
			synced := d.read(mem)
			path := ""
			if c.path != "" {
				path = mem
			}
			fault := inject(t, d.up.Cmd.Process.Pid, path, c.fault)
			written := make(chan struct{})
			go func() {
				defer close(written)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				for range 10 {
					_ = d.one(ctx) // what stands still with the process may have happened
				}
			}()
			fault.stopped(func() {
				if bytes.Equal(d.read(mem), synced) {
					t.Error("nothing was written since the last good sync")
				}
				d.overwrite(mem, synced)
			})
			<-written
			poll.Until(t, func() error {
				return poll.Unless(strings.Contains(d.up.output(), "a sync failed, and what was written since the last good one may be lost"), "nothing is said of the sync")
			})
			d.goOn()
			d.check("in the same process")
			lives(t, d.up)
			d.starts()
		})
	}
}
