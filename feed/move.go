package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// ControlMove is the kind of the control transaction that closes a log's stream: the log
// goes on in a new one. Its data is a MoveData.
const ControlMove = "move"

// metadataCopy is, in the metadata of a stream that is a copy under way, the log that it
// will hold.
const metadataCopy = "millrace.copy"

// MoveData tells of the new stream of a log.
type MoveData struct {
	// First is the first LSN that it has.
	First LSN `json:"first"`
	// Checked is the last LSN up to which it was read back when the old one was closed.
	Checked LSN `json:"checked"`
}

// Move copies a log into its new stream, and reads back what it has copied. One goroutine
// uses it, and closes it.
type Move struct {
	from, to *Log // pinned to the two streams
	first    LSN

	copied    LSN      // the last commit of the new stream
	copiedSum Checksum // zero if another process has copied it
	reading   *Tail    // of the old stream; nil before the first copy

	checked   LSN // the last commit that was read back
	readBack  *Tail
	mismatch  error
	closedEnd LSN // where the old stream ends for ever; 0 if it is not closed
}

// pin returns the log as one of its streams has it.
func (l *Log) pin(index uint32) *Log {
	return &Log{js: l.js, api: l.api.pin(index), p: l.p, id: l.id, cfg: l.cfg, copy: index == goneOn}
}

// Moving returns the move of the log that has begun, nil if none has.
func (l *Log) Moving(ctx context.Context) (*Move, error) {
	m := &Move{from: l.pin(0), to: l.pin(goneOn)}
	err := m.find(ctx, 0)
	if errors.Is(err, ErrNoLog) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("move of the log of partition %s: %w", l.p, err)
	}
	return m, nil
}

// BeginMove makes the stream in which a log goes on that denies purges. It begins with the
// LSN first, everything before which may be gone: the trim point, which lies there or behind,
// is in the log. A move that has begun goes on as it began, and is an error if that
// was behind first.
func (l *Log) BeginMove(ctx context.Context, first LSN) (*Move, error) {
	m := &Move{from: l.pin(0), to: l.pin(goneOn)}
	err := m.find(ctx, 0)
	if errors.Is(err, ErrNoLog) {
		if err = m.create(ctx, first); err == nil {
			err = m.find(ctx, 0)
		}
	}
	if err == nil && m.first > first {
		err = fmt.Errorf("its new stream begins at LSN %d, and LSN %d is needed", m.first, first)
	}
	if err != nil {
		return nil, fmt.Errorf("move the log of partition %s: %w", l.p, err)
	}
	return m, nil
}

// create makes the new stream like the old one, but for what never can be taken back.
func (m *Move) create(ctx context.Context, first LSN) error {
	info, err := m.from.verifiedInfo(ctx)
	if err != nil {
		return err
	}
	if first < info.State.First || first > info.State.Last {
		return fmt.Errorf("its new stream cannot begin at LSN %d: it has %d to %d", first, info.State.First, info.State.Last)
	}
	old, err := m.from.js.Stream(ctx, m.from.api.stream())
	if err != nil {
		return err
	}
	cfg := old.CachedInfo().Config
	cfg.Metadata = maps.Clone(cfg.Metadata)
	delete(cfg.Metadata, metadataLog)
	cfg.Metadata[metadataCopy] = m.from.id.String()
	at := m.to.api.place()
	cfg.Name, cfg.Subjects, cfg.FirstSeq = at.stream, []string{at.subject}, uint64(first)
	cfg.DenyPurge, cfg.MaxMsgsPerSubject = false, messagesNoLimit
	_, err = m.from.js.CreateStream(ctx, cfg)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == codeStreamInUse {
		return nil // find sees what it is
	}
	return err
}

