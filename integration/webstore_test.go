package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

// The WebStore's data set, as its own description counts it.
const (
	webstoreCategories = 295 // copies of a category's name, one in each product
	webstoreTags       = 767 // copies of a tag's name
)

// webstoreFile is a file of the WebStore data set.
func webstoreFile(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("MILLRACE_WEBSTORE")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data", "webstore")
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the WebStore data set is not at %s; set MILLRACE_WEBSTORE", dir)
	}
	return path
}

// webstoreItems reads a JSON array of items.
func webstoreItems[T any](t testing.TB, file string) (items []T) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &items); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return items
}

// runJSON runs a command of the binary to its end and reads what it printed.
func runJSON(t testing.TB, server string, into any, args ...string) (exit int) {
	t.Helper()
	args = append(args, "-o", "json", "--server", server)
	cmd := invocation(t, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(stdout.Bytes(), into); err != nil {
		t.Fatalf("millrace %s: exit %d, %v\n%s%s", strings.Join(args, " "), cmd.ProcessState.ExitCode(), err, &stdout, &stderr)
	}
	return cmd.ProcessState.ExitCode()
}

// report is the outcome of millrace verify.
type report struct {
	verify.Report
	exit int
	by   map[string]verify.PipelineReport
}

// verifyCopies runs millrace verify.
func verifyCopies(t testing.TB, server string, args ...string) report {
	t.Helper()
	r := report{by: map[string]verify.PipelineReport{}}
	r.exit = runJSON(t, server, &r.Report, append([]string{"verify"}, args...)...)
	for _, p := range r.Pipelines {
		r.by[p.Name] = p
	}
	return r
}

func (r *report) String() string {
	var b strings.Builder
	if err := r.Print(&b); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("exit %d, %s", r.exit, &b)
}

// equal fails the test unless every copy equals its source and there are as many
// as there must be.
func (r *report) equal(t testing.TB, when string, copies map[string]int64) {
	t.Helper()
	for name, n := range copies {
		if p := r.by[name]; r.exit != 0 || r.Verdict != verify.VerdictEqual || p.Copies != n || p.Drift+p.Behind != 0 {
			t.Fatalf("%s, want %d equal copies of %s:\n%s", when, n, name, r)
		}
	}
}

// shop is the WebStore in one process, with its real data.
type shop struct {
	server        string
	node          *child
	client        *store.Client
	meta, product *store.Container
	sources       []metaItem // as they are now
}

// newShop runs the product on an empty directory. The declarations are applied
// before the data comes, or the pipelines behind it.
func newShop(t *testing.T, declareFirst bool) *shop {
	t.Helper()
	metaFile, productFile := webstoreFile(t, "productMeta.json"), webstoreFile(t, "product.json")
	port := strconv.Itoa(freePort(t))
	s := &shop{server: "nats://127.0.0.1:" + port, sources: webstoreItems[metaItem](t, metaFile)}
	s.node = spawn(t, "up", "--dir", t.TempDir(), "--port", port, "--listen", "off")
	if declareFirst {
		mustRun(t, s.server, "apply", "-f", "../configs/webstore")
	} else {
		for _, name := range []string{"product", "productMeta", "customer"} {
			mustRun(t, s.server, "apply", "-f", "../configs/webstore/"+name+".yaml")
		}
	}
	mustRun(t, s.server, "import", "productMeta", metaFile)
	mustRun(t, s.server, "import", "product", productFile)
	if !declareFirst {
		mustRun(t, s.server, "apply", "-f", "../configs/webstore")
	}
	s.client = dial(t, s.server)
	s.meta, s.product = open(t, s.client, "productMeta"), open(t, s.client, "product")
	return s
}

// source finds a category or tag by its name.
func (s *shop) source(t *testing.T, kind, name string) *metaItem {
	t.Helper()
	for i := range s.sources {
		if s.sources[i].Type == kind && s.sources[i].Name == name {
			return &s.sources[i]
		}
	}
	t.Fatalf("there is no %s %q", kind, name)
	return nil
}

// rename gives a source another name.
func (s *shop) rename(t *testing.T, source *metaItem, name string) {
	t.Helper()
	value, err := json.Marshal(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.meta.Patch(t.Context(), keyOf(t, source.Type), source.ID, []document.Op{{Kind: "replace", Path: "/name", Value: value}})
	if err != nil {
		t.Fatal(err)
	}
	source.Name = name
}

// products reads every product.
func (s *shop) products(t *testing.T) (all []productItem) {
	t.Helper()
	for _, p := range s.product.Partitions() {
		for cursor := []byte(nil); ; {
			page, err := s.product.Scan(t.Context(), p, store.Scan{After: cursor, ItemsMax: 100})
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range page.Items {
				var product productItem
				if err := json.Unmarshal(item.Body, &product); err != nil {
					t.Fatal(err)
				}
				all = append(all, product)
			}
			if cursor = page.Cursor; cursor == nil {
				break
			}
		}
	}
	return all
}

// copies counts the copies of a source in the products, and how many of those
// have its present name.
func (s *shop) copies(t *testing.T, source *metaItem) (all, right int64) {
	t.Helper()
	count := func(name string) {
		all++
		if name == source.Name {
			right++
		}
	}
	for _, p := range s.products(t) {
		if p.CategoryID == source.ID {
			count(p.CategoryName)
		}
		for _, tag := range p.Tags {
			if tag.ID == source.ID {
				count(tag.Name)
			}
		}
	}
	return all, right
}

// follow waits until every one of n copies has the source's present name.
func (s *shop) follow(t *testing.T, source *metaItem, n int64) {
	t.Helper()
	poll.Until(t, func() error {
		all, right := s.copies(t, source)
		return poll.Unless(all == n && right == n, fmt.Sprintf("of %d copies of %s %d have its name %q; want %d", all, source.ID, right, source.Name, n))
	})
}

// TestWebStore_RealDataIsFollowed is the main job on real data: the published
// copies are found equal, and what is renamed, deleted and made again is
// followed.
func TestWebStore_RealDataIsFollowed(t *testing.T) {
	t.Parallel()
	for _, order := range []struct {
		name         string
		declareFirst bool
	}{{"pipelines before data", true}, {"data before pipelines", false}} {
		t.Run(order.name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, order.declareFirst)
			full := map[string]int64{"category-names": webstoreCategories, "tag-names": webstoreTags}
			check := func(when string, copies map[string]int64) {
				t.Helper()
				began := time.Now()
				r := verifyCopies(t, s.server)
				r.equal(t, when, copies)
				t.Logf("%s: %d + %d copies equal, told after %s", when, copies["category-names"], copies["tag-names"], time.Since(began).Round(time.Millisecond))
			}
			check("loaded", full)

			category, tag := s.source(t, "category", "Accessories, Tires and Tubes"), s.source(t, "tag", "Tag-5")
			inCategory, _ := s.copies(t, category)
			tagged, _ := s.copies(t, tag)
			if inCategory == 0 || tagged == 0 {
				t.Fatalf("%d products are in the category, %d have the tag", inCategory, tagged)
			}
			s.rename(t, category, "Accessories, Tyres & Tubes")
			s.rename(t, tag, `Tag "five"`)
			check("renamed", full)
			s.follow(t, category, inCategory)
			s.follow(t, tag, tagged)
			t.Logf("renamed in %d and %d products", inCategory, tagged)

			s.deleteAndMakeAgain(t, tag, tagged, check)
		})
	}
}

