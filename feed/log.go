package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Names in the metadata of a log's stream.
const (
	metadataLog       = "millrace.log"
	metadataPartition = "millrace.partition"
)

// duplicatesWindow is the shortest that JetStream accepts. Nothing depends on it: expected
// sequences detect duplicates.
const duplicatesWindow = 100 * time.Millisecond

// messagesNoLimit is a limit that no log reaches.
const messagesNoLimit = 1 << 53

// Codes of JetStream's API errors.
const (
	codeUnavailable           jetstream.ErrorCode = 10008 // the cluster, or the stream, has no leader
	codeInsufficientResources jetstream.ErrorCode = 10023
	codeNoMessage             jetstream.ErrorCode = 10037
	codeMessageTooLarge       jetstream.ErrorCode = 10054
	codeStreamInUse           jetstream.ErrorCode = 10058
	codeStreamNotFound        jetstream.ErrorCode = 10059
	codeStoreFailed           jetstream.ErrorCode = 10077 // the message is what the file store said
	codeRefused               jetstream.ErrorCode = 19990 // of package guard, which answers readers
	// A single stream and a replicated one refuse a wrong last sequence with
	// different codes.
	codeWrongSequence           jetstream.ErrorCode = 10071
	codeWrongSequenceReplicated jetstream.ErrorCode = 10164
)

// LogConfig tunes logs. Zero fields take their defaults.
type LogConfig struct {
	// Replicas is how many servers hold a log. Stores bring logs and buckets that
	// have fewer to that number. Default 1; an odd number, at most 5.
	Replicas int `yaml:"replicas"`

	// Compression compresses the files of a new log (S2). It saves disk and
	// costs CPU on each append. Default off.
	Compression bool `yaml:"compression"`

	// AppendTimeout is how long at most one try of an append waits for its answer
	// before the same bytes are sent again: the server that was to answer may be
	// gone, and another is elected without a word. The first try waits for as long as
	// answers take here, 100ms at least and longer for a large commit, and each
	// further one twice as long as the one before. Default 2s.
	AppendTimeout time.Duration `yaml:"appendTimeout"`

	// Labels are kept with the stream of a new log, as metadata, beside what tells
	// which log it is. All of it may have 128 KiB.
	Labels map[string]string `yaml:"-"`

	// After is the LSN of the last commit of the log that a new log continues, as in a
	// restore: the new log begins at After+1, and its first commit must have After as its
	// trim point. Default 0, a log that begins at 1.
	After LSN `yaml:"-"`

	// Cache is what all logs of the process share, so that its tails get what it appends without
	// reading it from the stream. Default nil: all is read from the stream.
	Cache *TailCache `yaml:"-"`
}

// CreateLog makes the stream of a partition's log, on file storage. No single commit can be
// deleted from it, but its beginning can be trimmed (Trim). If the log id is there already,
// in the stream in which it began or in the one to which it has moved, nothing changes. If
// another log is there, the error is *MismatchError.
func CreateLog(ctx context.Context, js jetstream.JetStream, p Partition, id LogID, cfg LogConfig) error {
	// A maker that was late may come when the log has moved. An empty stream of the first name would
	// hide all that the log holds.
	if moved, err := hasMoved(ctx, js, p, id); moved || err != nil {
		return err
	}
	_, err := js.CreateStream(ctx, streamConfig(p, id, cfg))
	if err == nil {
		return nil
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); !ok || api.ErrorCode != codeStreamInUse {
		return fmt.Errorf("create log of partition %s: %w", p, err)
	}
	// JetStream accepts a stream that is there with an equal configuration, and refuses one
	// that differs, as by labels that were changed since. The log id tells whether it is
	// this log.
	l, err := OpenLog(ctx, js, p, cfg)
	if err != nil {
		return fmt.Errorf("create log of partition %s: %w", p, err)
	}
	if l.id != id {
		return l.another(id)
	}
	return nil
}

// another is the error where a log is there that is not id.
func (l *Log) another(id LogID) error {
	return &MismatchError{Partition: l.p, Stream: l.api.stream(), What: "log " + l.id.String() + " is there, not " + id.String()}
}

// hasMoved tells whether the log id is in the stream to which a log moves.
func hasMoved(ctx context.Context, js jetstream.JetStream, p Partition, id LogID) (bool, error) {
	began := newAPI(js, p)
	l := &Log{js: js, api: began.pin(movedLocation), p: p}
	info, err := l.api.info(ctx)
	if errors.Is(err, ErrNoLog) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("create log of partition %s: %w", p, err)
	}
	if l.id, err = info.logID(); err != nil {
		return false, nil //nolint:nilerr // an unfinished copy: the log is where it began
	}
	if l.id != id {
		return false, l.another(id)
	}
	return true, nil
}