// find looks at the new stream. checked is the LSN up to which it was read back.
func (m *Move) find(ctx context.Context, checked LSN) error {
	info, err := m.to.api.info(ctx)
	if err != nil {
		return err
	}
	if id := info.Config.Metadata[metadataCopy]; id != m.to.id.String() && info.Config.Metadata[metadataLog] != m.to.id.String() {
		return &MismatchError{Partition: m.to.p, LSN: info.State.Last, What: fmt.Sprintf("stream %s is there and is no copy of it", m.to.api.stream())}
	}
	// Empty, it tells by its last sequence where it begins: at first-1.
	m.first, m.copied = info.State.First, info.State.Last
	if m.first == 0 || m.copied < m.first {
		m.first = m.copied + 1
	}
	m.checked = m.first - 1
	if checked >= m.first && checked <= m.copied {
		m.checked = checked
	}
	return nil
}

// First is the LSN with which the new stream begins.
func (m *Move) First() LSN { return m.first }

// Copied is the last LSN that the new stream has, one below First if it has none.
func (m *Move) Copied() LSN { return m.copied }

// Data is what the closing commit says.
func (m *Move) Data() MoveData { return MoveData{First: m.first, Checked: m.checked} }

// Step copies at most so many commits, and reads back as many. It returns how many the old
// stream has that are not copied or not read back yet. The error is *MismatchError if the copy
// is not what was copied, which waiting does not heal, and else of Append and of Tail.
func (m *Move) Step(ctx context.Context, commitsMax int) (left uint64, err error) {
	if m.mismatch != nil {
		return 0, m.mismatch
	}
	end := m.closedEnd
	if end == 0 {
		if _, end, err = m.from.Bounds(ctx); err != nil {
			return 0, err
		}
	}
	for n := 0; n < commitsMax && m.copied < end; n++ {
		if err := m.copy(ctx); err != nil {
			return 0, fmt.Errorf("copy LSN %d of partition %s: %w", m.copied+1, m.from.p, err)
		}
	}
	for n := 0; n < 2*commitsMax && m.checked < m.copied; n++ {
		if err := m.check(ctx); err != nil {
			return 0, fmt.Errorf("read back LSN %d of partition %s: %w", m.checked+1, m.from.p, err)
		}
	}
	return uint64(end-m.copied) + uint64(m.copied-m.checked), nil
}

// copy copies the next commit.
func (m *Move) copy(ctx context.Context) (err error) {
	if m.reading == nil {
		if m.reading, err = m.from.Tail(ctx, m.copied+1, TailOptions{}); err != nil {
			return err
		}
	}
	c, err := m.reading.Next(ctx)
	if err != nil {
		return err
	}
	// Another process that copies may have been faster: then its commit is this one, by its
	// id, and was appended here.
	if m.copied, err = m.to.Append(ctx, c.LSN-1, c.ID, m.reading.Data()); err != nil {
		m.copied = c.LSN - 1
		m.reading.Close()
		m.reading = nil
		return err
	}
	m.copiedSum = c.Sum
	return nil
}

// check reads the next commit back. Each holds the checksum of the one before, so that the
// last one alone must be compared.
func (m *Move) check(ctx context.Context) (err error) {
	if m.readBack == nil {
		if m.readBack, err = m.to.Tail(ctx, m.checked+1, TailOptions{}); err != nil {
			return err
		}
	}
	c, err := m.readBack.Next(ctx)
	if Damaged(err) {
		m.mismatch = err
	}
	if err != nil {
		return err
	}
	if c.LSN == m.copied {
		want := m.copiedSum
		if want == 0 {
			there, err := m.from.Read(ctx, c.LSN)
			if err != nil {
				return err
			}
			want = there.Sum
		}
		if c.Sum != want {
			m.mismatch = &MismatchError{Partition: m.to.p, LSN: c.LSN, What: fmt.Sprintf("stream %s has checksum %s there, the log has %s", m.to.api.stream(), c.Sum, want)}
			return m.mismatch
		}
	}
	m.checked = c.LSN
	return nil
}

// Close frees what copying holds. It may be called twice.
func (m *Move) Close() {
	for _, t := range []*Tail{m.reading, m.readBack} {
		if t != nil {
			t.Close()
		}
	}
	m.reading, m.readBack = nil, nil
	m.to.Close()
}

