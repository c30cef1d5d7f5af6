package gateway_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	counted "sync/atomic"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/script"
)

// TestProcedure_GoesOnThroughASplitAndAMove increments counters of many logical partitions by a stored procedure with a
// trigger, while their partition is split and then moves to another owner. What was answered has happened once, and
// nothing is answered but success and what every SDK sends again.
func TestProcedure_GoesOnThroughASplitAndAMove(t *testing.T) {
	t.Parallel()
	w := scriptWorld(t, script.Config{})
	w.procedure("count", `function (id) {
		var link = __.getAltLink() + "/docs/" + id;
		__.readDocument(link, function (err, counter) {
			if (err) throw err;
			counter.n++;
			__.replaceDocument(link, counter, function (err) {
				if (err) throw err;
				__.createDocument(__.getSelfLink(), {pk: counter.pk, of: id, n: counter.n}, function (err) { if (err) throw err });
			});
		});
	}`)
	const counters, clients = 12, 3
	for i := range counters {
		w.ask("POST", docs, fmt.Sprintf(`{"id":"c%d","pk":"k%[1]d","n":0}`, i), keyHeader, fmt.Sprintf(`["k%d"]`, i)).is(201)
	}
	var answered [counters]counted.Int64
	var all counted.Int64
	stop := make(chan struct{})
	var running sync.WaitGroup
	for client := range clients {
		running.Go(func() {
			for n := client; ; n += clients {
				select {
				case <-stop:
					return
				default:
				}
				i := n % counters
				switch a := w.ask("POST", sprocs+"/count", fmt.Sprintf(`["c%d"]`, i), keyHeader, fmt.Sprintf(`["k%d"]`, i)); a.status {
				case 200:
					answered[i].Add(1)
					all.Add(1)
				case 449, 503: // somebody else came first, or there was no owner for as long as a client waits
				default:
					t.Errorf("%d %s", a.status, a.body)
					return
				}
			}
		})
	}
	// more waits until some more have been answered, by whoever is the owner then.
	more := func() {
		t.Helper()
		until := all.Load() + 3*counters
		poll.Until(t, func() error { return poll.Unless(all.Load() >= until || t.Failed(), "too few were answered") })
	}
	more()
	ct, err := w.client.Container(t.Context(), "shop", "things")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ct.Split(t.Context(), feed.Partition{Container: ct.Info().ID}, store.SplitPartition{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		info, err := w.catalog.Get(t.Context(), "shop", "things")
		if err != nil {
			return err
		}
		return poll.Unless(len(info.Partitions) == 2 && len(info.Splits) == 0, "it is not split")
	})
	more()
	w.stopOwners()
	w.startOwners()
	more()
	close(stop)
	running.Wait()
	for i := range counters {
		key := fmt.Sprintf(`["k%d"]`, i)
		n := w.ask("GET", fmt.Sprintf("%s/c%d", docs, i), "", keyHeader, key).is(200).object()["n"]
		var notes struct{ Documents []json.RawMessage }
		w.ask("POST", docs, `{"query":"SELECT VALUE c.n FROM c WHERE IS_DEFINED(c.of)"}`, keyHeader, key, isQuery, "true", "Content-Type", "application/query+json", pageItems, "1000").is(200).into(&notes)
		want := strconv.FormatInt(answered[i].Load(), 10)
		if fmt.Sprint(n) != want || strconv.Itoa(len(notes.Documents)) != want {
			t.Errorf("counter %d is %v, with %d notes; %s were answered", i, n, len(notes.Documents), want)
		}
	}
}
