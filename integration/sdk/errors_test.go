package sdk_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// Each refusal comes as the SDK's own error, and changes nothing.
func TestGo_Errors(t *testing.T) {
	s, err := shared()
	must(t, err)
	db := s.database(t)
	c := container(t, db, azcosmos.ContainerProperties{
		UniqueKeyPolicy: &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/email"}}}},
	}, "/pk")
	ctx, key := t.Context(), pk("a")
	_, err = c.CreateItem(ctx, key, object{"id": "1", "pk": "a", "email": "x"}.json(), nil)
	must(t, err)
	stale := azcore.ETag(`"0000000000000001-0"`)
	var patch, badCondition azcosmos.PatchOperations
	patch.AppendSet("/n", 1)
	badCondition.SetCondition("from c where c.n = ")
	badCondition.AppendSet("/n", 1)
	as := func(key string) *azcosmos.ContainerClient {
		// One try: what is refused for good is not asked again anyway.
		o := &azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}}
		other, err := s.client(t, key, o).NewContainer(db.ID(), "items")
		must(t, err)
		return other
	}
	stranger := as(base64.StdEncoding.EncodeToString([]byte("a key that is not one of the server's")))
	missing, err := s.client(t, masterKey, nil).NewContainer(db.ID(), "missing")
	must(t, err)
	for _, test := range []struct {
		name   string
		status int
		do     func() error
	}{
		{"id taken", 409, func() error {
			_, err := c.CreateItem(ctx, key, object{"id": "1", "pk": "a", "email": "y"}.json(), nil)
			return err
		}},
		{"unique key taken", 409, func() error {
			_, err := c.CreateItem(ctx, key, object{"id": "2", "pk": "a", "email": "x"}.json(), nil)
			return err
		}},
		{"no such item", 404, func() error { _, err := c.ReadItem(ctx, key, "none", nil); return err }},
		{"item under another key", 404, func() error { _, err := c.ReadItem(ctx, pk("b"), "1", nil); return err }},
		{"delete of nothing", 404, func() error { _, err := c.DeleteItem(ctx, key, "none", nil); return err }},
		{"replace of nothing", 404, func() error {
			_, err := c.ReplaceItem(ctx, key, "none", object{"id": "none", "pk": "a"}.json(), nil)
			return err
		}},
		{"no such container", 404, func() error { _, err := missing.ReadItem(ctx, key, "1", nil); return err }},
		{"old etag", 412, func() error {
			_, err := c.DeleteItem(ctx, key, "1", &azcosmos.ItemOptions{IfMatchEtag: &stale})
			return err
		}},
		{"too large", 413, func() error {
			_, err := c.CreateItem(ctx, key, object{"id": "2", "pk": "a", "text": strings.Repeat("x", 2<<20)}.json(), nil)
			return err
		}},
		{"no id", 400, func() error { _, err := c.CreateItem(ctx, key, object{"pk": "a"}.json(), nil); return err }},
		{"empty id", 400, func() error { _, err := c.CreateItem(ctx, key, object{"id": "", "pk": "a"}.json(), nil); return err }},
		{"id that is no text", 400, func() error { _, err := c.CreateItem(ctx, key, object{"id": 7, "pk": "a"}.json(), nil); return err }},
		{"no object", 400, func() error { _, err := c.CreateItem(ctx, key, []byte(`["id"]`), nil); return err }},
		{"no JSON", 400, func() error { _, err := c.CreateItem(ctx, key, []byte(`{"id": "2", "pk"`), nil); return err }},
		{"key of the item is another", 400, func() error {
			_, err := c.CreateItem(ctx, pk("b"), object{"id": "2", "pk": "a"}.json(), nil)
			return err
		}},
		{"replace that moves", 400, func() error {
			_, err := c.ReplaceItem(ctx, key, "1", object{"id": "1", "pk": "b"}.json(), nil)
			return err
		}},
		{"replace with another id", 400, func() error {
			_, err := c.ReplaceItem(ctx, key, "1", object{"id": "2", "pk": "a"}.json(), nil)
			return err
		}},
		{"bad condition of a patch", 400, func() error { _, err := c.PatchItem(ctx, key, "1", badCondition, nil); return err }},
		{"bad query", 400, func() error { _, err := c.NewQueryItemsPager("SELECT FROM WHERE", key, nil).NextPage(ctx); return err }},
		{"unknown function", 400, func() error {
			_, err := c.NewQueryItemsPager("SELECT NOPE(c.id) FROM c", key, nil).NextPage(ctx)
			return err
		}},
		{"unknown parameter", 400, func() error {
			_, err := c.NewQueryItemsPager("SELECT * FROM c WHERE c.id = @x", key, nil).NextPage(ctx)
			return err
		}},
		{"key that is no server's", 401, func() error { _, err := stranger.ReadItem(ctx, key, "1", nil); return err }},
		{"write with a key that reads", 403, func() error {
			_, err := as(readOnlyKey).UpsertItem(ctx, key, object{"id": "1", "pk": "a"}.json(), nil)
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := query(t, c, pk(), "SELECT * FROM c", 0)
			err := test.do()
			refused(t, err, test.status)
			if err != nil && !strings.Contains(err.Error(), `"message"`) && !strings.Contains(err.Error(), "message") {
				t.Errorf("the error says no message: %v", err)
			}
			after := query(t, c, pk(), "SELECT * FROM c", 0)
			if len(before) != 1 || len(after) != 1 || string(before[0]) != string(after[0]) {
				t.Errorf("it changed %s to %s", before, after)
			}
		})
	}
	read, err := as(readOnlyKey).ReadItem(ctx, key, "1", nil)
	must(t, err)
	if read.RawResponse.StatusCode != http.StatusOK {
		t.Errorf("a key that reads reads with %d", read.RawResponse.StatusCode)
	}
	if _, err := c.PatchItem(ctx, key, "1", patch, nil); err != nil {
		t.Errorf("and a write goes on: %v", err)
	}
}

