package project_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/store"
)

// TestContainerSink_TellsWhatWasRefused has a row that its partition cannot take. The sink
// tells of it once, whatever happens to the batch: another partition is away, or the answer
// that told of the row is lost.
func TestContainerSink_TellsWhatWasRefused(t *testing.T) {
	t.Parallel()
	w := storetest.NewWorld(t)
	once := func(on func(r *store.Request) bool) func(r *store.Request) bool {
		var done atomic.Bool
		return func(r *store.Request) bool {
			return r.PutRows != nil && !r.PutRows.Ask && on(r) && done.CompareAndSwap(false, true)
		}
	}
	away := store.Refuse(store.StatusUnavailable, "away")
	for name, fault := range map[string]func(tap *storetest.Tap, at, other feed.Partition){
		"nothing happens": func(*storetest.Tap, feed.Partition, feed.Partition) {},
		"the other partition is away": func(tap *storetest.Tap, _, other feed.Partition) {
			first := once(func(r *store.Request) bool { return r.Partition == other })
			tap.Refuse(func(r *store.Request) *store.Error {
				if first(r) {
					return away
				}
				return nil
			})
		},
		"its answer is lost": func(tap *storetest.Tap, at, _ feed.Partition) {
			first := once(func(r *store.Request) bool { return r.Partition == at })
			tap.Answer(func(r *store.Request, resp *store.Response) *store.Response {
				if first(r) {
					return &store.Response{Err: away}
				}
				return resp
			})
		},
	} {
		rows := w.Container(t, strings.ReplaceAll(name, " ", "-"), store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 2})
		row := func(id, text string) project.Row {
			return project.Row{
				Key: []project.Value{project.TextOf(id)}, Values: []project.Value{project.TextOf(id), project.TextOf(text)}, Source: "source/" + id,
			}
		}
		partitionOf := func(id string) feed.Partition { return rows.PartitionFor(key(t, id)) }
		bad, good := "row-0", ""
		for i := 1; good == ""; i++ {
			if id := fmt.Sprintf("row-%d", i); partitionOf(id) != partitionOf(bad) {
				good = id
			}
		}
		worker := w.Worker()
		through := worker.Own(rows)
		fault(worker.Tap, partitionOf(bad), partitionOf(good))
		sink := project.NewContainerSink(map[string]*store.Container{"t": through}, nil)
		writer, _, err := sink.Open(t.Context(), kept([]int{0}, project.ColumnSchema{Name: "id"}, project.ColumnSchema{Name: "text"}), project.Term{
			Producer: feed.Producer{Pipeline: "p", Generation: 1, Source: "source:c/0"}, Epoch: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		large := row(bad, strings.Repeat("x", document.SizeMax))
		batch := project.Batch{UpTo: feed.Position{LSN: 5}, Put: []project.Row{large, row(good, "y")}}
		var refused []project.Reject
		tries := 0
		for done := false; !done; tries++ {
			written, err := writer.Write(t.Context(), &batch)
			if done = err == nil; !done {
				// A Host that looks for the change that fails writes a part of the batch.
				part := project.Batch{UpTo: feed.Position{LSN: 4}, Put: []project.Row{large}}
				if name == "its answer is lost" {
					part.Put = []project.Row{row(good, "x")}
				}
				if written, err = writer.Write(t.Context(), &part); err == nil && !written.Skipped {
					batch.After = part.UpTo
				}
			}
			refused = append(refused, written.Refused...)
			if tries > 10 {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if len(refused) != 1 || refused[0].Source != "source/"+bad || !strings.Contains(refused[0].Reason, "at most") {
			t.Errorf("%s: after %d tries it told of %+v, want of %s", name, tries, refused, bad)
		}
		if _, err := rows.Read(t.Context(), key(t, good), good); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		written, err := writer.Write(t.Context(), &batch)
		if err != nil || !written.Skipped || len(written.Refused) != 0 {
			t.Errorf("%s: written once more: %+v, %v; want it to be skipped", name, written, err)
		}
	}
}