// FinishMove finishes the move of a log that was closed, by this process or by another, and
// reports whether it did. Whoever is to append to a log calls it before the first time, when
// he has read the log to its end: behind the commit that closes it only the new stream may
// be written to. The old one is deleted here.
func (l *Log) FinishMove(ctx context.Context) (moved bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("finish the move of the log of partition %s: %w", l.p, err)
		}
	}()
	info, err := l.verifiedInfo(ctx)
	if err != nil || l.api.at.Load() == goneOn || !info.Config.DenyPurge {
		return false, err
	}
	m := &Move{from: l.pin(0), to: l.pin(goneOn)}
	defer m.Close()
	closing, data, err := m.closed(ctx)
	if errors.Is(err, ErrNoLog) && l.api.follow(ctx) { // another has finished it
		return true, nil
	}
	if err != nil || data == nil {
		return false, err
	}
	err = m.find(ctx, data.Checked)
	if errors.Is(err, ErrNoLog) { // somebody has deleted the copy
		if err = m.create(ctx, data.First); err == nil {
			err = m.find(ctx, 0)
		}
	}
	if err == nil && m.first > data.First {
		err = fmt.Errorf("its new stream begins at LSN %d, and LSN %d is needed", m.first, data.First)
	}
	if err != nil {
		return false, err
	}
	m.closedEnd = closing.LSN
	for left := uint64(1); left > 0; {
		if left, err = m.Step(ctx, finishStep); err != nil {
			break
		}
	}
	if err == nil {
		err = m.settle(ctx)
	}
	if errors.Is(err, ErrNoLog) && l.api.follow(ctx) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if !l.api.follow(ctx) {
		return false, fmt.Errorf("%w: stream %s, which holds it now, does not answer", ErrNoLog, m.to.api.stream())
	}
	return true, nil
}

// finishStep is how many commits FinishMove copies before it reads them back.
const finishStep = 256

// closed returns the last commit of the old stream and what it says of the new one, nil if
// it does not close the log.
func (m *Move) closed(ctx context.Context) (c *Commit, data *MoveData, err error) {
	lsn, bytes, err := m.from.lastData(ctx)
	if errors.Is(err, ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	if c, err = m.from.decode(lsn, bytes); err != nil {
		return nil, nil, err
	}
	at := slices.IndexFunc(c.Transactions, func(t Transaction) bool { return t.Control != nil && t.Control.Kind == ControlMove })
	if at < 0 {
		return c, nil, nil
	}
	data = &MoveData{}
	if err := json.Unmarshal(c.Transactions[at].Control.Data, data); err != nil {
		return nil, nil, fmt.Errorf("LSN %d: %w", lsn, err)
	}
	return c, data, nil
}

// settle makes the copy the log: by its label first, then by the end of the old stream.
func (m *Move) settle(ctx context.Context) error {
	at := m.to.api.stream()
	stream, err := m.to.js.Stream(ctx, at)
	if err != nil {
		return err
	}
	cfg := stream.CachedInfo().Config
	if cfg.Metadata[metadataLog] == "" {
		cfg.Metadata = maps.Clone(cfg.Metadata)
		delete(cfg.Metadata, metadataCopy)
		cfg.Metadata[metadataLog] = m.to.id.String()
		if _, err := m.to.js.UpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("label stream %s: %w", at, err)
		}
	}
	// Nothing holds what goes now but the copy, so it is looked at once more.
	to, err := m.to.api.info(ctx)
	if err != nil {
		return err
	}
	if _, err := to.logID(); err != nil {
		return fmt.Errorf("label of stream %s, which was written: %w", at, err)
	}
	from, err := m.from.verifiedInfo(ctx)
	if err != nil {
		return err
	}
	if to.State.First > m.first || to.State.Last < m.closedEnd || from.State.Last != m.closedEnd || m.checked != m.closedEnd {
		return fmt.Errorf("stream %s has LSN %d to %d, stream %s ends at %d: %d to %d are expected in both", at, to.State.First, to.State.Last,
			m.from.api.stream(), from.State.Last, m.first, m.closedEnd)
	}
	if err := m.from.js.DeleteStream(ctx, m.from.api.stream()); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete stream %s: %w", m.from.api.stream(), err)
	}
	return nil
}
