package sdk_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// object is an item as a test looks at it.
type object map[string]any

func (o object) json() []byte {
	data, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return data
}

func parse(t *testing.T, data []byte) object {
	t.Helper()
	var o object
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatalf("%v in %q", err, data)
	}
	return o
}

func pk(values ...any) azcosmos.PartitionKey {
	key := azcosmos.NewPartitionKey()
	for _, v := range values {
		switch v := v.(type) {
		case string:
			key = key.AppendString(v)
		case int:
			key = key.AppendNumber(float64(v))
		case float64:
			key = key.AppendNumber(v)
		case bool:
			key = key.AppendBool(v)
		case nil:
			key = key.AppendNull()
		}
	}
	return key
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused expects an error of the SDK's own type with a status.
func refused(t *testing.T, err error, status int) {
	t.Helper()
	var response *azcore.ResponseError
	switch {
	case err == nil:
		t.Errorf("no error, want %d", status)
	case !errors.As(err, &response):
		t.Errorf("%T %v is no azcore.ResponseError, want one of %d", err, err, status)
	case response.StatusCode != status || response.ErrorCode == "":
		t.Errorf("status %d and code %q, want %d and a code: %v", response.StatusCode, response.ErrorCode, status, err)
	}
}

func TestGo_DatabasesAndContainers(t *testing.T) {
	s, err := shared()
	must(t, err)
	client := s.client(t, masterKey, nil)
	db := newDatabase(t, client)
	read, err := db.Read(t.Context(), nil)
	must(t, err)
	if p := read.DatabaseProperties; p.ID != db.ID() || p.ResourceID == "" || p.ETag == nil || p.SelfLink == "" {
		t.Errorf("the database is %+v", p)
	}
	_, err = client.CreateDatabase(t.Context(), azcosmos.DatabaseProperties{ID: db.ID()}, nil)
	refused(t, err, http.StatusConflict)
	var names []string
	for pager := client.NewQueryDatabasesPager("SELECT * FROM root r WHERE r.id = @id", &azcosmos.QueryDatabasesOptions{
		QueryParameters: []azcosmos.QueryParameter{{Name: "@id", Value: db.ID()}},
	}); pager.More(); {
		page, err := pager.NextPage(t.Context())
		must(t, err)
		for _, d := range page.Databases {
			names = append(names, d.ID)
		}
	}
	if !slices.Equal(names, []string{db.ID()}) {
		t.Errorf("the query for %s finds %v", db.ID(), names)
	}

	ttl := int32(3600)
	things := container(t, db, azcosmos.ContainerProperties{
		ID: "things", DefaultTimeToLive: &ttl, UniqueKeyPolicy: &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/email"}}}},
	}, "/tenant", "/user")
	got, err := things.Read(t.Context(), nil)
	must(t, err)
	p := got.ContainerProperties
	if p.PartitionKeyDefinition.Version != 2 || p.PartitionKeyDefinition.Kind != azcosmos.PartitionKeyKindMultiHash ||
		!slices.Equal(p.PartitionKeyDefinition.Paths, []string{"/tenant", "/user"}) || p.DefaultTimeToLive == nil || *p.DefaultTimeToLive != 3600 ||
		p.UniqueKeyPolicy == nil || len(p.UniqueKeyPolicy.UniqueKeys) != 1 || p.ResourceID == "" {
		t.Errorf("the container is %+v", p)
	}
	*p.DefaultTimeToLive = -1
	_, err = things.Replace(t.Context(), *p, nil)
	must(t, err)
	got, err = things.Read(t.Context(), nil)
	must(t, err)
	if v := got.ContainerProperties.DefaultTimeToLive; v == nil || *v != -1 {
		t.Errorf("the time to live was not replaced: %v", v)
	}
	p.PartitionKeyDefinition.Paths = []string{"/other", "/user"}
	_, err = things.Replace(t.Context(), *p, nil)
	refused(t, err, http.StatusBadRequest)
	_, err = db.CreateContainer(t.Context(), azcosmos.ContainerProperties{ID: "things", PartitionKeyDefinition: p.PartitionKeyDefinition}, nil)
	refused(t, err, http.StatusConflict)

	container(t, db, azcosmos.ContainerProperties{ID: "others"}, "/pk")
	names = nil
	for pager := db.NewQueryContainersPager("SELECT * FROM c", nil); pager.More(); {
		page, err := pager.NextPage(t.Context())
		must(t, err)
		for _, c := range page.Containers {
			names = append(names, c.ID)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"others", "things"}) {
		t.Errorf("the database has %v", names)
	}
	_, err = things.Delete(t.Context(), nil)
	must(t, err)
	_, err = things.Read(t.Context(), nil)
	refused(t, err, http.StatusNotFound)
	_, err = db.Delete(t.Context(), nil)
	must(t, err)
	_, err = db.Read(t.Context(), nil)
	refused(t, err, http.StatusNotFound)
}

func TestGo_Items(t *testing.T) {
	c := container(t, database(t), azcosmos.ContainerProperties{}, "/pk")
	ctx := t.Context()
	content := &azcosmos.ItemOptions{EnableContentResponseOnWrite: true}
	for _, test := range []struct {
		name  string
		key   azcosmos.PartitionKey
		value any
		id    string
	}{
		{"text key", pk("a"), "a", "1"},
		{"same id under another key", pk("b"), "b", "1"},
		{"number key", pk(1), 1, "1"},
		{"the same number as text", pk("1"), "1", "1"},
		{"bool key", pk(true), true, "1"},
		{"null key", pk(nil), nil, "1"},
		{"empty text key", pk(""), "", "1"},
		{"non-ASCII key and id", pk("Zoë ☃"), "Zoë ☃", "é 'quoted' \"too\" + %41"},
	} {
		t.Run(test.name, func(t *testing.T) {
			item := object{"id": test.id, "pk": test.value, "name": test.name, "big": json.Number("9007199254740993")}
			created, err := c.CreateItem(ctx, test.key, item.json(), content)
			must(t, err)
			if created.ETag == "" || created.RequestCharge <= 0 || created.ActivityID == "" || created.SessionToken == nil || *created.SessionToken == "" {
				t.Errorf("the answer lacks something: %+v", created)
			}
			if body := parse(t, created.Value); body["name"] != test.name || body["_etag"] != string(created.ETag) || body["_ts"] == nil || body["_rid"] == nil {
				t.Errorf("created %s with etag %s", created.Value, created.ETag)
			}
			read, err := c.ReadItem(ctx, test.key, test.id, nil)
			must(t, err)
			if body := parse(t, read.Value); body["name"] != test.name || read.ETag != created.ETag {
				t.Errorf("read %s", read.Value)
			}
			if !strings.Contains(string(read.Value), "9007199254740993") {
				t.Errorf("an integer beyond 2^53 was rounded: %s", read.Value)
			}
			_, err = c.CreateItem(ctx, test.key, item.json(), nil)
			refused(t, err, http.StatusConflict)
			item["name"] = "new"
			replaced, err := c.ReplaceItem(ctx, test.key, test.id, item.json(), nil)
			must(t, err)
			if len(replaced.Value) != 0 || replaced.ETag == created.ETag || replaced.ETag == "" {
				t.Errorf("replaced without content: %q, etag %s", replaced.Value, replaced.ETag)
			}
			read, err = c.ReadItem(ctx, test.key, test.id, nil)
			must(t, err)
			if parse(t, read.Value)["name"] != "new" {
				t.Errorf("read after replace: %s", read.Value)
			}
		})
	}
	// Each is an item of its own, and goes by itself.
	_, err := c.DeleteItem(ctx, pk(1), "1", nil)
	must(t, err)
	_, err = c.ReadItem(ctx, pk(1), "1", nil)
	refused(t, err, http.StatusNotFound)
	_, err = c.ReadItem(ctx, pk("1"), "1", nil)
	must(t, err)
	up, err := c.UpsertItem(ctx, pk("u"), object{"id": "1", "pk": "u"}.json(), nil)
	must(t, err)
	if up.RawResponse.StatusCode != http.StatusCreated {
		t.Errorf("an upsert that creates answers %d", up.RawResponse.StatusCode)
	}
	up, err = c.UpsertItem(ctx, pk("u"), object{"id": "1", "pk": "u", "n": 2}.json(), nil)
	must(t, err)
	if up.RawResponse.StatusCode != http.StatusOK {
		t.Errorf("an upsert that replaces answers %d", up.RawResponse.StatusCode)
	}
}

func TestGo_ConditionsOfETags(t *testing.T) {
	c := container(t, database(t), azcosmos.ContainerProperties{}, "/pk")
	ctx, key := t.Context(), pk("a")
	created, err := c.CreateItem(ctx, key, object{"id": "1", "pk": "a", "n": 1}.json(), nil)
	must(t, err)
	old := created.ETag
	replaced, err := c.ReplaceItem(ctx, key, "1", object{"id": "1", "pk": "a", "n": 2}.json(), &azcosmos.ItemOptions{IfMatchEtag: &old})
	must(t, err)
	stale := &azcosmos.ItemOptions{IfMatchEtag: &old}
	fresh := &azcosmos.ItemOptions{IfMatchEtag: &replaced.ETag}
	patch := azcosmos.PatchOperations{}
	patch.AppendSet("/n", 9)
	for _, test := range []struct {
		name string
		do   func(o *azcosmos.ItemOptions) error
	}{
		{"replace", func(o *azcosmos.ItemOptions) error {
			_, err := c.ReplaceItem(ctx, key, "1", object{"id": "1", "pk": "a", "n": 9}.json(), o)
			return err
		}},
		{"upsert", func(o *azcosmos.ItemOptions) error {
			_, err := c.UpsertItem(ctx, key, object{"id": "1", "pk": "a", "n": 9}.json(), o)
			return err
		}},
		{"patch", func(o *azcosmos.ItemOptions) error { _, err := c.PatchItem(ctx, key, "1", patch, o); return err }},
		{"delete", func(o *azcosmos.ItemOptions) error { _, err := c.DeleteItem(ctx, key, "1", o); return err }},
	} {
		t.Run(test.name, func(t *testing.T) { refused(t, test.do(stale), http.StatusPreconditionFailed) })
	}
	read, err := c.ReadItem(ctx, key, "1", nil)
	must(t, err)
	if read.ETag != replaced.ETag || parse(t, read.Value)["n"] != 2.0 {
		t.Errorf("a refused write changed the item: %s", read.Value)
	}
	_, err = c.DeleteItem(ctx, key, "1", fresh)
	must(t, err)
}

func TestGo_Patch(t *testing.T) {
	c := container(t, database(t), azcosmos.ContainerProperties{}, "/pk")
	ctx, key := t.Context(), pk("a")
	start := object{"id": "1", "pk": "a", "n": 5, "tags": []any{"x", "y"}, "deep": object{"a~b": 1, "c/d": 2}, "gone": true}
	for _, test := range []struct {
		name   string
		patch  func(p *azcosmos.PatchOperations)
		status int // 0: it is done
		want   func(o object) bool
	}{
		{"set, add, replace, remove, increment", func(p *azcosmos.PatchOperations) {
			p.AppendSet("/name", "n")
			p.AppendAdd("/tags/1", "between")
			p.AppendReplace("/deep/a~0b", 7)
			p.AppendRemove("/gone")
			p.AppendIncrement("/n", -2)
		}, 0, func(o object) bool {
			_, gone := o["gone"]
			return o["name"] == "n" && fmt.Sprint(o["tags"]) == "[x between y]" && fmt.Sprint(o["deep"]) == "map[a~b:7 c/d:2]" && o["n"] == 3.0 && !gone
		}},
		{"append to an array", func(p *azcosmos.PatchOperations) { p.AppendAdd("/tags/-", "z") }, 0, func(o object) bool { return fmt.Sprint(o["tags"]) == "[x y z]" }},
		{"increment what is not there", func(p *azcosmos.PatchOperations) { p.AppendIncrement("/m", 4) }, 0, func(o object) bool { return o["m"] == 4.0 }},
		{"a condition that holds", func(p *azcosmos.PatchOperations) {
			p.SetCondition("from c where c.n = 5 and ARRAY_LENGTH(c.tags) = 2")
			p.AppendSet("/n", 6)
		}, 0, func(o object) bool { return o["n"] == 6.0 }},
		{"a condition that does not", func(p *azcosmos.PatchOperations) {
			p.SetCondition("from c where c.n > 5")
			p.AppendSet("/n", 7)
		}, http.StatusPreconditionFailed, nil},
		{"replace of what is not there", func(p *azcosmos.PatchOperations) { p.AppendSet("/n", 7); p.AppendReplace("/none", 1) }, http.StatusBadRequest, nil},
		{"increment of a text", func(p *azcosmos.PatchOperations) { p.AppendIncrement("/pk", 1) }, http.StatusBadRequest, nil},
		{"the id", func(p *azcosmos.PatchOperations) { p.AppendSet("/id", "2") }, http.StatusBadRequest, nil},
		{"the partition key", func(p *azcosmos.PatchOperations) { p.AppendSet("/pk", "b") }, http.StatusBadRequest, nil},
		{"beyond an array", func(p *azcosmos.PatchOperations) { p.AppendAdd("/tags/9", 1) }, http.StatusBadRequest, nil},
		{"eleven operations", func(p *azcosmos.PatchOperations) {
			for range 11 {
				p.AppendIncrement("/n", 1)
			}
		}, http.StatusBadRequest, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			before, err := c.UpsertItem(ctx, key, start.json(), nil)
			must(t, err)
			var p azcosmos.PatchOperations
			test.patch(&p)
			patched, err := c.PatchItem(ctx, key, "1", p, &azcosmos.ItemOptions{EnableContentResponseOnWrite: true})
			if test.status != 0 {
				refused(t, err, test.status)
				read, err := c.ReadItem(ctx, key, "1", nil)
				must(t, err)
				if read.ETag != before.ETag {
					t.Errorf("a refused patch changed the item: %s", read.Value)
				}
				return
			}
			must(t, err)
			if !test.want(parse(t, patched.Value)) {
				t.Errorf("the patch leaves %s", patched.Value)
			}
		})
	}
	var p azcosmos.PatchOperations
	p.AppendSet("/n", 1)
	_, err := c.PatchItem(ctx, key, "none", p, nil)
	refused(t, err, http.StatusNotFound)
}

