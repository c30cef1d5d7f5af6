package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/store"
)

// TestSplit splits the one partition of a container of two stores by the command, while a client, which knows of no split,
// writes and reads what it wrote, and another one reads the changes by one continuation. No client sees an error; nobody
// misses a change, or gets one twice.
func TestSplit(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 2, 0)
	if _, err := c.client.Catalog().Create(t.Context(), "default", "things", store.ContainerSpec{PartitionKey: []string{"/k"}, Partitions: 1, Standbys: 1}); err != nil {
		t.Fatal(err)
	}
	things := open(t, c.client, "things")
	answers := func(want int, says string, args ...string) {
		t.Helper()
		out, errs, exit := command(t, "", nil, append(args, "--server", c.server)...)
		if exit != want || !strings.Contains(out+errs, says) {
			t.Errorf("%v: exit %d: %s%s; want %d with %q", args, exit, out, errs, want, says)
		}
	}
	answers(2, "a number is expected", "split", "things", "first")
	answers(2, "hexadecimal digits", "split", "things", "0", "--at", "x")
	answers(1, "has no partition 7", "split", "things", "7")
	answers(1, "does not exist", "split", "nothing", "0")
	answers(1, "no items", "split", "things", "0")
	answers(1, "does not lie inside", "split", "things", "0", "--at", "FF")
	answers(1, "no split of partition", "split", "things", "0", "--cancel")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wrote int
	var writing sync.WaitGroup
	begun := make(chan struct{})
	writing.Go(func() {
		for ctx.Err() == nil {
			k := keyOf(t, fmt.Sprint("k", wrote%40))
			if _, err := things.Create(t.Context(), fmt.Appendf(nil, `{"id":"x%d","k":"k%d"}`, wrote, wrote%40), store.WriteOptions{IdempotencyKey: fmt.Sprint(wrote)}); err != nil {
				t.Errorf("write %d: %v", wrote, err)
				return
			}
			if _, err := things.Read(t.Context(), k, fmt.Sprint("x", wrote)); err != nil {
				t.Errorf("read %d: %v", wrote, err)
				return
			}
			if wrote++; wrote == 100 {
				close(begun)
			}
		}
	})
	<-begun
	answers(0, "partition 0 of default/things would become 1 with", "split", "things", "0", "--dry-run")
	out, errs, exit := command(t, "", nil, "split", "things", "0", "-o", "json", "--server", c.server)
	var did struct {
		Action      string
		Last, First uint64
		Children    []struct{ Number int }
	}
	if err := json.Unmarshal([]byte(out), &did); err != nil || exit != 0 || did.Action != "split" || len(did.Children) != 2 || did.Last == 0 || did.First <= did.Last {
		t.Fatalf("split: exit %d, %v: %s%s", exit, err, out, errs)
	}
	answers(1, "was split already, into 1 and 2", "split", "things", "0")
	answers(0, "partition 0 was split at LSN", "describe", "container", "things")
	stop()
	writing.Wait()

	seen, from := map[string]int{}, ""
	for reader := open(t, c.client, "things"); ; {
		page, err := reader.Changes(t.Context(), store.ChangesRequest{Continuation: from, ItemsMax: 50, AllVersions: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range page.Changes {
			seen[change.Item.ID]++
		}
		if from = page.Continuation; page.End {
			break
		}
	}
	for n := range wrote {
		if id := fmt.Sprint("x", n); seen[id] != 1 {
			t.Errorf("%s came %d times", id, seen[id])
		}
	}
	// What copies a container asks all partitions that there are, whatever their numbers.
	items, place := filepath.Join(t.TempDir(), "things.ndjson"), t.TempDir()
	answers(0, "of things written to", "export", "things", "--file", items)
	answers(0, "written to others", "import", "others", items, "--partition-key", "/k")
	for _, name := range []string{"things", "others"} {
		if n := len(strings.Split(strings.TrimSpace(mustRun(t, c.server, "export", name)), "\n")); n != wrote {
			t.Errorf("%d items of %s were exported, of %d", n, name, wrote)
		}
	}
	for range 2 {
		answers(0, "2 containers, 3 partitions", "backup", "create", place)
	}
	answersAt := func(says string, args ...string) {
		t.Helper()
		if out, errs, exit := command(t, "", nil, args...); exit != 0 || !strings.Contains(out+errs, says) {
			t.Errorf("%v: exit %d: %s%s; want %q", args, exit, out, errs, says)
		}
	}
	answersAt("2 backups", "backup", "verify", place)
	answersAt("1 backup", "backup", "prune", place, "--keep", "1", "--yes")
	answersAt("1 backup", "backup", "verify", place)
}
