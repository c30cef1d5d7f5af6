package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

const (
	// stepDiskMax is the most that the directory of the test's few items may take at rest.
	stepDiskMax = 20 << 20
	// stepLogMax is the most of one log at rest, four times what is written until a snapshot
	// is due.
	stepLogMax = 256 << 10
)

// settle proves that nothing was lost, that every copy is right and that what was
// written is gone again but for what lives.
func (k *stepKills) settle(n int) {
	k.t.Helper()
	began := time.Now()
	acked := 0
	for _, w := range k.writers {
		w.check(k.t, k.product)
		acked += w.acked
	}
	checkSources(k.t, k.meta, k.sources)
	poll.Until(k.t, func() error {
		r := verifyCopies(k.t, k.server, "--settle", "60s")
		// Rows that are built beside those that are read are not waited for. Of a log that is trimmed
		// meanwhile not all can be judged.
		if r.Verdict == verify.VerdictBehind || r.Verdict == verify.VerdictUnjudged {
			return fmt.Errorf("after the kills:\n%s", &r)
		}
		if r.exit != 0 || r.Verdict != verify.VerdictEqual {
			k.t.Errorf("after the kills:\n%s", &r)
		}
		return nil
	})
	k.recount()
	var disk int64
	poll.Until(k.t, func() (err error) {
		disk, err = k.bounded()
		return err
	})
	k.t.Logf("round %d: %d writes acknowledged so far, none lost; %d KiB on disk; settled in %s", n, acked, disk>>10, time.Since(began).Round(time.Millisecond))
}

// stepProduct and stepMeta are what a test that counts again needs to know of items.
type (
	stepProduct struct {
		ID, CategoryID, CategoryName string
		Version                      int
		Tags                         []tagItem
	}
	stepMeta struct {
		ID, Type, Name     string
		Products, Versions json.Number
	}
)

// recount computes every copy from the items that writers wrote, and compares.
func (k *stepKills) recount() {
	k.t.Helper()
	names, products, versions := map[string]string{}, map[string]int{}, map[string]int{}
	metas := scanAll[stepMeta](k.t, k.meta)
	for i := range metas {
		names[metas[i].Type+"/"+metas[i].ID] = metas[i].Name
	}
	var rows []string
	for _, p := range scanAll[stepProduct](k.t, k.product) {
		if want := names["category/"+p.CategoryID]; p.CategoryName != want {
			k.t.Errorf("product %s says category %q, want %q", p.ID, p.CategoryName, want)
		}
		for _, tag := range p.Tags {
			if want := names["tag/"+tag.ID]; tag.Name != want {
				k.t.Errorf("product %s says tag %q, want %q", p.ID, tag.Name, want)
			}
		}
		products[p.CategoryID]++
		versions[p.CategoryID] += p.Version
		rows = append(rows, fmt.Sprintf("categoryName=%s id=%s version=%d", p.CategoryName, p.ID, p.Version))
	}
	for i := range metas {
		m := &metas[i]
		if m.Type == "category" && (rational(m.Products) != fmt.Sprint(products[m.ID]) || rational(m.Versions) != fmt.Sprint(versions[m.ID])) {
			k.t.Errorf("category %s says %s products of versions %s, want %d and %d", m.ID, m.Products, m.Versions, products[m.ID], versions[m.ID])
		}
	}
	slices.Sort(rows)
	poll.Until(k.t, func() error {
		got, err := fileRows(filepath.Join(k.files, "products"))
		if diff := gocmp.Diff(rows, got); err == nil && diff != "" {
			err = errors.New("table of products (-want +got):\n" + diff)
		}
		return err
	})
}

// bounded tells how much there is on disk, and whether that is too much, or something that
// nothing names.
func (k *stepKills) bounded() (disk int64, err error) {
	for _, ct := range []*store.Container{k.product, k.meta} {
		for _, p := range ct.Partitions() {
			status, err := ct.Status(k.t.Context(), p)
			if err != nil {
				return 0, err
			}
			info, err := k.js.Stream(k.t.Context(), p.Stream())
			if err != nil {
				return 0, err
			}
			if state := info.CachedInfo().State; state.Bytes > stepLogMax {
				return 0, fmt.Errorf("the log of %s has %+v, and %+v, %+v", p, state, status.Snapshot, status.Trim)
			}
		}
	}
	err = filepath.WalkDir(k.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it is gone meanwhile
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		disk += info.Sys().(*syscall.Stat_t).Blocks * 512
		return nil
	})
	if err == nil && disk > stepDiskMax {
		err = fmt.Errorf("%d KiB on disk:\n%s", disk>>10, k.sizes())
	}
	return disk, errors.Join(err, k.unnamed())
}

// sizes lists how much each folder takes.
func (k *stepKills) sizes() string {
	by := map[string]int64{}
	_ = filepath.WalkDir(k.dir, func(path string, d fs.DirEntry, err error) error { // for a message alone
		if err == nil && !d.IsDir() {
			if info, err := d.Info(); err == nil {
				by[filepath.Dir(strings.TrimPrefix(path, k.dir))] += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
		}
		return nil
	})
	var b strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(&b, "%8d KiB %s\n", by[dir]>>10, dir)
	}
	return b.String()
}

// unnamed tells of folders of snapshots that no pointer names, but for one of each
// partition, which the next snapshot removes.
func (k *stepKills) unnamed() error {
	pointers, err := filepath.Glob(filepath.Join(k.dir, "snapshots", "*", "*", "newest.json"))
	if err != nil {
		return err
	}
	for _, pointer := range pointers {
		data, err := os.ReadFile(pointer)
		if err != nil {
			return err
		}
		var at struct{ Snapshots, Pins []struct{ ID string } }
		if err := json.Unmarshal(data, &at); err != nil {
			return err
		}
		entries, err := os.ReadDir(filepath.Dir(pointer))
		if err != nil {
			return err
		}
		var more []string
		for _, e := range entries {
			named := slices.ContainsFunc(append(at.Snapshots, at.Pins...), func(s struct{ ID string }) bool { return s.ID == e.Name() })
			if !named && e.Name() != "newest.json" && e.Name() != "newest.json.tmp" {
				more = append(more, e.Name())
			}
		}
		if len(more) > 1 {
			return fmt.Errorf("%s names %s and not %q", pointer, data, more)
		}
	}
	return nil
}
