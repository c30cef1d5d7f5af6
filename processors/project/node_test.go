package project_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
)

// node is a store in this process.
type node struct {
	*storetest.Store
	made atomic.Int64
}

func newNode(t testing.TB) *node {
	t.Helper()
	return &node{Store: storetest.Start(t)}
}

// container makes a container of its own.
func (n *node) container(t testing.TB, name string, partitions int, key ...string) *store.Container {
	t.Helper()
	name = fmt.Sprintf("%s-%d", name, n.made.Add(1))
	if _, err := n.Client.Catalog().Create(t.Context(), "default", name, store.ContainerSpec{PartitionKey: key, Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	c, err := n.Client.Container(t.Context(), "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
