package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/cascade"
	"github.com/millrace/millrace/store"
)

// noAnswer is what a worker is told whose connection is cut.
func noAnswer() *store.Response {
	return &store.Response{Err: &store.Error{Status: store.StatusUnavailable, Message: "no answer", RetryAfter: 1}}
}

// loseRefusals loses the first answer that tells of refused items. The channel is closed when
// that has happened. With cut the worker gets no answer any more from then on, and none of its
// requests arrives.
func loseRefusals(k *storetest.Worker, cut bool) (lost <-chan struct{}) {
	happened := make(chan struct{})
	var once sync.Once
	var gone atomic.Bool
	k.Tap.Refuse(func(*store.Request) *store.Error {
		if gone.Load() {
			return noAnswer().Err
		}
		return nil
	})
	k.Tap.Answer(func(_ *store.Request, resp *store.Response) *store.Response {
		if gone.Load() {
			return noAnswer()
		}
		if resp.PatchMany != nil && len(resp.PatchMany.Refused) > 0 {
			once.Do(func() {
				resp = noAnswer()
				gone.Store(cut)
				close(happened)
			})
		}
		return resp
	})
	return happened
}

// roomless is an item of category 1 that has no room for a longer name.
func roomless(t *testing.T, id string) object {
	t.Helper()
	item := object{"id": id, "categoryId": "1", "categoryName": "A", "pad": ""}
	body, err := json.Marshal(item)
	if err != nil {
		t.Fatal(err)
	}
	item["pad"] = strings.Repeat("x", store.ItemBytesMax-len(body))
	return item
}