func TestThroughput(t *testing.T) {
	c := container(t, database(t), azcosmos.ContainerProperties{}, "/pk")
	manual := azcosmos.NewManualThroughputProperties(600)
	_, err := c.ReplaceThroughput(t.Context(), manual, nil)
	must(t, err)
	read, err := c.ReadThroughput(t.Context(), nil)
	must(t, err)
	if n, ok := read.ThroughputProperties.ManualThroughput(); !ok || n != 600 {
		t.Errorf("throughput %d %t, want 600", n, ok)
	}
	_, err = c.ReplaceThroughput(t.Context(), azcosmos.NewAutoscaleThroughputProperties(3000), nil)
	must(t, err)
	read, err = c.ReadThroughput(t.Context(), nil)
	must(t, err)
	if n, ok := read.ThroughputProperties.AutoscaleMaxThroughput(); !ok || n != 3000 {
		t.Errorf("the most of autoscale %d %t, want 3000", n, ok)
	}
}

// The throughput of a database is its own, and its containers have none unless they were made with some.
func TestGo_ThroughputOfADatabase(t *testing.T) {
	s, err := shared()
	must(t, err)
	client, id := s.client(t, masterKey, nil), "shared"+newDatabase(t, s.client(t, masterKey, nil)).ID()
	scaled := azcosmos.NewAutoscaleThroughputPropertiesWithIncrement(5000, 10)
	_, err = client.CreateDatabase(t.Context(), azcosmos.DatabaseProperties{ID: id}, &azcosmos.CreateDatabaseOptions{ThroughputProperties: &scaled})
	must(t, err)
	db, err := client.NewDatabase(id)
	must(t, err)
	read, err := db.ReadThroughput(t.Context(), nil)
	must(t, err)
	most, _ := read.ThroughputProperties.AutoscaleMaxThroughput()
	increment, _ := read.ThroughputProperties.AutoscaleIncrement()
	if most != 5000 || increment != 10 || read.MinThroughput == nil || *read.MinThroughput != 1000 {
		t.Errorf("autoscale to %d by %d, at least %v", most, increment, read.MinThroughput)
	}
	_, err = db.ReplaceThroughput(t.Context(), azcosmos.NewAutoscaleThroughputProperties(6000), nil)
	must(t, err)
	c := container(t, db, azcosmos.ContainerProperties{}, "/pk")
	if _, err := c.ReadThroughput(t.Context(), nil); err == nil {
		t.Error("a container in a database with throughput has some of its own")
	}
}
