package status

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// scene is a Monitor of pipelines, of which each reads one log, with an empty one at first.
type scene struct {
	m     *Monitor
	world registry.World
	held  []leases.Lease
	logs  []*scriptedLog

	mu    sync.Mutex
	begun map[time.Time]int // questions, by when they were begun
	open  int               // questions that have not ended
}

// scriptedLog answers as the test says.
type scriptedLog struct {
	*scene
	// Guarded by scene.mu.
	silent      bool // it does not say where it ends
	silentReads bool // it gives no commits
	last        feed.LSN
	asked       int
}

func (l *scriptedLog) Bounds(ctx context.Context) (first, last feed.LSN, err error) {
	l.mu.Lock()
	l.asked++
	l.open++
	l.begun[time.Now()]++
	silent, last := l.silent, l.last
	l.mu.Unlock()
	return 1, last, l.answer(ctx, silent)
}

func (l *scriptedLog) Read(ctx context.Context, lsn feed.LSN) (*feed.Commit, error) {
	l.mu.Lock()
	l.open++
	silent := l.silentReads
	l.mu.Unlock()
	return &feed.Commit{LSN: lsn, Time: time.Now().UnixMilli()}, l.answer(ctx, silent)
}

// answer ends a question, at once unless the log is silent.
func (l *scriptedLog) answer(ctx context.Context, silent bool) error {
	if silent {
		<-ctx.Done()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	return ctx.Err()
}

func (l *scriptedLog) Close() {}

// set changes what a log does.
func (s *scene) set(log int, change func(*scriptedLog)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.logs[log])
}

// newScene is a scene of some logs, each read by so many pipelines. A pipeline's name begins with the number of its log.
func newScene(t *testing.T, logs, readers int, cfg MonitorConfig) *scene {
	t.Helper()
	cfg.StuckAfter = 1000 * time.Hour // or they are stuck for another reason
	s := &scene{m: NewMonitor(nil, nil, cfg), begun: map[time.Time]int{}}
	byLog := map[feed.Partition]*scriptedLog{}
	for i := range logs {
		id := feed.ResourceID(fmt.Sprintf("c%07d", i))
		s.world.Containers = append(s.world.Containers, store.ContainerInfo{ID: id, State: store.ContainerReady, Partitions: []store.PartitionInfo{{Number: 0}}})
		log, p := &scriptedLog{scene: s}, feed.Partition{Container: id}
		s.logs, byLog[p] = append(s.logs, log), log
		for k := range readers {
			rec := registry.Record{ID: fmt.Sprintf("p%d-%d", i, k), Name: fmt.Sprintf("%d-%d", i, k), Generation: 1, Source: id, Spec: spec.PipelineSpec{
				Project: &spec.Project{Sink: spec.Sink{Parquet: &spec.ParquetSink{Path: "/rows"}}},
			}}
			s.world.Pipelines = append(s.world.Pipelines, rec)
			r := processors.Resource{Pipeline: rec.ID, Generation: 1, Role: processors.RoleSource, Partition: p}
			s.held = append(s.held, leases.Lease{Resource: r.String(), Progress: time.Now()})
		}
	}
	s.m.open = func(_ context.Context, p feed.Partition) (logReader, error) { return byLog[p], nil }
	return s
}

