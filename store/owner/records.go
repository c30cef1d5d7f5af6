package owner

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
)

// The kinds of records that a partition keeps beside its items; KEYS.md of
// store/engine says how their keys are stored.
const (
	recordProducer    = 'P' // by producer: the highest epoch, and where it is finished
	recordFanOut      = 'F' // by producer and source: progress
	recordIdempotency = 'I' // by idempotency key: what the transaction changed
	recordIdemTime    = 'J' // by time and idempotency key: when to forget it
	recordTombstone   = 'T' // by kind of tombstone and item: what is left of the item
	recordTombTime    = 'U' // by kind, time and item: when to forget it
	recordSplit       = 'S' // by nothing: the split that is prepared, and behind the split commit that it is done
	recordAccumulator = 'A' // by pipeline, generation and a key of their own: accumulators, pending rows
)

// recordPart names the part of a digest that a record is of, and returns what its value means. The parts are named for
// people, and in logs: package digest compares them by their names.
func recordPart(kind byte, value []byte) (part string, meaning []byte) {
	switch kind {
	case recordProducer:
		// Fields of earlier releases end earlier, and what is missing is zero: see decodeProducer.
		return "producers", bytes.TrimRight(value, "\x00")
	case recordFanOut:
		return "fan-outs", value
	case recordIdempotency, recordIdemTime:
		return "idempotency keys", value
	case recordTombstone, recordTombTime:
		return "tombstones", value
	case recordSplit:
		return "split", value
	case recordAccumulator:
		return "accumulators", value
	}
	return fmt.Sprintf("records %q", kind), value
}

// producerState is what a partition remembers of a producer.
type producerState struct {
	Epoch uint64 // highest seen
	// Finished is the source position below which the producer has nothing left
	// to do: records of its finished fan-outs below it are forgotten, and a page
	// that comes from there is late.
	Finished feed.Position
	// Position is the source position up to which its intervals are folded.
	Position feed.Position
}

// decodeProducer reads what encode wrote. Fields behind the end of value are zero, so no
// record at all is the zero state.
func decodeProducer(value []byte) (s producerState) {
	for _, field := range [...]func(uint64){
		func(v uint64) { s.Epoch = v },
		func(v uint64) { s.Finished.LSN = feed.LSN(v) },
		func(v uint64) { s.Finished.Index = uint32(v) },
		func(v uint64) { s.Position.LSN = feed.LSN(v) },
		func(v uint64) { s.Position.Index = uint32(v) },
	} {
		v, n := binary.Uvarint(value)
		value = value[max(n, 0):]
		field(v)
	}
	return s
}

func (s producerState) encode() []byte {
	b := binary.AppendUvarint(nil, s.Epoch)
	b = binary.AppendUvarint(b, uint64(s.Finished.LSN))
	b = binary.AppendUvarint(b, uint64(s.Finished.Index))
	b = binary.AppendUvarint(b, uint64(s.Position.LSN))
	return binary.AppendUvarint(b, uint64(s.Position.Index))
}

// fence refuses a producer whose lease has passed on, and a part of the work of such a
// producer. It returns what the partition remembers of the producer; plant says that the
// epoch is new here and must be committed.
func (v *view) fence(p feed.Producer, epoch uint64) (known producerState, plant bool, refusal *store.Error) {
	if p.Pipeline == "" || epoch == 0 {
		return known, false, store.Refuse(store.StatusBadRequest, "a pipeline's write names its producer and lease epoch")
	}
	// A part of the work, such as a backfill, is a producer of its own, with an epoch of its own. It
	// must not outlive the lease of the whole, whose epoch stands under the parent.
	if parent, _, ok := p.Parent(); ok {
		if _, refusal := v.known(parent, epoch); refusal != nil {
			return known, false, refusal
		}
	}
	known, refusal = v.known(p, epoch)
	return known, known.Epoch < epoch, refusal
}

