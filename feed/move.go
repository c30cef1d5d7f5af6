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

// metadataCopy is the key in the metadata of a stream that is an unfinished copy. Its value is
// the id of the log that the stream will hold.
const metadataCopy = "millrace.copy"

// MoveData is what the closing commit of a log's old stream says of the new one.
type MoveData struct {
	// First is the first LSN of the new stream.
	First LSN `json:"first"`
	// Checked is the LSN up to which the new stream had been read back when the old one
	// was closed.
	Checked LSN `json:"checked"`
}

// Move copies a log into its new stream, and reads back what it has copied. One goroutine
// uses it, and closes it.
type Move struct {
	from, to *Log // pinned to the two streams
	first    LSN

	copied    LSN      // the last commit of the new stream
	copiedSum Checksum // its checksum; zero if another process has copied it
	reading   *Tail    // of the old stream; nil before the first copy

	checked   LSN   // the last commit that was read back
	readBack  *Tail // of the new stream; nil before the first reading
	mismatch  error // why the copy can never become the log
	closedEnd LSN   // the last LSN that the old stream will ever have; 0 if it is not closed
}

// pin returns the log as it stands in one of its two streams. It has no TailCache: what the copy's stream has acknowledged
// is no end of the log, and what is read back is to come from that stream.
func (l *Log) pin(index uint32) *Log {
	cfg := l.cfg
	cfg.Cache = nil
	return &Log{js: l.js, api: l.api.pin(index), p: l.p, id: l.id, cfg: cfg, acceptCopy: index == movedLocation, asking: make(chan struct{}, 1)}
}

// Moving returns the unfinished move of the log, nil if there is none. The caller closes it.
func (l *Log) Moving(ctx context.Context) (*Move, error) {
	m := &Move{from: l.pin(firstLocation), to: l.pin(movedLocation)}
	err := m.inspectCopy(ctx, 0)
	if errors.Is(err, ErrNoLog) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("move of the log of partition %s: %w", l.p, err)
	}
	return m, nil
}