func TestGo_TimeToLive(t *testing.T) {
	ttl := int32(-1)
	c := container(t, database(t), azcosmos.ContainerProperties{DefaultTimeToLive: &ttl}, "/pk")
	ctx, key := t.Context(), pk("a")
	_, err := c.CreateItem(ctx, key, object{"id": "short", "pk": "a", "ttl": 1}.json(), nil)
	must(t, err)
	_, err = c.CreateItem(ctx, key, object{"id": "long", "pk": "a"}.json(), nil)
	must(t, err)
	eventually(t, func() (bool, string) {
		_, err := c.ReadItem(ctx, key, "short", nil)
		return status(err) == http.StatusNotFound, "the item is read yet"
	})
	if ids := query(t, c, key, "SELECT VALUE c.id FROM c", 0); len(ids) != 1 || string(ids[0]) != `"long"` {
		t.Errorf("a query still finds %s", ids)
	}
	if got := follow(t, c, azcosmos.ChangeFeedOptions{}).rest(); got != "long=<nil>" {
		t.Errorf("the change feed still shows %s", got)
	}
	_, err = c.CreateItem(ctx, key, object{"id": "short", "pk": "a"}.json(), nil)
	must(t, err) // the id is free
	_, err = c.CreateItem(ctx, key, object{"id": "bad", "pk": "a", "ttl": 0}.json(), nil)
	refused(t, err, http.StatusBadRequest)
}

func TestGo_UniqueKeys(t *testing.T) {
	c := container(t, database(t), azcosmos.ContainerProperties{
		UniqueKeyPolicy: &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/email"}}, {Paths: []string{"/first", "/last"}}}},
	}, "/pk")
	ctx := t.Context()
	put := func(id, key, email, first, last string) error {
		_, err := c.UpsertItem(ctx, pk(key), object{"id": id, "pk": key, "email": email, "first": first, "last": last}.json(), nil)
		return err
	}
	must(t, put("1", "a", "x@x", "A", "B"))
	must(t, put("1", "b", "x@x", "A", "B")) // another logical partition
	must(t, put("2", "a", "y@x", "A", "C"))
	refused(t, put("3", "a", "x@x", "Q", "Q"), http.StatusConflict)
	refused(t, put("3", "a", "z@x", "A", "C"), http.StatusConflict)
	refused(t, put("2", "a", "x@x", "A", "C"), http.StatusConflict)
	var patch azcosmos.PatchOperations
	patch.AppendSet("/email", "x@x")
	_, err := c.PatchItem(ctx, pk("a"), "2", patch, nil)
	refused(t, err, http.StatusConflict)
	must(t, put("1", "a", "free@x", "A", "B"))
	_, err = c.PatchItem(ctx, pk("a"), "2", patch, nil)
	must(t, err) // the value is free now
}

func TestGo_HierarchicalKeys(t *testing.T) {
	c := container(t, database(t), azcosmos.ContainerProperties{}, "/tenant", "/user", "/session")
	ctx := t.Context()
	for i := range 24 {
		tenant, user, session := string(rune('a'+i%2)), string(rune('m'+i%3)), string(rune('x'+i%2))
		_, err := c.CreateItem(ctx, pk(tenant, user, session), object{"id": string(rune('A' + i)), "tenant": tenant, "user": user, "session": session}.json(), nil)
		must(t, err)
	}
	read, err := c.ReadItem(ctx, pk("b", "n", "y"), "B", nil)
	must(t, err)
	if parse(t, read.Value)["user"] != "n" {
		t.Errorf("read %s", read.Value)
	}
	_, err = c.ReadItem(ctx, pk("b", "n", "x"), "B", nil)
	refused(t, err, http.StatusNotFound)
	_, err = c.ReadItem(ctx, pk("b", "n"), "B", nil)
	refused(t, err, http.StatusBadRequest)
	for _, test := range []struct {
		name string
		key  azcosmos.PartitionKey
		want int
	}{
		{"whole key", pk("a", "m", "x"), 4}, {"two levels", pk("a", "m"), 4}, {"one level", pk("b"), 12}, {"all", pk(), 24}, {"none there", pk("z"), 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := query(t, c, test.key, "SELECT * FROM c", 5); len(got) != test.want {
				t.Errorf("%d items, want %d", len(got), test.want)
			}
		})
	}
	got, err := c.ReadManyItems(ctx, []azcosmos.ItemIdentity{{ID: "B", PartitionKey: pk("b", "n", "y")}, {ID: "A", PartitionKey: pk("a", "m", "x")}}, nil)
	must(t, err)
	if len(got.Items) != 2 {
		t.Errorf("%d items by their keys, want 2", len(got.Items))
	}
	if all := strings.Fields(follow(t, c, azcosmos.ChangeFeedOptions{}).rest()); len(all) != 24 {
		t.Errorf("the change feed shows %d items, want 24", len(all))
	}
}