// read reads where all pipelines stand, and returns which logs are told as silent and how long it took.
func (s *scene) read(t *testing.T, ctx context.Context) (st *Status, silent []int, took time.Duration) {
	t.Helper()
	began := time.Now()
	st, err := s.m.ReadOf(ctx, &s.world, s.held, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range st.Pipelines {
		if is := len(p.Unread) > 0; is != p.Lag.Unknown || is != (p.State == Stuck) {
			t.Errorf("pipeline %s is %s: %s; unread are %v, and its lag is %+v", p.Name, p.State, p.Reason, p.Unread, p.Lag)
		} else if is {
			silent = append(silent, i/(len(st.Pipelines)/len(s.logs)))
		}
	}
	return st, slices.Compact(silent), time.Since(began)
}

const answerTimeout = 2 * time.Second

// A log that is silent is waited for once. Then it is asked beside the readings, and told of when it has answered.
func TestReadOf_ASilentLogIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silent, talks = 0, 1
		s := newScene(t, 2, 1, MonitorConfig{AnswerTimeout: answerTimeout})
		defer s.m.Close()
		s.set(silent, func(l *scriptedLog) { l.silent = true })
		st, told, took := s.read(t, t.Context())
		if took != answerTimeout || st.Waited != took || !slices.Equal(told, []int{silent}) || st.Healthy() {
			t.Errorf("the first reading took %s, of which it waited %s; silent are %v", took, st.Waited, told)
		}
		if reason := st.Pipelines[silent].Reason; !strings.Contains(reason, "its log does not answer") {
			t.Errorf("the reason is %q", reason)
		}
		for n := range 20 {
			<-time.After(300 * time.Millisecond)
			s.set(talks, func(l *scriptedLog) { l.last = feed.LSN(n + 1) })
			st, told, took = s.read(t, t.Context())
			if took != 0 || st.Waited != 0 || !slices.Equal(told, []int{silent}) {
				t.Fatalf("reading %d took %s; silent are %v", n+2, took, told)
			}
			if got := st.Pipelines[talks].Processors[0].Head; got != uint64(n+1) {
				t.Errorf("reading %d tells of %d commits of the log that answers", n+2, got)
			}
		}
		s.set(silent, func(l *scriptedLog) { l.silent, l.last = false, 7 })
		<-time.After(answerTimeout) // for the question of before, which nobody answers any more
		s.read(t, t.Context())
		synctest.Wait()
		st, told, took = s.read(t, t.Context())
		if took != 0 || len(told) > 0 || st.Pipelines[silent].Lag.Commits != 7 {
			t.Errorf("after its answer the reading took %s, silent are %v, and its lag is %+v", took, told, st.Pipelines[silent].Lag)
		}
		s.set(silent, func(l *scriptedLog) { l.last = 8 })
		if st, _, _ = s.read(t, t.Context()); st.Pipelines[silent].Lag.Commits != 8 {
			t.Errorf("the next reading has not asked it: its lag is %+v", st.Pipelines[silent].Lag)
		}
	})
}

// Silent logs are waited for together, however many they are, and keep nobody from being asked; and not all are asked at
// the same moment.
func TestReadOf_SilentLogsAreWaitedForTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const logs = 1000
		s := newScene(t, logs, 1, MonitorConfig{AnswerTimeout: answerTimeout})
		defer s.m.Close()
		for i := range logs - 1 {
			s.set(i, func(l *scriptedLog) { l.silent = true })
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, told, took := s.read(t, ctx)
		if most := answerTimeout + logs/askedMax*askedFor; took > most || len(told) != logs-1 || slices.Contains(told, logs-1) {
			t.Errorf("%d silent logs took %s, at most %s is expected; %d are told as silent", logs-1, took, most, len(told))
		}
		for at, n := range s.begun {
			if n > askedMax {
				t.Errorf("%d were asked at %s, at most %d are expected", n, at, askedMax)
			}
		}
		if _, told, took = s.read(t, t.Context()); took != 0 || len(told) != logs-1 {
			t.Errorf("the second reading took %s; %d are told as silent", took, len(told))
		}
	})
}

// However many processors read a log, it is asked once and waited for once.
func TestReadOf_ALogIsAskedOnceForAllProcessors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, silent := range []bool{false, true} {
			s := newScene(t, 1, 200, MonitorConfig{AnswerTimeout: answerTimeout})
			s.set(0, func(l *scriptedLog) { l.silent = silent })
			st, told, took := s.read(t, t.Context())
			if len(st.Pipelines) != 200 || s.logs[0].asked != 1 || (len(told) > 0) != silent || silent && took != answerTimeout {
				t.Errorf("silent %t: the log was asked %d times, for %s; silent are %v", silent, s.logs[0].asked, took, told)
			}
			s.m.Close()
		}
	})
}

