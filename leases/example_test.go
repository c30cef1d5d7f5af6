package leases_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/leases"
)

func ExampleBalance() {
	members := []leases.Member{{Holder: "n1/abc"}, {Holder: "n2/def"}}
	held := []leases.Lease{
		{Resource: "orders/0", Owner: "n1/abc"},
		{Resource: "orders/1", Owner: "n1/abc"},
		{Resource: "orders/2", Owner: "n1/abc"},
		{Resource: "orders/3"},
	}
	for _, m := range members {
		d := leases.Balance(m.Holder, members, held)
		fmt.Println(m.Holder, "takes", d.Take, "and gives up", d.GiveUp)
	}
	// Output:
	// n1/abc takes [] and gives up [orders/0]
	// n2/def takes [orders/3] and gives up []
}

// A processor turns until its context ends, and saves what it finished.
func ExampleManager_Run() {
	var m *leases.Manager // from Open
	process := func(checkpoint []byte) []byte { return checkpoint }
	run := func(ctx context.Context) error {
		return m.Run(ctx, func(ctx context.Context, h *leases.Held) error {
			at := h.Checkpoint()
			for ctx.Err() == nil {
				h.Progress()
				at = process(at)
				// Trust outlives ctx while the process drains.
				if err := h.Save(h.Trust(), at); err != nil {
					return err
				}
			}
			return nil
		})
	}
	_ = run
}
