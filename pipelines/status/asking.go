package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

const (
	// askedMax bounds the logs that are asked at a time where they begin and end. The answers are
	// small.
	askedMax = 64
	// askedFor is for how long a log counts as one of those that does not answer. Else as many
	// silent logs would hold up all others, and a thousand of them would be waited for in turn.
	askedFor = 100 * time.Millisecond
	// answeredMax is how old what a log has answered beside the readings may be to be told. Readings
	// may have failed since, for another reason.
	answeredMax = 30 * time.Second
	// readMax bounds the processors for which commits are read at a time: each may have
	// megabytes.
	readMax = 16
)

// logReader is what a Monitor asks of a log. *feed.Log is one.
type logReader interface {
	Bounds(ctx context.Context) (first, last feed.LSN, err error)
	Read(ctx context.Context, lsn feed.LSN) (*feed.Commit, error)
	Close()
}

// silence says that a log did not answer in time.
type silence struct{ err error }

func (s *silence) Error() string {
	return "its log does not answer; look at the NATS servers that hold it: " + s.err.Error()
}

func (s *silence) Unwrap() error { return s.err }

func isSilent(err error) bool {
	_, ok := errors.AsType[*silence](err)
	return ok
}

// question is what one log is asked for all processors that read it: where it begins and ends,
// and some commits.
//
// A reading waits for a log once. While the log is silent it is asked beside the readings, and
// what it answers there is told by the reading after that:
//
//	log       |------------- silent -------------|---- answers ----
//	beside            |-- asked --|  |-- asked --|  answered
//	readings  waits   s  s  s  s  s  s  s  s  s  s  t     asks    s: told as silent, t: as it answered
type question struct {
	partition feed.Partition

	// Owned by ask while that runs.
	watched     []*watched
	log         logReader // nil until it is open
	first, last feed.LSN
	asked       span  // when ask ran
	err         error // why first and last are not known, or the *silence in which it ended

	// Of one that is asked beside the readings.
	cancel context.CancelFunc
	done   chan struct{} // closed when ask has ended
}

// askLogs asks the logs of processors, all together, and fills in what they say. It returns what
// was asked in this reading, and not beside it.
func (m *Monitor) askLogs(ctx context.Context, readers [][]*watched) ([]*question, error) {
	all := m.questions(readers)
	m.dropBesideBut(all)
	var inReading []*question
	var asking sync.WaitGroup
	for _, q := range all {
		if m.askedBeside(ctx, q) {
			continue
		}
		inReading = append(inReading, q)
		answered := m.turns.ask(ctx) // waited for here: a goroutine for each of all logs would be many
		asking.Go(func() { m.ask(ctx, q, &m.turns, answered) })
	}
	asking.Wait()
	for _, q := range inReading {
		if q.log != nil {
			m.now.logs[q.partition] = q.log
		}
	}
	if err := ctx.Err(); m.cfg.AnswerTimeout == 0 || errors.Is(err, context.Canceled) {
		return inReading, err
	}
	// Where the reading ran out of time, who had no turn counts as silent too: what was learned
	// is told, and the next reading does not come to the same end.
	for _, q := range inReading {
		if isSilent(q.err) {
			m.now.silent[q.partition] = q.err
		}
	}
	return inReading, nil
}

// questions returns what is to be asked for processors: each log once, in the order in which they
// come.
func (m *Monitor) questions(readers [][]*watched) []*question {
	byLog := map[feed.Partition]*question{}
	var all []*question
	for _, w := range slices.Concat(readers...) {
		if w.unread = w.decode(); w.unread != nil {
			continue
		}
		p := w.resource.Partition
		q := byLog[p]
		if q == nil {
			q = &question{partition: p, log: m.last.logs[p]}
			byLog[p], all = q, append(all, q)
		}
		q.watched = append(q.watched, w)
	}
	return all
}

// ask asks a log, and fills in what its processors are to know of it. It needs nothing of m that
// changes, so it may run beside readings. answered ends the turn that the caller has taken.
func (m *Monitor) ask(ctx context.Context, q *question, t *turns, answered func()) {
	q.asked.began = time.Now()
	defer func() { q.asked.ended = time.Now() }()
	q.err = m.within(ctx, func(ctx context.Context) error { return q.findEnds(ctx, m.open) })
	answered()
	for _, w := range q.watched {
		if w.unread = q.err; q.err != nil {
			continue // one that is silent is not waited for again for each of its processors
		}
		if w.place(q.first, q.last); w.logBehind() >= q.last {
			continue
		}
		read := t.read(ctx)
		w.unread = m.within(ctx, func(ctx context.Context) error { return w.sample(ctx, q.log, m.cfg.SampleMax) })
		read()
		if isSilent(w.unread) {
			q.err = w.unread
		}
	}
}

