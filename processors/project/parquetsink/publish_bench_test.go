package parquetsink_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
)

// distant is a store that takes a time for each request, as one across a network does, and
// counts them.
type distant struct {
	objects
	takes    time.Duration
	requests atomic.Int64
}

// cross waits for as long as a request takes.
func (d *distant) cross(ctx context.Context) error {
	d.requests.Add(1)
	select {
	case <-time.After(d.takes):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *distant) Get(ctx context.Context, name string) ([]byte, error) {
	if err := d.cross(ctx); err != nil {
		return nil, err
	}
	return d.objects.Get(ctx, name)
}

func (d *distant) Put(ctx context.Context, name string, data []byte) error {
	if err := d.cross(ctx); err != nil {
		return err
	}
	return d.objects.Put(ctx, name, data)
}

func (d *distant) PutExclusive(ctx context.Context, name string, data []byte) error {
	if err := d.cross(ctx); err != nil {
		return err
	}
	return d.objects.PutExclusive(ctx, name, data)
}

func (d *distant) List(ctx context.Context, prefix, after string) iter.Seq2[parquetsink.Object, error] {
	return func(yield func(parquetsink.Object, error) bool) {
		if err := d.cross(ctx); err != nil {
			yield(parquetsink.Object{}, err)
			return
		}
		d.objects.List(ctx, prefix, after)(yield)
	}
}

func (d *distant) Delete(ctx context.Context, names ...string) error {
	if err := d.cross(ctx); err != nil {
		return err
	}
	return d.objects.Delete(ctx, names...)
}

// manyTables is a schema of equal small tables.
func manyTables(n int) *project.Schema {
	s := &project.Schema{Pipeline: "analytics", Generation: 1}
	for i := range n {
		table := lines().Tables[0]
		table.Name = fmt.Sprint("table", i)
		s.Tables = append(s.Tables, table)
	}
	return s
}

// BenchmarkPublish commits a change of a row in each of eight tables, in a directory and in
// a store of which each request takes 20 ms.
func BenchmarkPublish(b *testing.B) {
	const tables = 8
	for name, store := range map[string]func() *distant{
		"store=dir":    func() *distant { return &distant{objects: parquetsink.NewDir(b.TempDir())} },
		"store=memory": func() *distant { return &distant{objects: newMemory()} },
		"store=20ms":   func() *distant { return &distant{objects: newMemory(), takes: 20 * time.Millisecond} },
	} {
		b.Run(name, func(b *testing.B) {
			storage := store()
			w := begin(b, open(b, storage, quick()), manyTables(tables), 0)
			rows := orderLines(0, 1)[:1]
			lsn, before := feed.LSN(0), storage.requests.Load()
			for b.Loop() {
				var changed []project.Row
				for table := range tables {
					r := rows[0]
					r.Table, r.Values = table, append([]project.Value{}, r.Values...)
					r.Values[4] = project.IntOf(int64(lsn))
					changed = append(changed, r)
				}
				write(b, w, &project.Batch{After: feed.Position{LSN: lsn}, UpTo: feed.Position{LSN: lsn + 1}, Put: changed})
				flush(b, w)
				lsn++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
			b.ReportMetric(float64(storage.requests.Load()-before)/float64(b.N), "requests/commit")
		})
	}
}
