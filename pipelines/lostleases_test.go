package pipelines_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/compile"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store/owner"
)

// Under which epoch the leases of workers stood before they were lost: if each holding
// raised it by one, the worker would be refused for an hour.
const lostEpoch = 5000

// TestI5_WorkersGoOnAfterTheirLeasesAreLost loses the bucket of the leases, and with it their
// epochs, while targets remember those. Each kind of pipeline goes on after one more holding for
// each lease whose writes are refused.
func TestI5_WorkersGoOnAfterTheirLeasesAreLost(t *testing.T) {
	t.Parallel()
	below := storetest.Start(t)
	n := nodeOf(t, below)
	stop := n.work(t, n.client, compile.SinkLimits{})
	n.apply(t, decode(t, shopContainers+"---"+saleNames+"---"+saleContainer+"---"+saleRows(t.TempDir())))
	n.apply(t, totals(t, countAndSum, "eventual"))
	n.apply(t, rows(t, "{container: {}}", "{customerId: customerId, orderId: id, total: {expr: total, type: int64}}"))
	// step writes what every pipeline follows, and waits until all do.
	step := func(number int) {
		t.Helper()
		name := fmt.Sprintf(`"name%d"`, number)
		for c := range 4 {
			n.put(t, "customer", fmt.Sprintf(`{"id":"c%d","customerId":"c%d","type":"customer","name":%s}`, c, c, name), order(c, number))
			n.put(t, "sale", fmt.Sprintf(`{"id":"s%d-%d","customerId":"c%d","customerName":"?"}`, c, number, c))
		}
		n.idle(t)
		for c := range 4 {
			id := fmt.Sprintf("c%d", c)
			n.field(t, id, "orderCount", fmt.Sprint(number+1))
			if got := n.read(t, "sale", id, fmt.Sprintf("s%d-0", c), "customerName"); got != name {
				t.Fatalf("step %d: the name copied from %s is %s", number, id, got)
			}
			if got := n.read(t, "orders", id, fmt.Sprintf("o%d-%d", c, number), "total"); got != fmt.Sprint(10*(number+1)) {
				t.Fatalf("step %d: the total of the row of %s is %s", number, id, got)
			}
		}
	}
	step(0)
	stop()
	n.setEpochs(t, lostEpoch-1)
	stop = n.work(t, n.client, compile.SinkLimits{})
	step(1)
	stop()

	below.StopOwner()
	if err := n.js.DeleteKeyValue(t.Context(), leases.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	below.Own(t, owner.Config{})
	n = nodeOf(t, below)
	n.work(t, n.client, compile.SinkLimits{})
	step(2)
	raised := map[string]bool{}
	for _, l := range n.workerLeases(t) {
		r, err := processors.ParseResource(l.Resource)
		if err != nil {
			continue // the reconciler's
		}
		if l.Epoch > lostEpoch+100 { // a term that ends early is held again
			t.Errorf("%s has epoch %d, the greatest that was seen is %d", l.Resource, l.Epoch, lostEpoch)
		}
		if l.Epoch > lostEpoch {
			raised[r.Pipeline] = true
		}
	}
	for _, name := range []string{"sale-names", "customer-totals", "order-rows", "sales"} {
		if !raised[n.record(t, name).ID] {
			t.Errorf("no lease of %s was raised above the epoch that its target has seen: %v", name, raised)
		}
	}
}

// workerLeases returns the leases of the workers.
func (n *node) workerLeases(t testing.TB) []leases.Lease {
	t.Helper()
	all, err := leases.List(t.Context(), n.js, "")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(l leases.Lease) bool { return l.Group != "worker" })
}

// setEpochs gives the leases of the workers, which nobody holds, an epoch.
func (n *node) setEpochs(t testing.TB, epoch int) {
	t.Helper()
	kv, err := n.js.KeyValue(t.Context(), leases.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range n.workerLeases(t) {
		key := "lease.worker." + l.Resource
		e, err := kv.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		record := map[string]json.RawMessage{}
		if err := json.Unmarshal(e.Value(), &record); err != nil {
			t.Fatal(err)
		}
		record["epoch"] = strconv.AppendInt(nil, int64(epoch), 10)
		data, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kv.Update(t.Context(), key, data, e.Revision()); err != nil {
			t.Fatal(err)
		}
	}
}

const saleNames = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: sale-names}
spec:
  source: {container: customer, where: type = "customer"}
  cascade: {into: sale, match: {customerId: [id, customerId]}, set: {customerName: name}}
`
