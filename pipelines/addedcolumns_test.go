package pipelines_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/postgres"
	"github.com/millrace/millrace/pipelines/verify"
)

const rowContainer = `
apiVersion: millrace/v1
kind: Container
metadata: {name: orders}
spec: {partitionKey: [/customerId], partitions: 2}
`

// TestAddedColumnsAreFilled gives tables columns more, in every sink, while items
// come, change and go: in the end all rows have them, in the same generation.
func TestAddedColumnsAreFilled(t *testing.T) {
	t.Parallel()
	env := postgres.Env(t, postgres.Start(t).Database(t))
	for name, sink := range map[string]string{
		"container": "{container: {}}",
		"parquet":   "{parquet: {path: " + t.TempDir() + ", commitInterval: 100ms}}",
		"postgres":  "{postgres: {dsnEnv: " + env + "}}",
	} {
		t.Run(name, func(t *testing.T) {
			n := newStore(t)
			n.apply(t, decode(t, rowContainer))
			n.customers(t, 20, 15)
			n.apply(t, rows(t, sink, doubleTotals))
			n.awaitInForce(t, "order-rows", 1)

			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				c := n.container(t, "customer")
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					began := time.Now()
					if _, err := c.Upsert(t.Context(), []byte(order(i%20, 15+i%5))); err != nil {
						t.Error(err)
						return
					}
					key, err := feed.NewPartitionKey(fmt.Sprint("c", i%20))
					if err != nil {
						t.Error(err)
						return
					}
					if i < 60 { // the others are to be left for the backfill
						_ = c.Delete(t.Context(), key, fmt.Sprintf("o%d-%d", i%20, i%17)) // may be gone
					}
					poll.Rest(t.Context(), began)
				}
			})
			n.apply(t, rows(t, sink, `{customerId: customerId, orderId: id, total: {expr: total, type: double}, twice: {expr: total * 2, type: double}, kind: type}`))
			rec := n.record(t, "order-rows")
			poll.Until(t, func() error {
				if now := n.record(t, "order-rows"); !now.InForce {
					return errors.New("it is not in force")
				}
				return nil
			})
			close(stop)
			wg.Wait()
			n.idle(t)
			if now := n.record(t, "order-rows"); now.Generation != rec.Generation || now.Shadow || now.Backfills != 1 {
				t.Errorf("generation %d, shadow %t, backfills %d", now.Generation, now.Shadow, now.Backfills)
			}
			r, by := n.verify(t, verify.Config{PollInterval: 10 * time.Millisecond})
			if r.Verdict != verify.VerdictEqual || by["order-rows"].Copies < 200 {
				t.Errorf("%d rows:\n%s", by["order-rows"].Copies, text(r))
			}
		})
	}
}