// known returns what is remembered of a producer, and refuses an epoch older than that.
func (v *view) known(p feed.Producer, epoch uint64) (known producerState, refusal *store.Error) {
	value, err := v.record(recordProducer, p.String())
	if err != nil {
		return known, store.Refuse(store.StatusInternal, "producer %s: %v", p, err)
	}
	if known = decodeProducer(value); known.Epoch > epoch {
		refusal := store.Refuse(store.StatusFenced,
			"producer %s writes under lease epoch %d, the partition has seen %d: the lease has passed on", p, epoch, known.Epoch)
		refusal.Epoch = known.Epoch
		return known, refusal
	}
	return known, nil
}

// An idempotency record is the LSN of the transaction, then for each change that
// is not an expiry its index in the commit and its op. Changes that follow from
// rules come last.

func encodeIdempotency(lsn feed.LSN, first int, changes []feed.Change) []byte {
	buf := binary.AppendUvarint(nil, uint64(lsn))
	for i := range changes {
		if changes[i].Op != feed.OpExpire {
			buf = binary.AppendUvarint(buf, uint64(first+i))
			buf = append(buf, byte(changes[i].Op))
		}
	}
	return buf
}

// remembered answers a transaction that the log already holds under its
// idempotency key, or a commit that is on its way there; nil if none does.
//
// A refusal is not remembered: a later attempt is decided anew. So it must be of the last attempt under way, which it is
// where they come in order, for they are queued, and decided, in the order in which they came (turns):
//
//	decided, not in the log yet    the overlay has the record. The second answer leaves with its own draft, so behind
//	                               the commit of the first; where that is not appended, both are told so
//	in the queue                   the first is decided first
//	postponed                      nothing else is decided before
func (v *view) remembered(r *store.Transact) (*store.TransactResult, *store.Error) {
	if r.IdempotencyKey == "" {
		return nil, nil
	}
	value, err := v.record(recordIdempotency, r.IdempotencyKey)
	if err != nil {
		return nil, store.Refuse(store.StatusInternal, "idempotency key: %v", err)
	}
	if value == nil {
		return nil, nil
	}
	lsn, n := binary.Uvarint(value)
	value = value[max(n, 0):]
	result := &store.TransactResult{LSN: feed.LSN(lsn), Results: make([]store.OpResult, len(r.Ops))}
	for i := range r.Ops {
		res := &result.Results[i]
		res.Status = store.StatusOK
		res.Item = store.Item{Key: r.Key, ID: opID(&r.Ops[i])}
		if r.Ops[i].Kind == store.OpRead {
			continue
		}
		index, n := binary.Uvarint(value)
		if n <= 0 || len(value) <= n {
			return nil, store.Refuse(store.StatusConflict,
				"idempotency key %q was used for another transaction; choose a new key", r.IdempotencyKey)
		}
		switch feed.Op(value[n]) { //nolint:exhaustive // a replace is 200, and an expiry is not recorded
		case feed.OpCreate:
			res.Status = store.StatusCreated
		case feed.OpDelete:
			res.Status = store.StatusNoContent
		}
		if res.Status != store.StatusNoContent {
			res.Item.ETag = store.ETag{LSN: feed.LSN(lsn), Index: uint32(index)}
		}
		value = value[n+1:]
	}
	return result, v.giveRuleETags(r, result, value)
}

// opID is the id of the item of an operation.
func opID(op *store.Operation) string {
	if op.ID != "" || op.Body == nil {
		return op.ID
	}
	id, _ := document.ID(op.Body)
	return id
}

// giveRuleETags gives results the ETags that rules have given their items afterwards in
// the same transaction, as the first answer did. rest are the changes by rules. An
// item that has changed since keeps the ETag of the operation, which is old anyway.
func (v *view) giveRuleETags(r *store.Transact, result *store.TransactResult, rest []byte) *store.Error {
	// rest lists what rules changed, last. The greatest index in it is where the transaction
	// ends in its commit: a later position is another transaction's.
	last := -1
	for len(rest) > 0 {
		index, n := binary.Uvarint(rest)
		if n <= 0 || len(rest) <= n {
			break
		}
		last, rest = int(index), rest[n+1:]
	}
	seen := map[string]bool{} // only the last operation on an item is passed
	for i := len(r.Ops) - 1; i >= 0 && last >= 0; i-- {
		item := &result.Results[i].Item
		if r.Ops[i].Kind == store.OpRead || seen[item.ID] {
			continue
		}
		seen[item.ID] = true
		now, err := v.item(r.Key, item.ID, engine.ItemKey(r.Key, item.ID))
		if err != nil {
			return store.Refuse(store.StatusInternal, "read item %s: %v", item.ID, err)
		}
		if now != nil && item.ETag != (store.ETag{}) && now.Position.LSN == result.LSN && int(now.Position.Index) <= last {
			item.ETag = store.ETag(now.Position)
		}
	}
	return nil
}

