package feed_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/cmd/millrace/webstore"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
)

// orders is a commit of n orders of the WebStore as an owner writes them that counts them in
// the same transaction: the order, the customer with its new count, and the records of the
// count. hot of them, the first ones, are of one customer.
func orders(tb testing.TB, n, hot int) *feed.Commit {
	tb.Helper()
	shop := webstore.New(webstore.Scale(1, 0.1))
	c := &feed.Commit{ID: feed.NewCommitID(), Log: feed.NewLogID(), Owner: "node-1/2", Epoch: 4, Time: 1_700_000_000_000}
	for i := range n {
		of := 1
		if i >= hot {
			of = 2 + i
		}
		customer := shop.Customer(of)
		customer.SalesOrderCount = i + 1
		key, err := feed.NewPartitionKey(customer.ID)
		if err != nil {
			tb.Fatal(err)
		}
		after := webstore.JSON(customer)
		// A customer has one order at least; the hot one repeats its own under new ids.
		mine := shop.Orders(of)
		order := webstore.Order{ID: fmt.Sprintf("order-%032d", i), Type: "salesOrder", CustomerID: customer.ID}
		if len(mine) > 0 {
			id := order.ID
			order = mine[i%len(mine)]
			order.ID = id
		}
		c.Transactions = append(c.Transactions, feed.Transaction{
			TraceParent: fmt.Sprintf("00-%032x-%016x-01", i*7919, i*104729),
			Folds: []feed.Fold{{Pipeline: "customer-totals", Generation: 1, Records: []feed.Record{
				{Key: []byte(customer.ID), Value: fmt.Appendf(nil, "%016d", i)},
			}}},
			Changes: []feed.Change{
				{Op: feed.OpCreate, Key: key, ID: order.ID, After: webstore.JSON(order), Modified: c.Time, Written: 78},
				{
					Op: feed.OpReplace, Key: key, ID: customer.ID, After: after,
					Undo: []document.Splice{{Path: "/salesOrderCount", Offset: uint32(len(after) - 2), Len: 1, Old: []byte("0")}},
					Prev: feed.Position{LSN: 77, Index: uint32(i)}, PrevModified: c.Time - 5000, Modified: c.Time - 5000, Written: 77,
				},
			},
		})
	}
	return c
}