// deleteAndMakeAgain deletes a tag, which leaves all products, and makes it again
// under its id.
func (s *shop) deleteAndMakeAgain(t *testing.T, tag *metaItem, tagged int64, check func(string, map[string]int64)) {
	t.Helper()
	before := s.products(t)
	if err := s.meta.Delete(t.Context(), keyOf(t, "tag"), tag.ID); err != nil {
		t.Fatal(err)
	}
	s.follow(t, tag, 0)
	check("tag deleted", map[string]int64{"category-names": webstoreCategories, "tag-names": webstoreTags - tagged})

	// Products that had the tag get it back without its name: before it is made
	// again they lose it once more, however late it is; afterwards they keep it.
	tag.Name = "Tag-5 again"
	var had []productItem
	for _, p := range before {
		if slices.ContainsFunc(p.Tags, func(t tagItem) bool { return t.ID == tag.ID }) {
			had = append(had, p)
		}
	}
	if len(had) < 2 {
		t.Fatalf("%d products had the tag; the test needs two", len(had))
	}
	giveBack := func(products []productItem) {
		t.Helper()
		element := fmt.Appendf(nil, `{"id":%q}`, tag.ID)
		for _, p := range products {
			_, err := s.product.Patch(t.Context(), keyOf(t, p.CategoryID), p.ID, []document.Op{{Kind: "add", Path: "/tags/0", Value: element}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	giveBack(had[:len(had)/2])
	s.follow(t, tag, 0)
	if err := put(t.Context(), s.meta, *tag); err != nil {
		t.Fatal(err)
	}
	giveBack(had)
	s.follow(t, tag, tagged)
	full := map[string]int64{"category-names": webstoreCategories, "tag-names": webstoreTags}
	check("tag made again", full)
	s.rename(t, tag, "Tag-5")
	s.follow(t, tag, tagged)
	check("tag renamed again", full)
}