// remember makes the transaction's outcome findable by its idempotency key
// before it is applied.
func (t *txn) remember(key string) {
	if key != "" {
		t.setRecord(recordIdempotency, key, encodeIdempotency(t.lsn, t.draft.changes, t.changes))
	}
}

func idemTimeKey(at int64, key string) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(at)), key...)
}

// fanOut is the recorded progress of one fan-out of one producer.
type fanOut struct {
	Position feed.Position // version of the source that its pages carry
	Cursor   []byte        // item key of the last item looked at; nil at the start
	Takeover []byte        // where Position took over from an older one; nil at the start
	Wrapped  bool          // the scan has come to the end and begun again
	Done     bool
	Planted  feed.LSN // commit that recorded Position first
}

func fanOutKey(p feed.Producer, source string) string { return p.String() + "\x00" + source }

const fanOutVersion = 1

func (f *fanOut) encode() []byte {
	flags := byte(0)
	if f.Wrapped {
		flags |= 1
	}
	if f.Done {
		flags |= 2
	}
	buf := []byte{fanOutVersion, flags}
	buf = binary.AppendUvarint(buf, uint64(f.Position.LSN))
	buf = binary.AppendUvarint(buf, uint64(f.Position.Index))
	buf = binary.AppendUvarint(buf, uint64(f.Planted))
	buf = binary.AppendUvarint(buf, uint64(len(f.Cursor)))
	buf = append(buf, f.Cursor...)
	return append(buf, f.Takeover...)
}

func decodeFanOut(b []byte) (*fanOut, error) {
	if len(b) < 2 || b[0] != fanOutVersion {
		return nil, fmt.Errorf("fan-out record of %d bytes is not of version %d", len(b), fanOutVersion)
	}
	f := &fanOut{Wrapped: b[1]&1 != 0, Done: b[1]&2 != 0}
	b = b[2:]
	var v [4]uint64
	for i := range v {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errors.New("fan-out record ends early")
		}
		v[i], b = x, b[n:]
	}
	if v[3] > uint64(len(b)) {
		return nil, errors.New("fan-out record ends early")
	}
	f.Position = feed.Position{LSN: feed.LSN(v[0]), Index: uint32(v[1])}
	f.Planted = feed.LSN(v[2])
	if v[3] > 0 {
		f.Cursor = b[:v[3]:v[3]]
	}
	if rest := b[v[3]:]; len(rest) > 0 {
		f.Takeover = rest
	}
	return f, nil
}

func (v *view) fanOut(p feed.Producer, source string) (*fanOut, *store.Error) {
	value, err := v.record(recordFanOut, fanOutKey(p, source))
	if err != nil {
		return nil, store.Refuse(store.StatusInternal, "fan-out of %s: %v", source, err)
	}
	if value == nil {
		return nil, nil
	}
	f, err := decodeFanOut(value)
	if err != nil {
		return nil, store.Refuse(store.StatusInternal, "fan-out of %s: %v", source, err)
	}
	return f, nil
}

// What a partition's log says of a split, as a record of the engine keeps it:
//
//	prepare ──▶ prepared ──▶ split: the log has ended
//	               └──▶ abandon: no owner splits under that id

// splitError says that the log of a partition ends with its split.
type splitError struct {
	split *feed.Split
	last  applied
}

func (e *splitError) Error() string {
	return fmt.Sprintf("the partition was split at LSN %d (%s)", e.last.lsn, e.split.ID)
}

// What the record of a split begins with.
const (
	splitPrepared  = 'p'
	splitAbandoned = 'a'
	splitEnded     = 'e'
)

