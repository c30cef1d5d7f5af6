package sdk_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

func TestGo_Batch(t *testing.T) {
	c := container(t, database(t), azcosmos.ContainerProperties{}, "/pk")
	ctx, key := t.Context(), pk("a")
	item := func(id string, n int) []byte { return object{"id": id, "pk": "a", "n": n}.json() }
	seeded, err := c.CreateItem(ctx, key, item("seed", 1), nil)
	must(t, err)
	stale := azcore.ETag(`"0000000000000001-0"`)
	var patch azcosmos.PatchOperations
	patch.AppendIncrement("/n", 10)
	var guarded azcosmos.PatchOperations
	guarded.SetCondition("from c where c.n = 99")
	guarded.AppendIncrement("/n", 10)
	for _, test := range []struct {
		name  string
		build func(b *azcosmos.TransactionalBatch)
		want  []int32
		// what stands in the container then
		items string
	}{
		{"all kinds", func(b *azcosmos.TransactionalBatch) {
			b.CreateItem(item("new", 1), nil)
			b.UpsertItem(item("new", 2), nil)
			b.ReplaceItem("seed", item("seed", 2), &azcosmos.TransactionalBatchItemOptions{IfMatchETag: &seeded.ETag})
			b.PatchItem("seed", patch, nil)
			b.ReadItem("seed", nil)
			b.DeleteItem("new", nil)
		}, []int32{201, 200, 200, 200, 200, 204}, "seed=12"},
		{"a create that conflicts", func(b *azcosmos.TransactionalBatch) {
			b.CreateItem(item("x", 1), nil)
			b.CreateItem(item("seed", 1), nil)
			b.CreateItem(item("y", 1), nil)
		}, []int32{424, 409, 424}, "seed=1"},
		{"a delete of nothing", func(b *azcosmos.TransactionalBatch) {
			b.UpsertItem(item("seed", 5), nil)
			b.DeleteItem("none", nil)
		}, []int32{424, 404}, "seed=1"},
		{"an etag that is old", func(b *azcosmos.TransactionalBatch) {
			b.UpsertItem(item("x", 1), nil)
			b.ReplaceItem("seed", item("seed", 9), &azcosmos.TransactionalBatchItemOptions{IfMatchETag: &stale})
		}, []int32{424, 412}, "seed=1"},
		{"a patch whose condition is false", func(b *azcosmos.TransactionalBatch) {
			b.UpsertItem(item("x", 1), nil)
			b.PatchItem("seed", guarded, nil)
		}, []int32{424, 412}, "seed=1"},
		{"an item of another key", func(b *azcosmos.TransactionalBatch) {
			b.UpsertItem(item("x", 1), nil)
			b.CreateItem(object{"id": "z", "pk": "b"}.json(), nil)
		}, []int32{424, 400}, "seed=1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			reset, err := c.UpsertItem(ctx, key, item("seed", 1), nil)
			must(t, err)
			seeded.ETag = reset.ETag
			b := c.NewTransactionalBatch(key)
			test.build(&b)
			resp, err := c.ExecuteTransactionalBatch(ctx, b, &azcosmos.TransactionalBatchOptions{EnableContentResponseOnWrite: true})
			must(t, err)
			var got []int32
			for _, r := range resp.OperationResults {
				got = append(got, r.StatusCode)
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("statuses %v, want %v", got, test.want)
			}
			failed := strings.Contains(fmt.Sprint(test.want), "424")
			if resp.Success == failed {
				t.Errorf("success is %t", resp.Success)
			}
			if !failed {
				read := resp.OperationResults[4]
				if parse(t, read.ResourceBody)["n"] != 12.0 || read.ETag == "" || resp.RequestCharge <= 0 {
					t.Errorf("the read of the batch: %s", read.ResourceBody)
				}
			}
			var left []string
			for _, data := range query(t, c, key, "SELECT * FROM c", 0) {
				o := parse(t, data)
				left = append(left, fmt.Sprintf("%v=%v", o["id"], o["n"]))
			}
			if strings.Join(left, " ") != test.items {
				t.Errorf("the partition has %v, want %s", left, test.items)
			}
		})
	}
	t.Run("101 operations", func(t *testing.T) {
		b := c.NewTransactionalBatch(key)
		for i := range 101 {
			b.CreateItem(item(fmt.Sprint("m", i), i), nil)
		}
		_, err := c.ExecuteTransactionalBatch(ctx, b, nil)
		refused(t, err, http.StatusBadRequest)
	})
	t.Run("more than 2 MiB", func(t *testing.T) {
		b := c.NewTransactionalBatch(key)
		for i := range 3 {
			b.CreateItem(object{"id": fmt.Sprint("big", i), "pk": "a", "text": strings.Repeat("x", 900_000)}.json(), nil)
		}
		_, err := c.ExecuteTransactionalBatch(ctx, b, nil)
		refused(t, err, http.StatusRequestEntityTooLarge)
	})
	if left := query(t, c, key, "SELECT VALUE c.id FROM c", 0); len(left) != 1 {
		t.Errorf("batches that were refused left %s", left)
	}
}
