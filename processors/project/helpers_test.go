package project_test

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
	"github.com/millrace/millrace/store"
)

// described returns a container that is described and not there.
func described(t testing.TB, name string, key ...string) *store.Container {
	t.Helper()
	info := store.ContainerInfo{Database: "default", Name: name, ID: "c7k2x4ab", Spec: store.ContainerSpec{PartitionKey: key, Partitions: 1}}
	for i, r := range feed.EvenRanges(1) {
		info.Partitions = append(info.Partitions, store.PartitionInfo{Number: uint32(i), Range: r})
	}
	c, err := store.NewClient(nil, nil, store.ClientConfig{}).Open(info)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// analytics is the projection of the design: customers, orders and order items.
func analytics(t testing.TB) project.Config {
	t.Helper()
	typ := func(text string) project.Type {
		parsed, err := project.ParseType(text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	return project.Config{
		Pipeline: "analytics", Generation: 1, Source: described(t, "customer", "/customerId"), Sink: sinktest.NewMemory(sinktest.NewDisk(), false),
		Tables: []project.Table{
			{
				Name: "customers", Where: `type = "customer"`, Key: []string{"id"},
				Columns: []project.Column{
					{Name: "id", Expr: "id"}, {Name: "name", Expr: `CONCAT(firstName, " ", lastName)`}, {Name: "city", Expr: "addresses[0].city"},
				},
			},
			{
				Name: "orders", Where: `type = "salesOrder"`, Key: []string{"id"},
				Columns: []project.Column{
					{Name: "id", Expr: "id"}, {Name: "customerId", Expr: "customerId"}, {Name: "orderDate", Expr: "orderDate", Type: typ("timestamp")},
				},
			},
			{
				Name: "orderItems", Where: `type = "salesOrder"`, Each: "details", Key: []string{"orderId", "line"},
				Columns: []project.Column{
					{Name: "orderId", Expr: "item.id"},
					{Name: "line", Expr: "index", Type: typ("int64")},
					{Name: "sku", Expr: "sku"},
					{Name: "price", Expr: "price", Type: typ("decimal(12,2)")},
					{Name: "quantity", Expr: "quantity", Type: typ("int64")},
				},
			},
		},
	}
}

func compile(t testing.TB, cfg project.Config) *project.Projection {
	t.Helper()
	p, err := project.Compile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func key(t testing.TB, components ...any) feed.PartitionKey {
	t.Helper()
	k, err := feed.NewPartitionKey(components...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sortStrings(list []string) { slices.Sort(list) }

func ref(t testing.TB, k, id string) store.ItemRef {
	t.Helper()
	return store.ItemRef{Key: key(t, k), ID: id}
}