func streamConfig(p Partition, id LogID, cfg LogConfig) jetstream.StreamConfig {
	stream := jetstream.StreamConfig{
		Name:        p.Stream(),
		Description: "Millrace: log of partition " + p.String(),
		Subjects:    []string{p.Subject()},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Replicas:    cmp.Or(cfg.Replicas, 1),
		MaxMsgs:     -1,
		MaxBytes:    -1,
		MaxMsgSize:  -1,
		// This limit is never reached; it is set for its effect on memory. JetStream stores a
		// stream with such a limit in blocks of 4 MiB instead of 8, and it keeps the block
		// that it writes, and each block that somebody reads, in memory whole.
		MaxMsgsPerSubject: messagesNoLimit,
		Duplicates:        duplicatesWindow,
		// Not DenyPurge, which JetStream never takes back: an owner trims its log.
		DenyDelete:  true,
		AllowDirect: true,
		Metadata:    map[string]string{metadataLog: id.String(), metadataPartition: p.String()},
	}
	if cfg.After > 0 {
		stream.FirstSeq = uint64(cfg.After) + 1
	}
	maps.Copy(stream.Metadata, cfg.Labels)
	if cfg.Compression {
		stream.Compression = jetstream.S2Compression
	}
	return stream
}

// DeleteLog deletes the streams of a partition's log with all that they hold. It
// is no error if there is none.
func DeleteLog(ctx context.Context, js jetstream.JetStream, p Partition) error {
	// The new stream goes last: while the log moves, its owner checks that the old one is there.
	for _, at := range p.locations() {
		err := js.DeleteStream(ctx, at.stream)
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete log of partition %s: %w", p, err)
		}
	}
	return nil
}

// Log is the log of one physical partition, as one process sees it. Append is
// for its owner alone and is not called concurrently; everything else may be.
type Log struct {
	js  jetstream.JetStream
	api api
	p   Partition
	id  LogID
	cfg LogConfig
	// acceptCopy says that a stream which is labelled as a copy of the log is accepted as the
	// log; see Move.
	acceptCopy bool

	answers  *answers   // of appends; nil before the first
	appended *cachedLog // holds what was appended for the tails of the process; nil before the first, and without a cache
	unknown  CommitID   // whose append ended with ErrUnknown
	patience patience   // with answers to appends

	asking chan struct{} // holds a token while BoundsSince asks
	known  bounds        // what it learned last; belongs to whoever has put the token there

	// expansion is how many times as many bytes the last page had when it was decompressed, in
	// per cent; 0 before the first.
	expansion atomic.Int64

	knownTrim atomic.Pointer[knownTrim] // what trimPoint read last; nil before the first

	// lose is set by tests: it reports whether a message that arrived is to be
	// treated as if it had not.
	lose func(*nats.Msg) bool
}

// bounds are what a request learned that began and ended at two moments.
type bounds struct {
	began, ended time.Time
	first, last  LSN
	err          error
}

// OpenLog finds the log of a partition. It never creates one: the error is
// ErrNoLog if there is none, and *MismatchError if the stream is not a log.
func OpenLog(ctx context.Context, js jetstream.JetStream, p Partition, cfg LogConfig) (*Log, error) {
	cfg.AppendTimeout = cmp.Or(cfg.AppendTimeout, 2*time.Second)
	l := &Log{js: js, api: newAPI(js, p), p: p, cfg: cfg, asking: make(chan struct{}, 1)}
	info, err := l.api.info(ctx)
	if err != nil {
		return nil, fmt.Errorf("open log of partition %s: %w", p, err)
	}
	if l.id, err = info.logID(); err != nil {
		return nil, &MismatchError{Partition: p, Stream: l.api.stream(), What: err.Error()}
	}
	return l, nil
}

// ID is the identity of the log that OpenLog found.
func (l *Log) ID() LogID { return l.id }

// Stream is the name of the stream that holds the log, as far as is known: a log may go on in
// a new one.
func (l *Log) Stream() string { return l.api.stream() }

