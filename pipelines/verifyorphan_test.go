package pipelines_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pipelines/verify"
)

const blockedSums = `
apiVersion: millrace/v1
kind: Container
metadata: {name: event}
spec: {partitionKey: [/k]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: tally}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: sums}
spec:
  source: {container: event}
  aggregate: {into: tally, match: {id: k}, where: 'type = "sum" AND STARTSWITH(id, "a")', create: true, set: {sum: {sum: n}}}
`

// A group whose target could not be created, because another item had its id, has none when that item goes, for it
// changes no more. Verify tells of it, and repair creates it. For a group that no item can be the target of, none is
// missing.
func TestVerify_ATargetThatCouldNotBeCreatedIsMissing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.apply(t, decode(t, blockedSums))
	n.put(t, "tally", `{"id":"a","type":"other"}`)
	n.put(t, "event", `{"id":"1","k":"a","n":2}`, `{"id":"2","k":"a","n":3}`, `{"id":"3","k":"b","n":4}`)
	n.awaitInForce(t, "sums", 1) // the sweep that a publication begins creates targets too
	cfg := verify.Config{PollInterval: 10 * time.Millisecond}
	said := func(when string, r *verify.Report, verdict verify.Verdict, want string) {
		t.Helper()
		if r.Verdict != verdict || !strings.Contains(text(r), want) {
			t.Errorf("%s: it is not %s, or does not say %q:\n%s", when, verdict, want, text(r))
		}
	}
	few := verify.Config{PollInterval: cfg.PollInterval, BytesMax: 1} // no room to remember which groups have targets
	for _, some := range []verify.Config{cfg, few} {
		r, _ := n.verify(t, some)
		said("blocked", r, verify.VerdictDrift, "is missing, another item, which is no target, has its id")
	}
	r, _ := n.repair(t, cfg)
	said("repaired while it is blocked", r, verify.VerdictDrift, "delete that, and repair")
	n.delete(t, "tally", "a", "a")
	r, _ = n.repair(t, cfg) // unless its processor, which looks for refusals that it was not told of, is faster
	said("free", r, verify.VerdictEqual, `dangling ["b"]/b group`)
	if got := n.read(t, "tally", "a", "a", "sum"); got != "5" {
		t.Errorf("the sum is %s", got)
	}
	r, _ = n.verify(t, few)
	said("again", r, verify.VerdictEqual, `dangling ["b"]/b group`)
}
