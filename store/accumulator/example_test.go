package accumulator_test

import (
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/accumulator"
)

// An order is placed, changed and placed a second time; the customer's fields
// follow.
func ExampleRule_Add() {
	rule, err := accumulator.Compile(accumulator.Spec{
		SourceWhere: `type = "order"`,
		Match:       []accumulator.Pair{{Target: "id", Source: "customerId"}},
		Set: []accumulator.Field{
			{Path: "newest", Func: accumulator.Latest, N: 2, By: "date", Fields: []string{"id", "date"}},
			{Path: "orders", Func: accumulator.Count},
			{Path: "value", Func: accumulator.Sum, Expr: "price * quantity", Each: "details"},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	key, _ := feed.NewPartitionKey("anna")
	records, delta := accumulator.NewMemory(), rule.NewDelta()
	first := []byte(`{"id":"1","type":"order","customerId":"anna","date":"2024-05-01","details":[{"price":27.12,"quantity":3},{"price":0.1,"quantity":2}]}`)
	changed := []byte(`{"id":"1","type":"order","customerId":"anna","date":"2024-05-01","details":[{"price":27.12,"quantity":1}]}`)
	second := []byte(`{"id":"2","type":"order","customerId":"anna","date":"2024-06-01","details":[{"price":0.2,"quantity":1}]}`)

	rule.Fold(delta, key, "1", nil, first)
	rule.Fold(delta, key, "1", first, changed)
	rule.Fold(delta, key, "2", nil, second)
	for _, group := range delta.Groups() {
		state, err := rule.Add(records, group, delta.Share(group))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(group)
		for _, field := range state.Values() {
			fmt.Printf("%s = %s\n", field.Path, field.Value)
		}
	}
	// Output:
	// ["anna"]
	// newest = [{"id":"2","date":"2024-06-01"},{"id":"1","date":"2024-05-01"}]
	// orders = 2
	// value = 27.32
}