// A log that says where it ends, and gives no commit, is as silent as one that says nothing.
func TestReadOf_ALogGivesNoCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 40, 3, MonitorConfig{AnswerTimeout: answerTimeout})
		defer s.m.Close()
		for i := range s.logs {
			s.set(i, func(l *scriptedLog) { l.last, l.silentReads = 7, true })
		}
		s.read(t, t.Context())
		s.set(0, func(l *scriptedLog) { l.silentReads = false })
		for range 5 {
			<-time.After(300 * time.Millisecond)
			if _, told, took := s.read(t, t.Context()); took != 0 || len(told) < len(s.logs)-1 {
				t.Errorf("it took %s; %d are told as silent", took, len(told))
			}
		}
		// All others wait for readMax turns beside the readings too.
		<-time.After(answerTimeout * time.Duration(len(s.logs)/readMax+1))
		s.read(t, t.Context())
		<-time.After(answerTimeout * time.Duration(len(s.logs)/readMax+1))
		if _, told, took := s.read(t, t.Context()); took != 0 || slices.Contains(told, 0) || len(told) != len(s.logs)-1 {
			t.Errorf("it took %s; silent are %v", took, told)
		}
	})
}

// Whatever the logs do, a reading waits only for those that were not silent in the one before, and tells of each log that
// has been silent, or has answered, for long enough.
func TestReadOf_NeverWaitsForWhatWasSilentBefore(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			s := newScene(t, 5, 2, MonitorConfig{AnswerTimeout: answerTimeout})
			defer s.m.Close()
			changed := make([]time.Time, len(s.logs))
			var before []int
			for n := range 150 {
				<-time.After(300 * time.Millisecond)
				if i := random.IntN(len(s.logs)); random.IntN(8) == 0 {
					s.set(i, func(l *scriptedLog) { l.silent = !l.silent })
					changed[i] = time.Now()
				}
				began := time.Now()
				_, told, took := s.read(t, t.Context())
				fresh := slices.ContainsFunc(told, func(i int) bool { return !slices.Contains(before, i) })
				if fresh && took != answerTimeout || !fresh && took != 0 {
					t.Errorf("seed %d, reading %d took %s; silent are %v, before %v", seed, n, took, told, before)
				}
				for i, l := range s.logs {
					// Two questions beside the readings, of which the first may have begun before the change, and a
					// reading between them and after them.
					long := began.Sub(changed[i]) > 3*answerTimeout
					if is := slices.Contains(told, i); long && is != l.silent {
						t.Errorf("seed %d, reading %d: log %d is told as silent: %t", seed, n, i, is)
					}
				}
				before = told
			}
		})
	}
}

// A reading that runs out of time tells what it knows, if it has a time for each log; else it fails, as one does that
// nobody waits for.
func TestReadOf_RunsOutOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 2, 1, MonitorConfig{AnswerTimeout: answerTimeout})
		defer s.m.Close()
		s.set(0, func(l *scriptedLog) { l.silent = true })
		ctx, cancel := context.WithTimeout(t.Context(), answerTimeout/2)
		defer cancel()
		if _, told, took := s.read(t, ctx); took != answerTimeout/2 || !slices.Equal(told, []int{0}) {
			t.Errorf("it took %s; silent are %v", took, told)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := s.m.ReadOf(gone, &s.world, s.held, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("nobody waits for it: %v", err)
		}
		patient := newScene(t, 2, 1, MonitorConfig{})
		defer patient.m.Close()
		patient.set(0, func(l *scriptedLog) { l.silent = true })
		ctx, cancel = context.WithTimeout(t.Context(), answerTimeout)
		defer cancel()
		if _, err := patient.m.ReadOf(ctx, &patient.world, patient.held, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one that waits as long as it may: %v", err)
		}
	})
}