// Read returns the commit at lsn, after verifying its checksum and that it
// belongs to this log. The error is ErrNotFound if the log has no commit
// there, *TrimmedError, which is ErrNotFound too, if it was trimmed, *FormatError
// or *VersionError if its bytes cannot be read, and *MismatchError if it is of
// another log.
func (l *Log) Read(ctx context.Context, lsn LSN) (*Commit, error) {
	data, err := l.fetch(ctx, lsn)
	// A commit below the first may be trimmed or lost, which missingError distinguishes. One
	// behind the last is merely not there yet.
	if errors.Is(err, ErrNotFound) {
		if first, _, bounds := l.Bounds(ctx); bounds == nil && lsn < first {
			if trimmed, ok := errors.AsType[*TrimmedError](l.missingError(ctx, lsn, first)); ok {
				return nil, trimmed
			}
		}
	}
	if err != nil {
		return nil, err
	}
	return l.decode(lsn, data)
}

// Bounds returns the LSNs of the first and the last commit. In an empty log
// last is one below first.
func (l *Log) Bounds(ctx context.Context) (first, last LSN, err error) {
	info, err := l.verifiedInfo(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("bounds of partition %s: %w", l.p, err)
	}
	return info.State.First, info.State.Last, nil
}

// BoundsSince is Bounds for many who share a Log and ask again and again: they get what one of
// them has learned, if its request began at since or later. A caller that comes while another
// one asks waits for the answer to that. If the ctx of the one that asks ends, the others do
// not get its error.
//
// All pipelines of a process read a container through one Log. Each measures its lag every
// second, and answering one request costs the server more than reading a commit.
func (l *Log) BoundsSince(ctx context.Context, since time.Time) (first, last LSN, err error) {
	b := l.boundsSince(ctx, since)
	return b.first, b.last, b.err
}

func (l *Log) boundsSince(ctx context.Context, since time.Time) bounds {
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return bounds{ended: time.Now(), err: fmt.Errorf("bounds of partition %s: %w", l.p, context.Cause(ctx))}
	}
	if !l.known.began.Before(since) {
		return l.known
	}
	now := bounds{began: time.Now()}
	now.first, now.last, now.err = l.Bounds(ctx)
	now.ended = time.Now()
	if ctx.Err() == nil {
		l.known = now
	}
	return now
}

// Close frees what Append holds. It may be called twice; Append opens it
// again.
func (l *Log) Close() {
	if l.answers != nil {
		l.answers.close(l.api.nc)
		l.answers = nil
	}
	if l.appended != nil {
		l.appended.stop(l)
		l.appended.release()
		l.appended = nil
	}
}

// fetch returns the bytes of the commit at lsn.
func (l *Log) fetch(ctx context.Context, lsn LSN) ([]byte, error) {
	data, err := l.api.message(ctx, lsn)
	if err != nil {
		return nil, fmt.Errorf("read partition %s at LSN %d: %w", l.p, lsn, err)
	}
	return data, nil
}

// decode reads a commit and verifies that it is of this log.
func (l *Log) decode(lsn LSN, data []byte) (*Commit, error) {
	c, err := DecodeCommit(data)
	if err != nil {
		return nil, fmt.Errorf("partition %s at LSN %d: %w", l.p, lsn, err)
	}
	if c.Log != l.id {
		return nil, &MismatchError{Partition: l.p, Stream: l.api.stream(), LSN: lsn, What: "commit of log " + c.Log.String() + ", this is log " + l.id.String()}
	}
	// The commit that raises the trim point must survive the purge, or nobody could tell a
	// trim from damage.
	if c.Trimmed >= lsn {
		return nil, &MismatchError{Partition: l.p, Stream: l.api.stream(), LSN: lsn, What: "commit says that LSN " + c.Trimmed.String() + " may be gone, which is not before it"}
	}
	c.LSN = lsn
	return c, nil
}

// verifiedInfo returns the stream's state after checking that the stream is this log. The
// error is *MismatchError if it is another, and ErrNoLog if there is none.
func (l *Log) verifiedInfo(ctx context.Context) (*streamInfo, error) {
	info, err := l.api.info(ctx)
	if err != nil {
		return nil, err
	}
	id, err := info.logID()
	if copied := info.Config.Metadata[metadataCopy]; err != nil && l.acceptCopy && copied != "" {
		id, err = ParseLogID(copied)
	}
	if err != nil {
		return nil, &MismatchError{Partition: l.p, Stream: l.api.stream(), LSN: info.State.Last, What: err.Error()}
	}
	if id != l.id {
		return nil, &MismatchError{Partition: l.p, Stream: l.api.stream(), LSN: info.State.Last, What: "log " + id.String() + " stands in place of " + l.id.String()}
	}
	return info, nil
}

// movedBack is the error of a log that ends before an LSN that was there.
func (l *Log) movedBack(known, last LSN) error {
	return &MismatchError{Partition: l.p, Stream: l.api.stream(), LSN: known, What: "the log now ends at LSN " + strconv.FormatUint(uint64(last), 10)}
}