// A page commits, and the answer that names the items which refused their copies is lost, or
// whoever got it dies before it has written the dead letters. What is not applied has a dead
// letter all the same, and one alone.
func TestI6_RefusalsOutliveTheirAnswer(t *testing.T) {
	t.Parallel()
	type scene struct {
		*cascadeWorld
		cfg     []cascade.Config
		product *store.Container
		before  map[processors.Resource][]byte // checkpoints before the rename
		rename  func()
	}
	// jobSaved waits until a checkpoint holds the fan-out.
	jobSaved := func(s *scene) {
		poll.Until(s.t, func() error {
			for r, data := range s.Checkpoints() {
				cp, err := processors.DecodeCheckpoint(data)
				if err != nil {
					return err
				}
				if r.Role == processors.RoleSource && len(cp.Jobs) > 0 {
					return nil
				}
			}
			return errors.New("no checkpoint holds the fan-out")
		})
	}
	for name, run := range map[string]func(s *scene, k *storetest.Worker) *storetest.Worker{
		"the connection is cut": func(s *scene, k *storetest.Worker) *storetest.Worker {
			lost := loseRefusals(k, false)
			s.rename()
			<-lost
			return k
		},
		"the worker dies, and its checkpoint holds the fan-out": func(s *scene, k *storetest.Worker) *storetest.Worker {
			lost := loseRefusals(k, true)
			s.rename()
			<-lost
			jobSaved(s)
			k.Crash()
			return s.start(s.cfg, processors.RoleSource)
		},
		"the worker dies, and its checkpoint lies before the change": func(s *scene, k *storetest.Worker) *storetest.Worker {
			lost := loseRefusals(k, true)
			s.rename()
			<-lost
			k.Crash()
			s.SetBack(s.before)
			return s.start(s.cfg, processors.RoleSource)
		},
		"the worker dies, and its successor does too": func(s *scene, k *storetest.Worker) *storetest.Worker {
			lost := loseRefusals(k, true)
			s.rename()
			<-lost
			k.Crash()
			s.SetBack(s.before)
			// The successor comes as far as to look at the items.
			second := s.Worker()
			there, _ := second.Tap.Hold(func(r *store.Request) bool { return r.Scan != nil && r.Partition.Container == s.product.Info().ID })
			s.startOn(second, s.cfg, processors.RoleSource)
			<-there
			second.Crash()
			return s.start(s.cfg, processors.RoleSource)
		},
		"a page comes late, of a worker that has lost its lease": func(s *scene, k *storetest.Worker) *storetest.Worker {
			page := func(r *store.Request) bool {
				return r.PatchMany != nil && r.Partition == s.product.PartitionFor(keyOf(s.t, "1"))
			}
			there, let := k.Tap.Hold(page)
			lost := loseRefusals(k, true)
			s.rename()
			<-there
			successor := s.Worker()
			next, goOn := successor.Tap.Hold(page)
			s.startOn(successor, s.cfg, processors.RoleSource)
			<-next
			let()
			<-lost
			k.Crash()
			goOn()
			return successor
		},
	} {
		for pages, items := range map[string]int{"one page": 3, "several pages": 40} {
			t.Run(name+", "+pages, func(t *testing.T) {
				t.Parallel()
				w := newCascadeWorld(t)
				meta, product := w.webstore()
				w.category(meta, "1", "A")
				for i := range items {
					w.put(product, productItem{ID: fmt.Sprintf("%03d", i), CategoryID: "1", CategoryName: "A"})
				}
				want := []string{`["1"]/001x`}
				w.put(product, roomless(t, "001x"))
				if items > 20 {
					want = append(want, `["1"]/035x`)
					w.put(product, roomless(t, "035x"))
				}
				cfg := categoryNames(meta, product)
				cfg.FanOutPageItems = 10
				s := &scene{cascadeWorld: w, cfg: []cascade.Config{cfg}, product: product}
				k := w.start(s.cfg, processors.RoleSource)
				w.Quiet(k)
				s.before = w.Checkpoints()
				s.rename = func() { w.category(meta, "1", "A longer name") }
				k = run(s, k)
				w.Quiet(k)
				for i := range items {
					if got := w.product(product, "1", fmt.Sprintf("%03d", i)).CategoryName; got != "A longer name" {
						t.Errorf("item %d has %q", i, got)
					}
				}
				deadLetters, err := w.DeadLetters.List(t.Context(), cfg.Pipeline, 10)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, l := range deadLetters {
					got = append(got, l.Target)
					if l.Item != `["category"]/1` || l.Status != int(store.StatusTooLarge) || l.Reason == "" || l.Role != processors.RoleSource {
						t.Errorf("dead letter %+v", l)
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("targets of dead letters (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// The repairs of a fan-out in doubt are of a part of its term: a partition forgets where the fan-outs of a
// producer are finished when that producer repairs, and a late page would set an older value.
func TestI5_AFanOutRepairsAsAPart(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.category(meta, "1", "A")
	w.put(product, roomless(t, "x"))
	k := w.Worker()
	var repairs, own atomic.Int32
	k.Tap.OnRequest(func(r *store.Request) {
		if r.Repair == nil {
			return
		}
		repairs.Add(1)
		if _, _, part := r.Repair.Producer.Parent(); !part {
			own.Add(1)
		}
	})
	lost := loseRefusals(k, false)
	w.startOn(k, []cascade.Config{categoryNames(meta, product)}, processors.RoleSource)
	w.Quiet(k)
	w.category(meta, "1", "A longer name")
	<-lost
	w.Quiet(k)
	if repairs.Load() == 0 || own.Load() > 0 {
		t.Errorf("%d repairs, %d of them of the fan-outs' producer", repairs.Load(), own.Load())
	}
}

// What was there is checked page by page, and all repairs of a page may be too many for one transaction, since aggregates
// add to it: then fewer are asked for at once, and one that is too large alone has a dead letter.
func TestI6_RepairsThatAreTooLargeTogetherAreHalved(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	w.category(meta, "1", "A")
	for i := range 20 {
		w.put(product, productItem{ID: fmt.Sprintf("%03d", i), CategoryID: "1", CategoryName: "A"})
	}
	cfg := categoryNames(meta, product)
	k := w.start([]cascade.Config{cfg}, processors.RoleTarget)
	w.Quiet(k)
	k.Stop()
	w.category(meta, "1", "B") // nobody fans it out, so the walk alone finds it
	cfg.Backfill = processors.BackfillRequest{Number: 1}
	k = w.Worker()
	k.Tap.Refuse(func(r *store.Request) *store.Error {
		large := func(item store.RepairItem) bool { return item.Ref.ID == "007" }
		if r.Repair != nil && (len(r.Repair.Items) > 3 || slices.ContainsFunc(r.Repair.Items, large)) {
			return store.ErrTooLarge
		}
		return nil
	})
	w.startOn(k, []cascade.Config{cfg}, processors.RoleTarget)
	poll.Until(t, func() error {
		for i := range 20 {
			want := "B"
			if i == 7 {
				want = "A"
			}
			if got := w.product(product, "1", fmt.Sprintf("%03d", i)).CategoryName; got != want {
				return fmt.Errorf("item %d has %q", i, got)
			}
		}
		letters, err := w.DeadLetters.List(t.Context(), cfg.Pipeline, 10)
		return poll.Unless(err == nil && len(letters) == 1 && letters[0].Target == `["1"]/007`, fmt.Sprintf("dead letters %+v, %v", letters, err))
	})
}

// A fan-out of which every page was answered reads no item of the target: what refused its copy
// was told. So do those that a worker finds when it begins, unless another term may have sent pages.
func TestI6_FanOutsInNoDoubtReadNothing(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"of a new lease": false, "of a lease that had a term before": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newCascadeWorld(t)
			meta, product := w.webstore()
			for i := range 40 {
				w.put(product, productItem{ID: fmt.Sprintf("%03d", i), CategoryID: "1", CategoryName: "A"})
			}
			w.put(product, productItem{ID: "P", CategoryID: "2", CategoryName: "A"})
			w.category(meta, "1", "B") // the backlog
			w.category(meta, "2", "B")
			k := w.Worker()
			k.Again = again
			var read atomic.Int32
			k.Tap.OnRequest(func(r *store.Request) {
				if r.Scan != nil && r.Partition.Container == product.Info().ID {
					read.Add(1)
				}
			})
			cfg := categoryNames(meta, product)
			cfg.FanOutPageItems = 10
			w.startOn(k, []cascade.Config{cfg}, processors.RoleSource)
			w.Quiet(k)
			if n := read.Swap(0); n > 0 != again {
				t.Errorf("%d scans for the backlog", n)
			}
			w.category(meta, "1", "C")
			w.Quiet(k)
			if got := w.product(product, "1", "039").CategoryName; got != "C" {
				t.Errorf("the copy is %q, want C", got)
			}
			if n := read.Load(); n != 0 {
				t.Errorf("%d scans of a fan-out whose pages were all answered", n)
			}
		})
	}
}

// An item that has no room refuses each rename. It has one dead letter for each source whose copy it lacks, of
// the last rename: by that of the one alone nobody who is set back would find the other. A retry brings both.
func TestI6_OneDeadLetterForEachSourceOfAnItemThatRefuses(t *testing.T) {
	t.Parallel()
	w := newCascadeWorld(t)
	meta, product := w.webstore()
	cfg := tagNames(meta, product)
	item := object{"id": "full", "categoryId": "1", "tags": []tagItem{{"T", "A"}, {"U", "A"}}, "pad": ""}
	body, err := json.Marshal(item)
	if err != nil {
		t.Fatal(err)
	}
	item["pad"] = strings.Repeat("x", store.ItemBytesMax-len(body))
	w.put(product, item)
	k := w.start([]cascade.Config{cfg}, processors.RoleSource)
	want := map[string]string{}
	for i := range 4 {
		for _, tag := range []string{"T", "U"} {
			w.tag(meta, tag, fmt.Sprint("A longer name ", i))
			w.Quiet(k)
			source, err := meta.Read(t.Context(), keyOf(t, "tag"), tag)
			if err != nil {
				t.Fatal(err)
			}
			want[fmt.Sprintf(`["tag"]/%s ["1"]/full`, tag)] = source.ETag.String()
		}
	}
	letters, err := w.DeadLetters.List(t.Context(), cfg.Pipeline, 100)
	if err != nil || len(letters) != len(want) {
		t.Fatalf("%d dead letters, %v, want %d", len(letters), err, len(want))
	}
	got := map[string]string{}
	for _, l := range letters {
		got[l.Item+" "+l.Target] = store.ETag(l.Position).String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("dead letters and the changes that they are of (-want +got):\n%s", diff)
	}
	item["pad"] = ""
	w.put(product, item)
	if err := w.DeadLetters.Retry(t.Context(), cfg.Pipeline, letters[0].ID); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		now, err := w.DeadLetters.List(t.Context(), cfg.Pipeline, 10)
		return poll.Unless(err == nil && len(now) == len(want)-1, fmt.Sprintf("dead letters %+v, %v", now, err))
	})
	for _, tag := range w.product(product, "1", "full").Tags {
		if tag.Name != "A longer name 3" {
			t.Errorf("tag %s is called %q", tag.ID, tag.Name)
		}
	}
}
