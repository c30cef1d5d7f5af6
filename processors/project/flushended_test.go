package project_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// endedSink is one whose writer has ended with ErrPosition, as the Parquet sink's does in a commit.
type endedSink struct {
	*sinktest.Memory
	flushed chan struct{}
}

func (s *endedSink) Open(ctx context.Context, schema *project.Schema, t project.Term) (project.Writer, feed.Position, error) {
	w, at, err := s.Memory.Open(ctx, schema, t)
	return &endedWriter{Writer: w, s: s}, at, err
}

type endedWriter struct {
	project.Writer
	s *endedSink
}

func (w *endedWriter) Write(ctx context.Context, b *project.Batch) (project.Written, error) {
	select {
	case <-w.s.flushed:
		return project.Written{}, fmt.Errorf("the files were restored older: %w", project.ErrPosition)
	default:
	}
	return w.Writer.Write(ctx, b)
}

func (w *endedWriter) Flush(context.Context) (feed.Position, error) {
	select {
	case <-w.s.flushed:
	default:
		close(w.s.flushed)
	}
	return feed.Position{}, fmt.Errorf("the files were restored older: %w", project.ErrPosition)
}

// A flush finds that the sink is not what it was.
func TestAFlushThatLostItsPositionEndsTheTerm(t *testing.T) {
	s := newStage(t)
	cfg := analytics(t)
	sink := &endedSink{Memory: sinktest.NewMemory(sinktest.NewDisk(), true), flushed: make(chan struct{})}
	cfg.Sink, cfg.FlushInterval = sink, 10*time.Millisecond
	p := compile(t, cfg)
	l := newLease()
	l.epoch++
	done := make(chan error, 1)
	go func() {
		done <- s.host.Run(t.Context(), l, processors.Task{Resource: p.Resource(s.partition), Processor: p.Rows(s.partition)})
	}()
	s.append(set{id: "o1", body: orderItem("o1", day, "a")})
	<-sink.flushed
	s.append(set{id: "o2", body: orderItem("o2", day, "a")})
	select {
	case err := <-done:
		if !errors.Is(err, project.ErrPosition) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("a minute later the term has not ended")
	}
}
