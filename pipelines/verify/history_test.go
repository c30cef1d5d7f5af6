package verify_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/verify"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// TestHistory_KnowsEveryItemAtEveryPlace reads a partition page by page while few
// items are created, replaced, patched and deleted by many. Each change that is
// shown must replace exactly what was known of its item.
func TestHistory_KnowsEveryItemAtEveryPlace(t *testing.T) {
	s := storetest.Start(t)
	info, err := s.Client.Catalog().Create(t.Context(), "default", "thing", store.ContainerSpec{PartitionKey: []string{"/k"}})
	if err != nil {
		t.Fatal(err)
	}
	thing, err := s.Client.Open(info)
	if err != nil {
		t.Fatal(err)
	}
	const keys, ids = 4, 6
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const writers = 8
	done := make(chan error, writers)
	for w := range writers {
		go func() {
			rng := rand.New(rand.NewPCG(7, uint64(w)))
			for i := 0; ctx.Err() == nil; i++ {
				k, id := fmt.Sprint("k", rng.IntN(keys)), fmt.Sprint("i", rng.IntN(ids))
				key, err := feed.NewPartitionKey(k)
				if err == nil {
					switch rng.IntN(4) {
					case 0, 1:
						err = thing.Delete(ctx, key, id)
					case 2:
						_, err = thing.Patch(ctx, key, id, []document.Op{{Kind: "set", Path: "/n", Value: fmt.Append(nil, i)}})
					default:
						_, err = thing.Upsert(ctx, fmt.Appendf(nil, `{"id":%q,"k":%q,"n":%d}`, id, k, i))
					}
				}
				if err != nil && !errors.Is(err, store.ErrNotFound) && ctx.Err() == nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	v := verify.New(s.JS, nil, s.Client, verify.Config{})
	rounds, changes := 0, 0
	for begun := time.Now(); (time.Since(begun) < 3*time.Second || rounds < 10 || changes < 100) && time.Since(begun) < poll.Most && !t.Failed(); rounds++ {
		known := map[store.ItemRef]string{}
		err := v.History(t.Context(), thing, thing.Partitions()[0], 1+rounds%7,
			func(items []store.Item) error {
				for i := range items {
					ref := store.ItemRef{Key: items[i].Key, ID: items[i].ID}
					if known[ref] != "" {
						t.Errorf("round %d: %s is on two pages", rounds, ref)
					}
					known[ref] = string(items[i].Body)
				}
				return nil
			},
			func(at feed.Position, ch *feed.Change) error {
				changes++
				ref := store.ItemRef{Key: ch.Key, ID: ch.ID}
				before, err := ch.BeforeBody()
				if err != nil {
					return err
				}
				if known[ref] != string(before) {
					t.Errorf("round %d: the %s of %s at %s replaces %q, known is %q", rounds, ch.Op, ref, at, before, known[ref])
				}
				known[ref] = string(ch.After)
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	for range writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if rounds < 10 || changes < 100 {
		t.Errorf("%d rounds saw %d changes only", rounds, changes)
	}
	t.Logf("%d rounds, %d changes", rounds, changes)
}
