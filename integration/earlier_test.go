package integration_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/millrace/millrace/store"
)

// A directory that an earlier release wrote opens, with its engine and by its log alone;
// every copy in it is right, and its pipelines of all kinds go on. See testdata/README.md.
func TestUpgrade_ADirectoryOfAnEarlierRelease(t *testing.T) {
	t.Parallel()
	for name, upset := range map[string]func(t *testing.T, dir string){
		"as it was left": func(*testing.T, string) {},
		"without its engine": func(t *testing.T, dir string) {
			t.Helper()
			if err := os.RemoveAll(filepath.Join(dir, "engine")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := earlierRelease(t)
			upset(t, dir)
			port := strconv.Itoa(freePort(t))
			server := "nats://127.0.0.1:" + port
			up := spawn(t, "up", "--dir", dir, "--port", port, "--listen", "off")
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(up.output())
				}
			})
			copies := map[string]int64{"category-names": 30, "tag-names": 80, "customer-totals": 20, "category-sales": 4, "line-categories": 60, "skus": 30}
			r := verifyCopies(t, server)
			r.equal(t, "as it was found", copies)

			// A rename for the cascades, an order for the aggregates, both kinds of them.
			client := dial(t, server)
			meta, product, customer := open(t, client, "productMeta"), open(t, client, "product"), open(t, client, "customer")
			category := firstOf(t, everyItem(t, meta), "category")
			category["name"] = "renamed after the upgrade"
			order := firstOf(t, everyItem(t, customer), "salesOrder")
			order["id"] = "an order after the upgrade"
			for c, item := range map[*store.Container]map[string]any{meta: category, customer: order} {
				if err := put(t.Context(), c, item); err != nil {
					t.Fatal(err)
				}
			}
			copies["line-categories"] += int64(len(order["details"].([]any)))
			r = verifyCopies(t, server)
			r.equal(t, "after a rename and an order", copies)
			renamed := 0
			for _, item := range everyItem(t, product) {
				if item["categoryName"] == category["name"] {
					renamed++
				}
			}
			if renamed == 0 {
				t.Error("no product has the new name")
			}

			up.kill()
			up.start()
			for _, c := range []struct{ finish, finished bool }{{false, false}, {true, true}, {true, false}} {
				var state struct {
					Level    int
					Behind   []any
					Finished bool
				}
				line := []string{"upgrade"}
				if c.finish {
					line = append(line, "--finish")
				}
				if exit := runJSON(t, server, &state, line...); exit != 0 || len(state.Behind) > 0 || state.Finished != c.finished || (state.Level > 1) != c.finish {
					t.Errorf("%v: exit %d, %+v", line, exit, state)
				}
			}
			r = verifyCopies(t, server)
			r.equal(t, "after a crash", copies)
		})
	}
}

// earlierBinary names the program of the release before in the environment.
const earlierBinary = "MILLRACE_EARLIER_BINARY"

// Until an upgrade is finished the release before goes on with the directory, and this
// one after it: what either has written is followed by the other.
func TestUpgrade_TheWayBack(t *testing.T) {
	t.Parallel()
	earlier := os.Getenv(earlierBinary)
	if earlier == "" {
		t.Skip(earlierBinary + " does not name the program of the release before: run make upgrade")
	}
	dir := earlierRelease(t)
	this := millrace(t)
	for turn, program := range []string{this, earlier, this, earlier, earlier, this} {
		port := strconv.Itoa(freePort(t))
		server := "nats://127.0.0.1:" + port
		up := spawnProgram(t, program, nil, "up", "--dir", dir, "--port", port, "--listen", "off")
		client := dial(t, server)
		meta, customer := open(t, client, "productMeta"), open(t, client, "customer")
		category := firstOf(t, everyItem(t, meta), "category")
		category["name"] = fmt.Sprint("renamed in turn ", turn)
		order := firstOf(t, everyItem(t, customer), "salesOrder")
		order["id"] = fmt.Sprint("an order of turn ", turn)
		for c, item := range map[*store.Container]map[string]any{meta: category, customer: order} {
			if err := put(t.Context(), c, item); err != nil {
				t.Fatalf("turn %d: %v\n%s", turn, err, up.output())
			}
		}
		// A command asks a store for what its own release knows.
		if out, err := exec.CommandContext(t.Context(), program, "verify", "--server", server).CombinedOutput(); err != nil {
			t.Fatalf("turn %d: verify: %v\n%s\n%s", turn, err, out, up.output())
		}
		if turn%2 == 0 {
			up.kill()
		} else {
			up.stop()
		}
	}
}

// earlierRelease unpacks the directory into one of the test's own.
func earlierRelease(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	out, err := exec.Command("tar", "-xzf", "testdata/earlier-release.tar.gz", "-C", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	return filepath.Join(dir, "shop")
}

// everyItem reads all items of a container that has at most 1,000 in a partition.
func everyItem(t *testing.T, c *store.Container) (all []map[string]any) {
	t.Helper()
	for _, p := range c.Partitions() {
		page, err := c.Scan(t.Context(), p, store.Scan{ItemsMax: 1000, Barrier: true})
		if err != nil || page.Cursor != nil {
			t.Fatalf("%s: %v, or more than a page", p, err)
		}
		for i := range page.Items {
			var item map[string]any
			if err := json.Unmarshal(page.Items[i].Body, &item); err != nil {
				t.Fatal(err)
			}
			all = append(all, item)
		}
	}
	return all
}

// firstOf returns the first item of a type.
func firstOf(t *testing.T, items []map[string]any, kind string) map[string]any {
	t.Helper()
	for _, item := range items {
		if item["type"] == kind {
			return item
		}
	}
	t.Fatalf("no item is a %s", kind)
	return nil
}
