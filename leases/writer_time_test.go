package leases

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/leases/bucket"
)

// scripted answers each call from a list.
type scripted struct {
	bucket.Store
	puts []func() (uint64, error)
	gets []func() (bucket.Entry, error)
}

func (s *scripted) Put(context.Context, string, []byte, uint64) (uint64, error) {
	next := s.puts[0]
	s.puts = s.puts[1:]
	return next()
}

func (s *scripted) Get(context.Context, string) (bucket.Entry, error) {
	next := s.gets[0]
	s.gets = s.gets[1:]
	return next()
}

func TestWriterSettles(t *testing.T) {
	mine := leaseRecord{Version: 1, Resource: "r", Owner: "a/1", Epoch: 5, Write: 1, Checkpoint: []byte("old")}
	with := func(change func(*leaseRecord)) leaseRecord {
		r := mine
		change(&r)
		return r
	}
	found := func(r leaseRecord, revision uint64) func() (bucket.Entry, error) {
		return func() (bucket.Entry, error) { return bucket.Entry{Value: encode(&r), Revision: revision}, nil }
	}
	ok := func(revision uint64) func() (uint64, error) { return func() (uint64, error) { return revision, nil } }
	refused := func() (uint64, error) { return 0, bucket.ErrMismatch }
	lost := func() (uint64, error) { return 0, context.DeadlineExceeded }
	missing := func() (bucket.Entry, error) { return bucket.Entry{}, bucket.ErrNotFound }

	tests := []struct {
		name     string
		release  bool
		revision uint64
		puts     []func() (uint64, error)
		gets     []func() (bucket.Entry, error)
		taken    bool
		want     uint64        // revision afterwards
		began    time.Duration // of the try that is trusted; the clock advances by 1s with each
		landed   int           // tries that are known to have arrived; 1 if not said
	}{
		{name: "stored", revision: 10, puts: []func() (uint64, error){ok(11)}, want: 11, began: 1 * time.Second},
		{name: "unreachable, then stored", revision: 10, puts: []func() (uint64, error){lost, lost, ok(11)}, want: 11, began: 3 * time.Second},
		{
			name: "the lost try had arrived, so the next goes on top of it", revision: 10,
			puts: []func() (uint64, error){lost, refused, ok(12)},
			gets: []func() (bucket.Entry, error){found(with(func(r *leaseRecord) { r.Write = 101 }), 11)},
			want: 12, began: 3 * time.Second, landed: 2,
		},
		{
			name: "the refused try itself had arrived by another way", revision: 10,
			puts: []func() (uint64, error){lost, refused},
			gets: []func() (bucket.Entry, error){found(with(func(r *leaseRecord) { r.Write = 102 }), 11)},
			want: 11, began: 2 * time.Second,
		},
		{
			name: "an unknown write of ours is not trusted but built on", revision: 10,
			puts: []func() (uint64, error){refused, ok(12)},
			gets: []func() (bucket.Entry, error){found(with(func(r *leaseRecord) { r.Write = 7 }), 11)},
			want: 12, began: 2 * time.Second,
		},
		{
			name: "a replica that lags is asked again", revision: 10,
			puts: []func() (uint64, error){lost, refused, refused, ok(12)},
			gets: []func() (bucket.Entry, error){
				found(mine, 10), found(with(func(r *leaseRecord) { r.Write = 101 }), 11),
			},
			want: 12, began: 4 * time.Second, landed: 2,
		},
		{
			name: "a replica that has not heard of a new key", revision: 0,
			puts: []func() (uint64, error){lost, refused, refused, ok(12)},
			gets: []func() (bucket.Entry, error){missing, found(with(func(r *leaseRecord) { r.Write = 101 }), 11)},
			want: 12, began: 4 * time.Second, landed: 2,
		},
		{
			name: "the bucket went back, the leader says so twice", revision: 10, taken: true,
			puts: []func() (uint64, error){refused, refused},
			gets: []func() (bucket.Entry, error){found(mine, 7), found(mine, 7)},
		},
		{
			name: "taken by another", revision: 10, taken: true,
			puts: []func() (uint64, error){refused},
			gets: []func() (bucket.Entry, error){found(with(func(r *leaseRecord) { r.Owner, r.Epoch = "b/1", 6 }), 11)},
		},
		{
			name: "taken by another in the epoch that we wanted", revision: 10, taken: true,
			puts: []func() (uint64, error){refused},
			gets: []func() (bucket.Entry, error){found(with(func(r *leaseRecord) { r.Owner = "b/1" }), 11)},
		},
		{
			name: "taken and freed by another", revision: 10, taken: true,
			puts: []func() (uint64, error){refused},
			gets: []func() (bucket.Entry, error){found(with(func(r *leaseRecord) { r.Owner, r.Last, r.Epoch = "", "b/1", 6 }), 11)},
		},
		{
			name: "deleted", revision: 10, taken: true,
			puts: []func() (uint64, error){refused}, gets: []func() (bucket.Entry, error){missing},
		},
		{
			name: "written by a later release", revision: 10, taken: true,
			puts: []func() (uint64, error){refused},
			gets: []func() (bucket.Entry, error){found(with(func(r *leaseRecord) { r.Version = 2 }), 11)},
		},
		{
			name: "a release whose reply was lost", revision: 10, release: true,
			puts: []func() (uint64, error){lost, refused},
			gets: []func() (bucket.Entry, error){found(with(func(r *leaseRecord) { r.Owner, r.Last, r.Write = "", "a/1", 101 }), 11)},
			want: 11,
		},
		{
			name: "a release after a renewal whose reply was lost", revision: 10, release: true,
			puts: []func() (uint64, error){refused, ok(12)},
			gets: []func() (bucket.Entry, error){found(with(func(r *leaseRecord) { r.Write = 50 }), 11)},
			want: 12,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &scripted{puts: test.puts, gets: test.gets}
				number, now, landed := uint64(100), time.Duration(0), 0
				w := writer{
					store: store, holder: "a/1", key: "lease.g.r", rec: mine, revision: test.revision, tryMax: time.Second,
					number:   func() uint64 { number++; return number },
					clock:    func() time.Duration { now += time.Second; return now },
					onStored: func(time.Duration) { landed++ },
				}
				start, err := w.put(t.Context(), func(r *leaseRecord) {
					if test.release {
						r.Owner, r.Last = "", "a/1"
					}
				})
				if _, taken := errors.AsType[*takenError](err); taken != test.taken || !taken && err != nil {
					t.Fatalf("put: %v", err)
				}
				if test.taken {
					return
				}
				if w.revision != test.want || len(w.sent) != 0 {
					t.Errorf("revision %d, want %d; %d tries unsettled", w.revision, test.want, len(w.sent))
				}
				if test.began != 0 && start != test.began {
					t.Errorf("trusted from try %v, want %v", start, test.began)
				}
				if landed != max(test.landed, 1) {
					t.Errorf("%d tries counted as arrived, want %d", landed, max(test.landed, 1))
				}
				if len(store.puts)+len(store.gets) != 0 {
					t.Errorf("%d puts and %d gets were not made", len(store.puts), len(store.gets))
				}
			})
		})
	}
}

// TestWriterGivesUpWithItsContext leaves the outcome to the next put.
func TestWriterGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newFakeServer(t)
		client := server.Client()
		number := uint64(0)
		w := writer{
			store: client, holder: "a/1", key: leaseKey("g", "r"), tryMax: time.Second,
			rec:    leaseRecord{Resource: "r", Owner: "a/1", Epoch: 1},
			number: func() uint64 { number++; return number },
			clock:  func() time.Duration { return time.Hour },
		}
		client.Set(func(c *faults) { c.Lose = 100 })
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if _, err := w.put(ctx, func(r *leaseRecord) { r.Checkpoint = []byte("x") }); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("put: %v", err)
		}
		if len(w.sent) == 0 {
			t.Error("forgot what it sent")
		}
		client.Set(func(c *faults) { c.Lose = 0 })
		if _, err := w.put(t.Context(), func(r *leaseRecord) {}); err != nil {
			t.Fatal(err)
		}
		if got := string(w.rec.Checkpoint); got != "x" {
			t.Errorf("checkpoint %q, want what had been stored", got)
		}
	})
}
