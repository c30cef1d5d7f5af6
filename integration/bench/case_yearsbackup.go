//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/store"
)

const (
	firstBackup  = "the first backup"
	plainCopy    = "plain copy of its files"
	secondBackup = "the next one, when 1 % was written"

	backupSpeedBar = 0.5  // times the plain copy's
	sentAgainBar   = 10.0 // % of the first backup
)

// yearsBackup is the case of backups of a store that is old.
func (b *bench) yearsBackup(ctx context.Context) (err error) {
	set, err := b.dataset(false)
	if err != nil {
		return err
	}
	dir, err := b.oldStore(ctx, set)
	if err != nil {
		return err
	}
	t := b.table("years-backup", "Backup of a store that is old", fmt.Sprintf(
		"millrace backup create DIR, beside millrace up with %s items of 1 KiB in %d partitions, four fifths of them in snapshots and the rest in the logs behind them. "+
			"MB are what is written to DIR, in which snapshots are compressed. The plain copy writes the same files to the same disk and syncs each; it reads them from the page cache. "+
			"Then 1 %% of the items, drawn at random, are written, and another backup is made in DIR. CPU is of both processes, the peak memory of the one that makes the backup.",
		measure.Number(float64(set.Products())), oldPartitions))
	t.Columns = []string{"s", "MB", "MB/s", "items/s", "sent again %", "CPU s", "store's CPU s", "peak MiB"}
	m, err := b.serve(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.end()) }()
	into, err := m.client.Container(ctx, database, "product")
	if err != nil {
		return err
	}
	k := &backups{b: b, set: set, table: t, m: m, into: into, dice: rand.New(rand.NewPCG(b.cfg.seed, 0))}
	for round := range b.cfg.rounds {
		b.say("  round %d of %d", round+1, b.cfg.rounds)
		if err := k.round(ctx); err != nil {
			return err
		}
	}
	t.Beside(firstBackup, plainCopy, "MB/s", "times the plain copy")
	t.AtLeast("the first backup, beside the plain copy", t.Ratio(firstBackup, plainCopy, "MB/s"), backupSpeedBar, "times", b.cfg.judged())
	t.AtMost("sent again when 1 % was written", t.Series(secondBackup, "sent again %"), sentAgainBar, "% of the first", b.cfg.judged())
	return nil
}

// backups are those of one store, into a new place each round.
type backups struct {
	b     *bench
	set   *dataset.Set
	table *measure.Table
	m     *served
	into  *store.Container
	dice  *rand.Rand
}

func (k *backups) round(ctx context.Context) error {
	place, err := k.b.scratch("backup")
	if err != nil {
		return err
	}
	defer k.b.remove(place)
	first, err := k.create(ctx, firstBackup, place)
	if err != nil {
		return err
	}
	if err := k.copy(ctx, place); err != nil {
		return err
	}
	if err := k.b.upsert(ctx, k.into, k.set, k.draw(max(k.set.Products()/100, 1))); err != nil {
		return err
	}
	second, err := k.create(ctx, secondBackup, place)
	if err != nil {
		return err
	}
	k.table.Row(secondBackup).Add("sent again %", 100*second/first)
	k.b.say("  sent again: %.1f %%", 100*second/first)
	return nil
}

// draw returns n ordinals of products at random.
func (k *backups) draw(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := 0; i < n && yield(k.dice.IntN(k.set.Products())); i++ {
		}
	}
}

// settle waits until processors and disk have nothing left to do.
func (k *backups) settle(ctx context.Context) error {
	if err := k.b.quiet(ctx); err != nil {
		return err
	}
	unix.Sync()
	return nil
}

// create makes a backup and returns the megabytes that it sent.
func (k *backups) create(ctx context.Context, row, place string) (sent float64, err error) {
	if err := k.settle(ctx); err != nil {
		return 0, err
	}
	watch, before := k.b.watch(), measure.CPUOf(k.m.pid())
	o, err := k.b.verb(ctx, "backup", "create", place, "--server", k.m.url, "-o", "json")
	if err != nil {
		return 0, err
	}
	storing := measure.CPUOf(k.m.pid()) - before
	k.table.Others = append(k.table.Others, watch.Others())
	var said struct {
		Sent    uint64   `json:"sent"`
		Skipped []string `json:"skipped"`
	}
	if err := json.Unmarshal(o.printed, &said); err != nil {
		return 0, fmt.Errorf("backup create printed %q: %w", o.printed, err)
	}
	if len(said.Skipped) > 0 {
		return 0, fmt.Errorf("backup create skipped %q", said.Skipped)
	}
	sent = float64(said.Sent) / 1e6
	r := k.table.Row(row)
	r.Add("s", o.took.Seconds())
	r.Add("MB", sent)
	r.Add("MB/s", sent/o.took.Seconds())
	if row == firstBackup {
		r.Add("items/s", float64(k.set.Products())/o.took.Seconds())
	}
	r.Add("CPU s", o.cpu.Seconds())
	r.Add("store's CPU s", storing.Seconds())
	r.Add("peak MiB", o.peak)
	k.b.say("  %s: %.0f MB in %.2f s", row, sent, o.took.Seconds())
	return sent, nil
}

// copy copies the files of a place to another one, which it removes again.
func (k *backups) copy(ctx context.Context, place string) error {
	into, err := k.b.scratch("copy")
	if err != nil {
		return err
	}
	defer k.b.remove(into)
	if err := k.settle(ctx); err != nil {
		return err
	}
	start := time.Now()
	n, err := copyTree(into, place)
	if err != nil {
		return err
	}
	seconds, copied := time.Since(start).Seconds(), float64(n)/1e6
	r := k.table.Row(plainCopy)
	r.Add("s", seconds)
	r.Add("MB", copied)
	r.Add("MB/s", copied/seconds)
	k.b.say("  %s: %.0f MB in %.2f s", plainCopy, copied, seconds)
	return nil
}

// copyTree copies what is below one directory into another and syncs each file.
func copyTree(into, from string) (bytes int64, err error) {
	err = filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(into, name), 0o755)
		}
		n, err := copyFile(filepath.Join(into, name), path)
		bytes += n
		return err
	})
	if err != nil {
		return bytes, fmt.Errorf("copy %s: %w", from, err)
	}
	return bytes, nil
}

func copyFile(into, from string) (bytes int64, err error) {
	source, err := os.Open(from)
	if err != nil {
		return 0, err
	}
	defer source.Close() //nolint:errcheck // it was only read
	target, err := os.Create(into)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	if bytes, err = io.Copy(target, source); err == nil {
		err = target.Sync()
	}
	return bytes, err
}
