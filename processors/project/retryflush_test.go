package project_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// telling says that a retry gets on, as one does that waits for a flush.
type telling struct {
	*project.RowWriter
	retries atomic.Int32
}

func (r *telling) Retry(ctx context.Context, p *processors.Parked) error {
	r.retries.Add(1)
	p.Progress()
	return r.RowWriter.Retry(ctx, p)
}

// A retry does not wait for the flush that would come of itself, in an hour.
func TestARetryIsFlushedAtOnce(t *testing.T) {
	t.Parallel()
	const refused = "refused"
	s := newStage(t)
	cfg := analytics(t)
	cfg.Source = s.container(t, "customer", 1, "/customerId")
	cfg.FlushInterval = time.Hour
	var refuse atomic.Bool
	refuse.Store(true)
	cfg.Sink = &tap{Memory: sinktest.NewMemory(sinktest.NewDisk(), true), write: func(b *project.Batch) error {
		for _, r := range b.Put {
			if refuse.Load() && r.Table == 2 && r.Values[2].Text() == refused {
				return processors.Reject(errors.New("not now"))
			}
		}
		return nil
	}}
	p := compile(t, cfg)
	l := newLease()
	s.append(set{id: "o1", body: orderItem("o1", day, refused)})
	l.epoch++
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	processor := &telling{RowWriter: p.Rows(s.partition).(*project.RowWriter)}
	go func() {
		done <- s.host.Run(ctx, l, processors.Task{Resource: p.Resource(s.partition), Processor: processor})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	s.done(l)
	refuse.Store(false)
	if _, err := cfg.Source.Create(t.Context(), []byte(s.items["o1"])); err != nil {
		t.Fatal(err)
	}
	deadLetters, err := s.letters.List(t.Context(), "analytics", 10)
	if err != nil || len(deadLetters) != 1 {
		t.Fatalf("dead letters: %+v, %v", deadLetters, err)
	}
	if err := s.letters.Retry(t.Context(), "analytics", deadLetters[0].ID); err != nil {
		t.Fatal(err)
	}
	s.gone(l, deadLetters[0].ID)
	if processor.retries.Load() == 0 {
		t.Error("nothing was tried again")
	}
	s.equal(p)
}