// applySplit keeps what a control transaction says of a split.
func applySplit(b *engine.Batch, c *feed.Control) error {
	switch c.Kind {
	case feed.ControlPrepareSplit:
		return b.PutRecord(recordSplit, nil, append([]byte{splitPrepared}, c.Data...))
	case feed.ControlSplit:
		return b.PutRecord(recordSplit, nil, append([]byte{splitEnded}, c.Data...))
	case feed.ControlAbandonSplit:
		return b.PutRecord(recordSplit, nil, append([]byte{splitAbandoned}, c.Data...))
	}
	return nil
}

// abandonedSplit is the data of a control transaction that gives up a split. From then on no owner splits under its id.
type abandonedSplit struct {
	Version int    `json:"v"`
	ID      string `json:"id"`
	Why     string `json:"why"`
}

// abandon gives up a split. The caller has a draft that takes more.
func (d *decider) abandon(id, why string) error {
	data, err := json.Marshal(abandonedSplit{1, id, why})
	if err != nil {
		return err
	}
	d.draft.txns = append(d.draft.txns, feed.Transaction{Control: &feed.Control{Kind: feed.ControlAbandonSplit, Data: data}})
	d.draft.bytes += transactionOverhead
	d.split = splitRecord{abandoned: &abandonedSplit{ID: id, Why: why}}
	return nil
}

// splitRecord is what a partition's log says of a split.
type splitRecord struct {
	split     *feed.Split // nil if none is prepared, and none has ended the log
	ended     bool
	abandoned *abandonedSplit // the last that was; nil if none was since the last that was prepared
}

func readSplit(s *engine.Snapshot) (r splitRecord, err error) {
	value, ok, err := s.Record(recordSplit, nil)
	if err != nil || !ok || len(value) == 0 {
		return r, err
	}
	if value[0] == splitAbandoned {
		r.abandoned = &abandonedSplit{}
		return r, json.Unmarshal(value[1:], r.abandoned)
	}
	r.split, err = feed.DecodeSplit(value[1:])
	r.ended = value[0] == splitEnded
	return r, err
}

// splitDone returns the split with which a partition's log ends; nil if it goes on.
func splitDone(p *engine.Partition) (*feed.Split, error) {
	s := p.Snapshot()
	defer s.Close()
	r, err := readSplit(s)
	if err != nil || !r.ended {
		return nil, err
	}
	return r.split, nil
}

// findSplit notes what was applied of a split, of which decisions go on.
func (d *decider) findSplit() {
	r, err := readSplit(d.snap)
	if err != nil {
		d.p.engine.Fail(err)
	}
	d.split = r
}

// showSplit shows what is applied of a split to all who act on it. What is merely decided may never be in the log.
func (p *Partition) showSplit() {
	snap := p.engine.Snapshot()
	defer snap.Close()
	r, err := readSplit(snap)
	if err != nil {
		p.engine.Fail(err)
		return
	}
	p.split.Store(&r)
}

// ofSplits says whether a commit says anything of a split.
func ofSplits(c *feed.Commit) bool {
	for i := range c.Transactions {
		if k := c.Transactions[i].Control; k != nil {
			switch k.Kind {
			case feed.ControlPrepareSplit, feed.ControlSplit, feed.ControlAbandonSplit:
				return true
			}
		}
	}
	return false
}

// splitting returns the split that is prepared, as of what was applied; nil if none is.
func (p *Partition) splitting() *feed.Split {
	if r := p.split.Load(); r != nil && !r.ended {
		return r.split
	}
	return nil
}

// gaveUp says whether a split was given up, as of what was applied.
func (p *Partition) gaveUp(id string) bool {
	r := p.split.Load()
	return r != nil && r.abandoned != nil && r.abandoned.ID == id
}

// abandonLateSplit gives up a split that is prepared when half of the LSNs up to those of the children are used.
func (d *decider) abandonLateSplit() {
	split := d.split.split
	if split == nil || d.draft.lsn+splitRoom/2 < split.First {
		return
	}
	if err := d.abandon(split.ID, "the first LSN of its children came near; ask for it again"); err != nil {
		d.p.log.Error("a split could not be given up", "error", err)
	}
}
