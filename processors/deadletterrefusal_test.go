package processors_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

// refusal is what a target refused of a change of an item.
func refusal(lsn feed.LSN, item, target string) processors.DeadLetter {
	return processors.DeadLetter{
		Pipeline: resource.Pipeline, Generation: resource.Generation, Role: resource.Role, Partition: resource.Partition.String(),
		Time: time.UnixMilli(int64(lsn)).UTC(), Item: item, Position: feed.Position{LSN: lsn}, Target: target, Status: 413,
		Reason: fmt.Sprintf("too large at %d", lsn), Trace: fmt.Sprintf("00-%032x-0000000000000001-01", lsn),
	}
}

// list returns the dead letters of the stage's pipeline, without their ids.
func (s *stage) list() []processors.DeadLetter {
	s.t.Helper()
	all, err := s.letters.List(s.t.Context(), resource.Pipeline, 100)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range all {
		all[i].ID = ""
	}
	return all
}

// A target that refuses change after change has one dead letter, of the last one: for each source
// of which it copies, each processor, and each generation.
func TestDeadLetters_OneForWhateverATargetRefuses(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{})
	var want []processors.DeadLetter
	write := func(l processors.DeadLetter, last bool) {
		if err := s.letters.Write(t.Context(), &l); err != nil {
			t.Fatal(err)
		}
		if l.Subject = ""; last {
			want = append(want, l)
		}
	}
	for lsn := feed.LSN(1); lsn < 20; lsn++ {
		write(refusal(lsn, `["k"]/a`, `["k"]/full`), lsn == 19)
	}
	write(refusal(20, `["k"]/b`, `["k"]/full`), true)
	write(refusal(21, `["k"]/a`, `["k"]/other`), true)
	again := refusal(22, `["k"]/a`, `["k"]/full`)
	again.Generation++
	write(again, true)
	check := refusal(23, `["k"]/a`, `["k"]/full`)
	check.Role = processors.RoleTarget
	write(check, true)
	// An aggregate's target: whichever member was the last.
	for lsn := feed.LSN(30); lsn < 40; lsn++ {
		l := refusal(lsn, fmt.Sprintf(`["k"]/order%d`, lsn), `["k"]/customer`)
		l.Subject = "group"
		write(l, lsn == 39)
	}
	// And one of which less is known.
	bare := processors.DeadLetter{
		Pipeline: resource.Pipeline, Generation: resource.Generation, Role: resource.Role, Partition: resource.Partition.String(),
		Time: time.UnixMilli(41).UTC(), Item: `["k"]/c`, Position: feed.Position{LSN: 41}, Target: `["k"]/full`, Reason: "no answer",
	}
	write(refusal(40, `["k"]/c`, `["k"]/full`), false)
	write(bare, true)
	if diff := cmp.Diff(want, s.list()); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	if err := s.letters.Forget(t.Context(), resource); err != nil {
		t.Fatal(err)
	}
	if left := s.list(); len(left) != 2 {
		t.Errorf("%+v are left, want those of another generation and of another role", left)
	}
}

// What somebody asks of a dead letter, and how often it was tried, outlives a newer refusal; a dead letter
// that was dropped comes anew.
func TestDeadLetters_ANewerRefusalKeepsWhatIsAsked(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{})
	first := refusal(1, `["k"]/a`, `["k"]/full`)
	first.Attempts = 3
	write := func(l processors.DeadLetter) processors.DeadLetter {
		t.Helper()
		if err := s.letters.Write(t.Context(), &l); err != nil {
			t.Fatal(err)
		}
		all, err := s.letters.List(t.Context(), resource.Pipeline, 10)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	l := write(first)
	s.retry(l.ID)
	if err := s.letters.RetryFinally(t.Context(), &l); err != nil {
		t.Fatal(err)
	}
	s.retry(l.ID)
	if l = write(refusal(2, `["k"]/a`, `["k"]/full`)); l.Retry.IsZero() || l.FinalRetry.IsZero() || l.Attempts != 3 || l.Position.LSN != 2 {
		t.Errorf("after a newer refusal: %+v", l)
	}
	if err := s.letters.Drop(t.Context(), resource.Pipeline, l.ID); err != nil {
		t.Fatal(err)
	}
	if l = write(refusal(3, `["k"]/a`, `["k"]/full`)); l.Asked() || l.Attempts != 0 {
		t.Errorf("one that comes anew: %+v", l)
	}
}

