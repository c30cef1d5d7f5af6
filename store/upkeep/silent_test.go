package upkeep_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/upkeep"
)

// silentLogs is JetStream that answers no question about the stream of a log. Where unlisted is set, the
// list of streams lacks them too, as in a cluster whose servers of these streams are away.
type silentLogs struct {
	jetstream.JetStream
	unlisted bool

	mu    sync.Mutex
	asked int // at this moment
	peak  int
}

func (s *silentLogs) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if _, isLog := feed.ParseStream(name); !isLog {
		return s.JetStream.Stream(ctx, name)
	}
	s.mu.Lock()
	s.asked++
	s.peak = max(s.peak, s.asked)
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked--
	return nil, ctx.Err()
}

func (s *silentLogs) ListStreams(ctx context.Context, opts ...jetstream.StreamListOpt) jetstream.StreamInfoLister {
	l := &answered{StreamInfoLister: s.JetStream.ListStreams(ctx, opts...), c: make(chan *jetstream.StreamInfo)}
	go func() {
		defer close(l.c)
		for info := range l.StreamInfoLister.Info() {
			if _, isLog := feed.ParseStream(info.Config.Name); !isLog || !s.unlisted {
				l.c <- info
			}
		}
	}()
	return l
}

// answered is a list without the streams that did not answer.
type answered struct {
	jetstream.StreamInfoLister
	c chan *jetstream.StreamInfo
}

func (l *answered) Info() <-chan *jetstream.StreamInfo { return l.c }

// TestReplicas_SilentStreamsAreAskedTogether: each silent stream is waited for, and so many at once that
// they do not use up a pass; not all at once, for there may be thousands.
func TestReplicas_SilentStreamsAreAskedTogether(t *testing.T) {
	t.Parallel()
	const partitions, together = 30, 8
	js := alone(t)
	catalog := must[*store.Catalog](t)(store.OpenCatalog(t.Context(), js, store.CatalogConfig{}))
	info := must[store.ContainerInfo](t)(catalog.Create(t.Context(), "default", "orders", store.ContainerSpec{PartitionKey: []string{"/id"}, Partitions: partitions}))
	for _, p := range info.Partitions { // a pass has something to write to each
		s := must[jetstream.Stream](t)(js.Stream(t.Context(), feed.Partition{Container: info.ID, Number: p.Number}.Stream()))
		cfg := s.CachedInfo().Config
		delete(cfg.Metadata, store.LabelContainer)
		must[jetstream.Stream](t)(js.UpdateStream(t.Context(), cfg))
	}
	for name, unlisted := range map[string]bool{"that are not listed": true, "that are to be changed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			silent := &silentLogs{JetStream: js, unlisted: unlisted}
			ctx, end := context.WithCancel(t.Context())
			defer end()
			k := keeper(silent, catalog, 1)
			var report *upkeep.Report
			done := make(chan struct{})
			go func() {
				defer close(done)
				report, _ = k.Pass(ctx) // the error says that nobody has answered
			}()
			poll.Until(t, func() error {
				silent.mu.Lock()
				defer silent.mu.Unlock()
				return poll.Unless(silent.asked == together, fmt.Sprintf("%d streams are asked at once, want %d", silent.asked, together))
			})
			end() // those that are left get no time
			<-done
			if silent.peak != together {
				t.Errorf("up to %d streams were asked at once, want %d", silent.peak, together)
			}
			if report == nil {
				t.Fatal("the pass tells nothing")
			}
			told := 0
			for _, s := range report.Streams {
				if s.Partition != "" && s.Error != "" {
					told++
				}
			}
			if told != partitions {
				t.Errorf("%d streams are told to be silent, want %d", told, partitions)
			}
		})
	}
}
