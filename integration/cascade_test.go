package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// read returns an item as plain values, nil if it is not there.
func (w *cascadeWorld) read(c *store.Container, id string, key ...any) map[string]any {
	w.t.Helper()
	item, err := c.Read(w.t.Context(), keyOf(w.t, key...), id)
	if gone(err) != nil {
		w.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	var v map[string]any
	if err := json.Unmarshal(item.Body, &v); err != nil {
		w.t.Fatal(err)
	}
	return v
}

type object = map[string]any

// Several fields, at nested places, for items that where selects; a field that
// its source does not have goes from the copies.
func TestCascade_NestedFieldsAndWhere(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	person := w.container("person", store.ContainerSpec{PartitionKey: []string{"/region", "/kind"}})
	order := w.container("order", store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: 2, Indexes: []string{"/by/person/id"}})
	k := w.start([]cascade.Config{{
		Pipeline: "people", Generation: 1, Source: person, SourceWhere: `kind = "customer" AND NOT IS_DEFINED(closed)`,
		Target: order, TargetWhere: `state IN ("new", "paid")`,
		Match: []cascade.Pair{{Target: "by.person.id", Source: "id"}, {Target: "by.region", Source: "region"}},
		Set:   []cascade.Pair{{Target: "by.person.name", Source: "name.last"}, {Target: "by.phone", Source: "phones[0].number"}},
	}})
	w.put(person, object{"id": "7", "region": 1, "kind": "customer", "name": object{"last": "Ek"}, "phones": []any{object{"number": "555"}}})
	for i, state := range []string{"new", "paid", "shipped"} {
		w.put(order, object{"id": state, "state": state, "n": i, "by": object{"region": 1.0, "person": object{"id": "7"}}})
	}
	w.put(order, object{"id": "other", "state": "new", "by": object{"region": 2, "person": object{"id": "7"}}})
	w.Quiet(k)
	check := func(when string, want map[string]any) {
		t.Helper()
		got := map[string]any{}
		for id := range want {
			got[id] = w.read(order, id, id)["by"]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	untouched := object{"region": 1.0, "person": object{"id": "7"}}
	dangling := object{"region": 2.0, "person": object{"id": "7"}}
	filled := object{"region": 1.0, "person": object{"id": "7", "name": "Ek"}, "phone": "555"}
	check("filled", object{"new": filled, "paid": filled, "shipped": untouched, "other": dangling})

	w.put(person, object{"id": "7", "region": 1, "kind": "customer", "name": object{"last": "Öst"}})
	w.Quiet(k)
	renamed := object{"region": 1.0, "person": object{"id": "7", "name": "Öst"}}
	check("renamed, without a phone", object{"new": renamed, "paid": renamed, "shipped": untouched, "other": dangling})

	// An item that begins to be selected is checked.
	w.put(order, object{"id": "shipped", "state": "new", "by": untouched})
	w.Quiet(k)
	check("selected later", object{"shipped": renamed})

	// A source that where selects no more is none, and its copies are kept.
	w.put(person, object{"id": "7", "region": 1, "kind": "customer", "name": object{"last": "Å"}, "closed": true})
	w.Quiet(k)
	check("closed", object{"new": renamed})
}

// What becomes of copies when their source is gone.
func TestCascade_OnSourceDelete(t *testing.T) {
	t.Parallel()
	for action, want := range map[cascade.OnSourceDelete]object{
		cascade.Keep:   {"id": "P", "categoryId": "1", "categoryName": "A"},
		cascade.Clear:  {"id": "P", "categoryId": "1"},
		cascade.Delete: nil,
	} {
		for name, vanish := range map[string]func(*cascadeWorld, *store.Container) error{
			"deleted": func(w *cascadeWorld, meta *store.Container) error {
				return meta.Delete(t.Context(), keyOf(t, "category"), "1")
			},
			"no category any more": func(w *cascadeWorld, meta *store.Container) error {
				return put(t.Context(), meta, object{"id": "1", "type": "category", "name": "A", "hidden": true})
			},
		} {
			t.Run(string(action)+", "+name, func(t *testing.T) {
				t.Parallel()
				w := newCascadeWorld(t)
				meta, product := w.webstore()
				cfg := categoryNames(meta, product)
				cfg.SourceWhere += " AND NOT IS_DEFINED(hidden)"
				cfg.OnSourceDelete = action
				k := w.start([]cascade.Config{cfg})
				w.category(meta, "1", "A")
				w.put(product, productItem{ID: "P", CategoryID: "1"})
				w.Quiet(k)
				if err := vanish(w, meta); err != nil {
					t.Fatal(err)
				}
				w.Quiet(k)
				if diff := cmp.Diff(want, w.read(product, "P", "1")); diff != "" {
					t.Errorf("the copy (-want +got):\n%s", diff)
				}
				if action == cascade.Delete {
					return
				}
				w.category(meta, "1", "Again")
				w.Quiet(k)
				if got := w.product(product, "1", "P").CategoryName; got != "Again" {
					t.Errorf("made again, the source has copy %q", got)
				}
			})
		}
	}
}

// An item that cannot take its copy goes to the dead letters, and the others are
// set: by a fan-out, and by a check.
func TestCascade_AnItemThatRefuses(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.category(meta, "1", "A")
	cfg := categoryNames(meta, product)
	k := w.start([]cascade.Config{cfg})
	full := productItem{ID: "full", CategoryID: "1", CategoryName: "A"}
	body, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	pad := strings.Repeat("x", store.ItemBytesMax-len(body)-len(`,"pad":""`))
	for i := range 20 {
		w.put(product, productItem{ID: fmt.Sprint(i), CategoryID: "1", CategoryName: "A"})
	}
	w.put(product, object{"id": "full", "categoryId": "1", "categoryName": "A", "pad": pad})
	w.Quiet(k)
	w.category(meta, "1", "A longer name")
	w.Quiet(k)
	for i := range 20 {
		if got := w.product(product, "1", fmt.Sprint(i)).CategoryName; got != "A longer name" {
			t.Errorf("item %d has %q", i, got)
		}
	}
	deadLetters, err := w.DeadLetters.List(t.Context(), cfg.Pipeline, 10)
	if err != nil || len(deadLetters) != 1 {
		t.Fatalf("dead letters after the fan-out: %+v, %v", deadLetters, err)
	}
	if l := deadLetters[0]; l.Item != `["category"]/1` || l.Target != `["1"]/full` || l.Status != int(store.StatusTooLarge) || l.Reason == "" || l.Role != processors.RoleSource {
		t.Errorf("dead letter %+v", l)
	}
	w.put(product, object{"id": "full", "categoryId": "1", "pad": pad})
	w.put(product, productItem{ID: "next", CategoryID: "1"})
	w.Quiet(k)
	if got := w.product(product, "1", "next").CategoryName; got != "A longer name" {
		t.Errorf("behind the item that refuses, another has %q", got)
	}
	deadLetters, err = w.DeadLetters.List(t.Context(), cfg.Pipeline, 10)
	if err != nil || len(deadLetters) != 2 || deadLetters[1].Target != `["1"]/full` || deadLetters[1].Role != processors.RoleTarget {
		t.Fatalf("dead letters after the check: %+v, %v", deadLetters, err)
	}

	// A retry that fails says why; when there is room, both are done and gone.
	retry := func() {
		for i := range deadLetters {
			if err := w.DeadLetters.Retry(t.Context(), cfg.Pipeline, deadLetters[i].ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	retry()
	poll.Until(t, func() error {
		now, err := w.DeadLetters.List(t.Context(), cfg.Pipeline, 10)
		if err != nil || len(now) != 2 {
			return fmt.Errorf("dead letters %+v, %w", now, err)
		}
		for i := range now {
			if !now[i].Retry.IsZero() || now[i].Attempts == 0 {
				return errors.New("a retry was not tried")
			}
		}
		return nil
	})
	w.put(product, object{"id": "full", "categoryId": "1", "pad": "x"})
	retry()
	poll.Until(t, func() error {
		now, err := w.DeadLetters.List(t.Context(), cfg.Pipeline, 10)
		return poll.Unless(err == nil && len(now) == 0, fmt.Sprintf("dead letters %+v, %v", now, err))
	})
}

// A fan-out that cannot succeed is parked with a dead letter, counts as open,
// also for the next worker, and is taken up when its source changes again.
func TestCascade_AParkedFanOut(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.put(product, productItem{ID: "P", CategoryID: "1", Tags: []tagItem{{"T", "A"}}})
	cfg := tagNames(meta, product)
	k := w.start([]cascade.Config{cfg}, processors.RoleSource)
	k.Tap.Refuse(func(r *store.Request) *store.Error {
		if r.PatchMany == nil || r.PatchMany.Source != `["tag"]/T` {
			return nil
		}
		return store.Refuse(store.StatusBadRequest, "not this one")
	})
	w.tag(meta, "T", "B")
	w.tag(meta, "U", "B")
	parked := func() {
		t.Helper()
		poll.Until(t, func() error {
			var jobs []processors.Job
			for _, a := range k.Host.Activities() {
				jobs = append(jobs, a.Checkpoint.Jobs...)
			}
			return poll.Unless(len(jobs) == 1 && jobs[0].Parked && jobs[0].Source == `["tag"]/T`, fmt.Sprintf("%+v", jobs))
		})
	}
	parked()
	deadLetters, err := w.DeadLetters.List(t.Context(), cfg.Pipeline, 10)
	if err != nil || len(deadLetters) != 1 || deadLetters[0].Item != `["tag"]/T` || deadLetters[0].Status != int(store.StatusBadRequest) {
		t.Fatalf("dead letters %+v, %v", deadLetters, err)
	}
	k.Stop()
	k = w.start([]cascade.Config{cfg}, processors.RoleSource)
	parked()
	w.tag(meta, "T", "C")
	w.Quiet(k)
	if got := w.product(product, "1", "P").Tags[0].Name; got != "C" {
		t.Errorf("the copy is %q, want C", got)
	}
}

// An outage of any length, and one other error behind it, does not give a fan-out up.
func TestCascade_AnOutageGivesNoFanOutUp(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.put(product, productItem{ID: "P", CategoryID: "1", Tags: []tagItem{{"T", "A"}}})
	cfg := tagNames(meta, product)
	k := w.start([]cascade.Config{cfg}, processors.RoleSource)
	partition := product.PartitionFor(keyOf(t, "1"))
	var pages atomic.Int32
	k.Tap.Refuse(func(r *store.Request) *store.Error {
		if r.PatchMany == nil || r.Partition != partition {
			return nil
		}
		switch n := pages.Add(1); {
		case n <= processors.AttemptsMax+2:
			return &store.Error{Status: store.StatusUnavailable, Message: "no owner", RetryAfter: time.Millisecond}
		case n == processors.AttemptsMax+3:
			return store.Refuse(store.StatusInternal, "who knows")
		}
		return nil
	})
	w.tag(meta, "T", "B")
	poll.Until(t, func() error {
		for _, a := range k.Host.Activities() {
			if jobs := a.Checkpoint.Jobs; len(jobs) > 0 && jobs[0].Parked {
				t.Fatalf("it was given up: %+v", jobs[0])
			}
		}
		got := w.product(product, "1", "P").Tags[0].Name
		return poll.Unless(got == "B", "the copy is "+got)
	})
	if deadLetters, err := w.DeadLetters.List(t.Context(), cfg.Pipeline, 10); err != nil || len(deadLetters) != 0 {
		t.Errorf("dead letters %+v, %v", deadLetters, err)
	}
}

// An index that is not there yet is waited for, and status can tell why.
func TestCascade_WaitsForItsIndex(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta := w.container("productMeta", store.ContainerSpec{PartitionKey: []string{"/type"}})
	product := w.container("product", store.ContainerSpec{PartitionKey: []string{"/categoryId"}})
	w.put(product, productItem{ID: "P", CategoryID: "1", Tags: []tagItem{{"T", "A"}}})
	k := w.start([]cascade.Config{tagNames(meta, product)}, processors.RoleSource)
	w.tag(meta, "T", "B")
	poll.Until(t, func() error {
		for _, a := range k.Host.Activities() {
			for _, job := range a.Checkpoint.Jobs {
				if job.Attempts > 0 && strings.Contains(job.LastError, "/tags/*/id") {
					return nil
				}
			}
		}
		return errors.New("no fan-out says that it waits for the index")
	})
	if err := w.Catalog.WantIndex(t.Context(), "default", "product", "/tags/*/id"); err != nil {
		t.Fatal(err)
	}
	w.Quiet(k)
	if got := w.product(product, "1", "P").Tags[0].Name; got != "B" {
		t.Errorf("the copy is %q, want B", got)
	}
}