// BeginMove makes the new stream of a log whose present stream denies purges. The new stream
// begins with LSN first; first must be at most one above the log's trim point, so that
// all before it may be gone. A move that was begun earlier is continued with the first LSN
// that it has, which is an error if that is above first. The caller closes the move.
func (l *Log) BeginMove(ctx context.Context, first LSN) (*Move, error) {
	m := &Move{from: l.pin(firstLocation), to: l.pin(movedLocation)}
	err := m.inspectCopy(ctx, 0)
	if errors.Is(err, ErrNoLog) {
		if err = m.create(ctx, first); err == nil {
			err = m.inspectCopy(ctx, 0)
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

// create makes the new stream. Its configuration is that of the old one, without DenyPurge,
// which JetStream never takes back.
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
	// While it is labelled as a copy nobody takes it for the log, even if the old stream is
	// lost meanwhile: half a copy would look like a whole log that was trimmed.
	delete(cfg.Metadata, metadataLog)
	cfg.Metadata[metadataCopy] = m.from.id.String()
	at := m.to.api.location()
	cfg.Name, cfg.Subjects, cfg.FirstSeq = at.stream, []string{at.subject}, uint64(first)
	cfg.DenyPurge, cfg.MaxMsgsPerSubject = false, messagesNoLimit
	_, err = m.from.js.CreateStream(ctx, cfg)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == codeStreamInUse {
		return nil // inspectCopy sees what it is
	}
	return err
}

// inspectCopy sets what is known of the new stream: where it begins, how far it has been
// copied, and up to which LSN it has been read back, which is checked if the stream has
// that LSN. The error is ErrNoLog if there is no new stream.
func (m *Move) inspectCopy(ctx context.Context, checked LSN) error {
	info, err := m.to.api.info(ctx)
	if err != nil {
		return err
	}
	if id := info.Config.Metadata[metadataCopy]; id != m.to.id.String() && info.Config.Metadata[metadataLog] != m.to.id.String() {
		return &MismatchError{Partition: m.to.p, LSN: info.State.Last, What: fmt.Sprintf("stream %s is there and is no copy of it", m.to.api.stream())}
	}
	// JetStream gives an empty stream the last sequence FirstSeq-1:
	//
	//	FirstSeq 6, nothing copied    first 0 or 6, last 5    first = 6, copied = 5
	//	FirstSeq 6, 6 and 7 copied    first 6, last 7         first = 6, copied = 7
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

// Copied is the last LSN that the new stream has; one below First if it has none.
func (m *Move) Copied() LSN { return m.copied }

// Data is what a closing commit that is appended now has to say.
func (m *Move) Data() MoveData { return MoveData{First: m.first, Checked: m.checked} }

// Step copies at most commitsMax commits and reads back at most twice as many. It returns how
// many commits remain to be copied plus how many remain to be read back. The error is
// *MismatchError if the new stream does not hold what was copied, which waiting does not
// heal; otherwise it is as of Append and Tail.Next.
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
		if err := m.copyNext(ctx); err != nil {
			return 0, fmt.Errorf("copy LSN %d of partition %s: %w", m.copied+1, m.from.p, err)
		}
	}
	// Twice as many, so that reading back catches up with what earlier steps, or an earlier
	// process, have copied.
	for n := 0; n < 2*commitsMax && m.checked < m.copied; n++ {
		if err := m.readBackNext(ctx); err != nil {
			return 0, fmt.Errorf("read back LSN %d of partition %s: %w", m.checked+1, m.from.p, err)
		}
	}
	return uint64(end-m.copied) + uint64(m.copied-m.checked), nil
}

// copyNext copies the next commit.
func (m *Move) copyNext(ctx context.Context) (err error) {
	if m.reading == nil {
		if m.reading, err = m.from.Tail(ctx, m.copied+1, TailOptions{}); err != nil {
			return err
		}
	}
	c, err := m.reading.Next(ctx)
	if err != nil {
		return err
	}
	// The copy uses the append that resolves every outcome. Another process that copies may
	// have been faster: then the commit in the way has this id, and Append succeeds.
	if m.copied, err = m.to.Append(ctx, c.LSN-1, c.ID, m.reading.Data()); err != nil {
		// The tail is behind c already, so the next try needs a new one.
		m.copied = c.LSN - 1
		m.reading.Close()
		m.reading = nil
		return err
	}
	m.copiedSum = c.Sum
	return nil
}

// readBackNext reads the next commit of the new stream back. The tail verifies the chain: each
// commit holds the checksum of the one before. So only the last one must be compared with
// the old stream.
func (m *Move) readBackNext(ctx context.Context) (err error) {
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

// FinishMove finishes the move of a log whose old stream was closed, by this process or by
// another, and reports whether the log has moved. An owner calls it after it has read the
// log to its end and before its first append: behind the closing commit only the new
// stream may be written to. FinishMove deletes the old stream.
func (l *Log) FinishMove(ctx context.Context) (moved bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("finish the move of the log of partition %s: %w", l.p, err)
		}
	}()
	info, err := l.verifiedInfo(ctx)
	if err != nil || l.api.at.Load() == movedLocation || !info.Config.DenyPurge {
		return false, err
	}
	m := &Move{from: l.pin(firstLocation), to: l.pin(movedLocation)}
	defer m.Close()
	closing, data, err := m.closingCommit(ctx)
	if errors.Is(err, ErrNoLog) && l.api.followMove(ctx) { // another has finished it
		return true, nil
	}
	if err != nil || data == nil {
		return false, err
	}
	err = m.inspectCopy(ctx, data.Checked)
	// Somebody has deleted the copy. The old stream is still whole: begin again.
	if errors.Is(err, ErrNoLog) {
		if err = m.create(ctx, data.First); err == nil {
			err = m.inspectCopy(ctx, 0)
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
		err = m.switchOver(ctx)
	}
	// Another process has finished first and deleted the old stream.
	if errors.Is(err, ErrNoLog) && l.api.followMove(ctx) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if !l.api.followMove(ctx) {
		return false, fmt.Errorf("%w: stream %s, which holds it now, does not answer", ErrNoLog, m.to.api.stream())
	}
	return true, nil
}

// finishStep is how many commits FinishMove copies before it reads them back.
const finishStep = 256

// closingCommit returns the last commit of the old stream, and what it says of the new one; data
// is nil if it is not a closing commit.
func (m *Move) closingCommit(ctx context.Context) (c *Commit, data *MoveData, err error) {
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

// switchOver makes the copy the log. It labels the copy as the log first, then deletes the old
// stream. Between the two both are labelled, and everybody still uses the old one, which
// is closed; the other order would leave no log for a moment, or for ever after a crash.
func (m *Move) switchOver(ctx context.Context) error {
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
	// After the deletion the copy alone holds the commits, so both streams are asked once
	// more, and each must end exactly where the log was closed.
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