// Close, and the end of all that read a log, end what is asked beside the readings.
func TestMonitor_EndsWhatItAsksBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 3, 1, MonitorConfig{AnswerTimeout: answerTimeout})
		for i := range s.logs {
			s.set(i, func(l *scriptedLog) { l.silent = true })
		}
		s.read(t, t.Context())
		s.read(t, t.Context())
		synctest.Wait()
		if s.open != 3 {
			t.Errorf("%d logs are asked beside the readings, want 3", s.open)
		}
		s.world.Pipelines = s.world.Pipelines[1:]
		if _, err := s.m.ReadOf(t.Context(), &s.world, s.held, nil); err != nil {
			t.Fatal(err)
		}
		if s.open != 2 {
			t.Errorf("nobody reads one of the logs; %d are asked beside the readings, want 2", s.open)
		}
		s.m.Close()
		if s.open != 0 {
			t.Errorf("closed, and %d logs are asked", s.open)
		}
	})
}

// What was registered while a log was silent is told as far as it is known when the log has answered.
func TestReadOf_RegisteredWhileItsLogIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1, 2, MonitorConfig{AnswerTimeout: answerTimeout})
		defer s.m.Close()
		all := s.world.Pipelines
		s.world.Pipelines = all[:1]
		s.set(0, func(l *scriptedLog) { l.silent, l.last = true, 7 })
		s.read(t, t.Context())
		s.set(0, func(l *scriptedLog) { l.silent = false })
		s.read(t, t.Context())
		synctest.Wait()
		s.world.Pipelines = all
		st, told, took := s.read(t, t.Context())
		if one, new := st.Pipelines[0].Lag, st.Pipelines[1].Lag; took != 0 || len(told) > 0 || one.Commits != 7 || one.Estimated || new.Commits != 7 || !new.Estimated {
			t.Errorf("it took %s, silent are %v; their lags are %+v and %+v", took, told, one, new)
		}
	})
}

// What a log answered beside a reading long ago, after which readings failed for another reason, is asked again.
func TestReadOf_AnOldAnswerIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, 1, 1, MonitorConfig{AnswerTimeout: answerTimeout})
		defer s.m.Close()
		s.set(0, func(l *scriptedLog) { l.silent = true })
		s.read(t, t.Context())
		s.set(0, func(l *scriptedLog) { l.silent = false })
		s.read(t, t.Context())
		<-time.After(time.Hour)
		s.set(0, func(l *scriptedLog) { l.last = 7 })
		if st, told, _ := s.read(t, t.Context()); len(told) > 0 || st.Pipelines[0].Lag.Commits != 7 {
			t.Errorf("silent are %v, the lag is %+v", told, st.Pipelines[0].Lag)
		}
	})
}

// A page names the logs that could not be read, first, and does not tell their lag as none. A paused pipeline is no exception.
func TestPrint_NamesUnreadLogs(t *testing.T) {
	s := &Status{Pipelines: []Pipeline{
		{Database: "default", Name: "well", State: Idle},
		{Database: "default", Name: "paused", State: Paused, Unread: []string{"c7k2x4ab/0"}, Lag: Lag{Unknown: true}},
		{Database: "default", Name: "many", State: Stuck, Unread: slices.Repeat([]string{"c/1"}, unreadShown+2), Lag: Lag{Unknown: true, Changes: 7, Estimated: true}},
	}}
	var page strings.Builder
	if err := s.Print(&page, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"not all could be read: 1 log of pipeline paused (c7k2x4ab/0), so what is left to do there is not known\n",
		"not all could be read: 12 logs of pipeline many (c/1, ", " and 2 more)", "  ?  ", "  ~7+  ",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("nothing of %q in\n%s", want, page.String())
		}
	}
	if s.Pipelines = s.Pipelines[:1]; !s.Healthy() {
		t.Error("a pipeline that is well is not")
	}
}
