package store_test

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

// TestCursor_IsTheEnginesItemKey holds that pages can be told apart by the items in
// them: a cursor made outside the owner is the one that a scan returns.
func TestCursor_IsTheEnginesItemKey(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		components := make([]any, 1+rng.IntN(3))
		for i := range components {
			components[i] = []any{nil, true, "a\x00b", string(rune('a' + rng.IntN(26))), rng.IntN(1000), feed.Missing}[rng.IntN(6)]
		}
		key, err := feed.NewPartitionKey(components...)
		if err != nil {
			t.Fatal(err)
		}
		ref := store.ItemRef{Key: key, ID: string(rune('a' + rng.IntN(26)))}
		got := store.AppendCursor(nil, ref.Key, ref.ID)
		if want := engine.ItemKey(ref.Key, ref.ID); !bytes.Equal(got, want) {
			t.Fatalf("cursor of %s is %x, the engine's %x", ref, got, want)
		}
	}
}