// within does f, for AnswerTimeout at most. If that has passed its error is a *silence.
func (m *Monitor) within(ctx context.Context, f func(ctx context.Context) error) error {
	if m.cfg.AnswerTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, m.cfg.AnswerTimeout)
		defer cancel()
	}
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return &silence{err}
	}
	return err
}

// findEnds finds out where the log begins and ends. It opens the log if it is not open yet.
func (q *question) findEnds(ctx context.Context, open openFunc) (err error) {
	if q.log == nil {
		log, err := open(ctx, q.partition)
		if err != nil {
			return fmt.Errorf("open the log of %s: %w", q.partition, err)
		}
		q.log = log
	}
	if q.first, q.last, err = q.log.Bounds(ctx); err != nil {
		return fmt.Errorf("find the end of the log of %s: %w", q.partition, err)
	}
	return nil
}

// askedBeside says whether a log is not to be asked in this reading, because it was silent in the
// one before. It fills in what the log has answered beside the readings since; or that it is
// silent, and has it asked there.
func (m *Monitor) askedBeside(ctx context.Context, q *question) bool {
	silent := m.last.silent[q.partition]
	if silent == nil {
		return false
	}
	beside := m.beside[q.partition]
	if beside != nil && beside.ended() {
		delete(m.beside, q.partition)
		q.log = beside.log
		switch answered := !isSilent(beside.err); {
		case answered && time.Since(beside.asked.ended) > answeredMax:
			return false
		case answered:
			q.take(beside)
			m.now.logs[q.partition] = q.log
			return true
		}
		silent, beside = beside.err, nil
	}
	for _, w := range q.watched {
		w.unread = silent
	}
	m.now.silent[q.partition] = silent
	if q.log != nil {
		m.now.logs[q.partition] = q.log // it stays open
	}
	if beside == nil {
		m.askBeside(ctx, q)
	}
	return true
}

// askBeside begins to ask a log beside the readings, for copies of the processors.
func (m *Monitor) askBeside(ctx context.Context, of *question) {
	q := &question{partition: of.partition, log: of.log, done: make(chan struct{})}
	for _, w := range of.watched {
		c, checkpoint := *w, *w.checkpoint
		c.checkpoint = &checkpoint
		q.watched = append(q.watched, &c)
	}
	// It outlives the reading, so not ctx but end is what ends it before its time.
	ctx, q.cancel = context.WithCancel(context.WithoutCancel(ctx))
	m.beside[q.partition] = q
	go func() {
		defer close(q.done)
		defer q.cancel()
		m.ask(ctx, q, &m.turnsBeside, m.turnsBeside.ask(ctx))
	}()
}

// ended says whether ask has ended.
func (q *question) ended() bool {
	select {
	case <-q.done:
		return true
	default:
		return false
	}
}

// end ends a question beside the readings, and closes its log.
func (q *question) end() {
	q.cancel()
	<-q.done // at once: whatever asks ends with its context
	if q.log != nil {
		q.log.Close()
	}
}

// dropBesideBut ends the questions about logs that nobody reads any more.
func (m *Monitor) dropBesideBut(all []*question) {
	read := make(map[feed.Partition]bool, len(all))
	for _, q := range all {
		read[q.partition] = true
	}
	for p, q := range m.beside {
		if !read[p] {
			q.end()
			delete(m.beside, p)
		}
	}
}

// take fills in what a log has answered beside the readings: its processors are told as they were
// then, so that positions, lag and time are of one moment.
func (q *question) take(beside *question) {
	then := make(map[processors.Resource]*watched, len(beside.watched))
	for _, w := range beside.watched {
		then[w.resource] = w
	}
	for _, w := range q.watched {
		if was := then[w.resource]; was != nil {
			record := w.record // by which the pipeline is told
			*w = *was
			w.record = record
			continue
		}
		// It was registered since, and nobody has read commits for it.
		if w.unread = beside.err; beside.err == nil {
			w.place(beside.first, beside.last)
			w.estimated = true
		}
	}
}

// turns bound what is asked of logs at a time.
type turns struct{ asks, reads chan struct{} }

func newTurns() turns {
	return turns{asks: make(chan struct{}, askedMax), reads: make(chan struct{}, readMax)}
}

// ask waits for the turn of a question, and returns what ends it. It ends by itself after
// askedFor. If ctx ends before, there is no turn, and the question fails at once.
func (t *turns) ask(ctx context.Context) (end func()) {
	free := turn(ctx, t.asks)
	late := time.AfterFunc(askedFor, free)
	return func() {
		late.Stop()
		free()
	}
}

// read is ask for the reading of commits, and the turn does not end by itself.
func (t *turns) read(ctx context.Context) (end func()) { return turn(ctx, t.reads) }

func turn(ctx context.Context, places chan struct{}) (end func()) {
	select {
	case places <- struct{}{}:
		return sync.OnceFunc(func() { <-places })
	case <-ctx.Done():
		return func() {}
	}
}
