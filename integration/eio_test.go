//go:build linux

package integration_test

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
)

// TestEIO_AMappedFileOfTheEngine takes the pages of a file away that the engine has mapped, as a
// disk does that cannot read them any more: the system sends the process the same signal. It
// lives, says which, and nothing that was acknowledged is lost.
func TestEIO_AMappedFileOfTheEngine(t *testing.T) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("mapped files are not guarded here: the process ends")
	}
	t.Parallel()
	d := startOnDisk(t)
	d.many(30)
	d.up.stop() // it writes a table
	d.up.start()
	d.goOn()
	if err := os.Truncate(d.path("engine/*.sst"), 0); err != nil {
		t.Fatal(err)
	}
	d.check("after the fault")
	d.goOn()
	poll.Until(t, func() error {
		return poll.Unless(strings.Contains(d.up.output(), "the engine is damaged"), "nothing is said of the engine")
	})
	d.check("in the same process")
	lives(t, d.up)
	d.starts()
}

// TestEIO_TheEnginesLogCannotBeWritten makes every write of the log of the engine's memtable fail while the process runs: what
// was written since the last good sync is not believed, the engine is opened anew, and nothing that was acknowledged is lost.
func TestEIO_TheEnginesLogCannotBeWritten(t *testing.T) {
	t.Parallel()
	d := startOnDisk(t)
	d.many(30)
	fault := inject(t, d.up.Cmd.Process.Pid, d.path("engine/*.mem"), "pwrite64:error=EIO")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	t.Logf("a write while the log cannot be written: %v", d.one(ctx))
	poll.Until(t, func() error {
		return poll.Unless(fault.injected() > 0 && strings.Contains(d.up.output(), "a commit could not be written"), "nothing is said of the engine")
	})
	fault.end()
	d.goOn()
	d.check("in the same process")
	lives(t, d.up)
	d.starts()
}

// TestEIO_TheLogCannotBeRead makes every read of a log's file fail while the process runs: who
// reads the log is told or waits, and no change is missing in what he gets; nothing that was
// acknowledged is lost, and it goes on by itself.
func TestEIO_TheLogCannotBeRead(t *testing.T) {
	t.Parallel()
	d := startOnDisk(t)
	d.many(30)
	fault := inject(t, d.up.Cmd.Process.Pid, d.log(), "read,pread64,readv,preadv,preadv2:error=EIO")
	poll.Until(t, func() error { // the server keeps in memory for a while what it has written
		failed := fault.injected()
		_ = d.changes() // it reads the log; its error is the one that is looked for
		return poll.Unless(failed > 0, "no read has failed")
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	t.Logf("a write while the log cannot be read: %v", d.one(ctx))
	fault.end()
	d.goOn()
	poll.Until(t, d.changes)
	d.check("in the same process")
	lives(t, d.up)
	d.starts()
}

// changes reads the feed from its beginning. What it gets begins with the first item and lacks
// none; the error says that it did not come to the end.
func (d *onDisk) changes() error {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), 2*time.Second)
	defer cancel()
	acked := map[string]bool{}
	for _, n := range d.acked {
		acked[strconv.Itoa(n)] = true
	}
	var got []string // without what may have happened
	r := store.ChangesRequest{AllVersions: true, Start: feed.StartBeginning(), ItemsMax: 10}
	for {
		page, err := d.items.Changes(ctx, r)
		if err != nil {
			return err
		}
		for _, c := range page.Changes {
			if acked[c.Item.ID] {
				got = append(got, c.Item.ID)
			}
		}
		missing := len(got) < len(d.acked) && page.End
		for i, id := range got {
			missing = missing || id != strconv.Itoa(d.acked[i])
		}
		if missing {
			d.t.Errorf("the feed has %v, acknowledged were %v", got, d.acked)
			return nil
		}
		if page.End {
			return nil
		}
		r.Continuation = page.Continuation
	}
}
