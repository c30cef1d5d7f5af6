package pipelines_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pipelines/verify"
	"github.com/millrace/millrace/store"
)

const oneGroupPipelines = `
apiVersion: millrace/v1
kind: Container
metadata: {name: event}
spec: {partitionKey: [/k], partitions: 2}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: tally}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: all}
spec:
  source: {container: event, where: type = "event"}
  aggregate: {into: tally, where: id = "all", create: true, set: {events: {count: true}, sum: {sum: n}}}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: of-a}
spec:
  source: {container: event, where: k = "a" AND type = "event"}
  aggregate: {into: event, where: k = "a" AND id = "all", create: true, set: {events: {count: true}}, consistency: transactional}
`

// TestVerify_AnAggregateWithoutMatch has aggregates whose one group needs no match. Nothing is
// found to differ beside writes, and a repair changes nothing.
func TestVerify_AnAggregateWithoutMatch(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apply(t, decode(t, oneGroupPipelines))
	event := n.container(t, "event")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, err := event.Upsert(ctx, fmt.Appendf(nil, `{"id":"%d-%d","k":"%c","type":"event","n":%d}`, w, i%500, 'a'+rune(i%3), i))
				if err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrUnavailable) {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 3 {
		r, _ := n.repair(t, verify.Config{PollInterval: 10 * time.Millisecond})
		for i := range r.Pipelines {
			if p := &r.Pipelines[i]; p.Verdict != verify.VerdictEqual && !keepsChanging(p) || p.Repaired > 0 {
				t.Errorf("beside writes:\n%s", text(r))
			}
		}
	}
	cancel()
	writers.Wait()
	n.idle(t)
	if r, _ := n.verify(t, verify.Config{}); r.Verdict != verify.VerdictEqual {
		t.Errorf("at rest:\n%s", text(r))
	}
}