// Releases before wrote a dead letter for each change that a target refused. Those are listed, tried,
// and dropped by the ids that they have.
func TestDeadLetters_ThoseOfEarlierReleasesKeepTheirIDs(t *testing.T) {
	t.Parallel()
	s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
	c, err := s.client.Container(t.Context(), processors.DeadLetterDatabase, processors.DeadLetterContainer)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for lsn := range 2 {
		id := fmt.Sprintf("source-%s.%d-%d-%d.0-0123456789abcdef", partition.Container, partition.Number, resource.Generation, lsn+1)
		ids[id] = true
		if _, err := c.Create(t.Context(), fmt.Appendf(nil, `{"id":%q,"version":1,"pipeline":%q,"generation":%d,"role":"source","partition":%q,"time":"2026-11-20T10:00:00Z",`+
			`"item":"[\"k\"]/a","position":"%d.0","target":"[\"k\"]/full","status":413,"reason":"too large"}`, id, resource.Pipeline, resource.Generation, partition, lsn+1)); err != nil {
			t.Fatal(err)
		}
	}
	s.append("a")
	s.append("a")
	newer := refusal(2, `["k"]/a`, `["k"]/full`)
	if err := s.letters.Write(t.Context(), &newer); err != nil {
		t.Fatal(err)
	}
	all, err := s.letters.List(t.Context(), resource.Pipeline, 10)
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for i := range all {
		if ids[all[i].ID] {
			if err := s.letters.RetryFinally(t.Context(), &all[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.run(newLease(), &counted{retrier{retry: func(string) error { return nil }}})
	for id := range ids {
		s.done(id)
	}
	if left := s.list(); len(left) != 1 || left[0].Asked() {
		t.Errorf("%+v are left, want the newer one", left)
	}
}

// targetRetrier tries again what targets refused, and holds no changes.
type targetRetrier struct {
	counted
	try func() error
}

func (r *targetRetrier) Retry(context.Context, *processors.Parked) error { return r.try() }

// A target refuses a newer change while the retry of an older one is under way, which may have read what
// the source said before. Whether the retry succeeds or not, the newer refusal stays, and is tried.
func TestI6_ARetryForgetsNoNewerRefusal(t *testing.T) {
	t.Parallel()
	for name, outcome := range map[string]error{"success": nil, "failure": errors.New("it has no room")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, processors.Config{CheckpointInterval: time.Millisecond})
			s.append("a")
			s.append("a")
			first := refusal(1, `["k"]/a`, `["k"]/full`)
			if err := s.letters.Write(t.Context(), &first); err != nil {
				t.Fatal(err)
			}
			all, err := s.letters.List(t.Context(), resource.Pipeline, 10)
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			again := make(chan *processors.DeadLetter, 1)
			r, tried := &targetRetrier{}, 0
			r.try = func() error {
				if tried++; tried == 1 {
					if err := r.term.DeadLetter(t.Context(), refusal(2, `["k"]/a`, `["k"]/full`)); err != nil {
						t.Error(err)
					}
					return outcome
				}
				l, err := s.letters.Get(t.Context(), resource.Pipeline, all[0].ID)
				if err != nil {
					return err
				}
				again <- l
				return nil
			}
			s.retry(all[0].ID)
			s.run(newLease(), r)
			select {
			case l := <-again:
				if l.Position.LSN != 2 || l.Reason != "too large at 2" || l.Attempts != 0 {
					t.Errorf("the newer refusal is %+v", l)
				}
			case <-time.After(time.Minute):
				t.Fatal("the newer refusal was not tried")
			}
			s.done(all[0].ID)
		})
	}
}
