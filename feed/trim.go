package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TrimmedError says that a log does not begin before an LSN that somebody asks for,
// because it was trimmed: what is gone was in a snapshot before it went. It is no
// damage, and waiting does not bring it back. A reader goes on from First, or begins
// anew from the items that are there. It is ErrNotFound too.
type TrimmedError struct {
	Partition Partition
	// Want is the LSN that was asked for, First the first one that is kept; 0 if there is no
	// such log any more, because its container was restored into another.
	Want, First LSN
}

func (e *TrimmedError) Error() string {
	if e.First == 0 {
		return fmt.Sprintf("feed: partition %s: LSN %d is in no log any more", e.Partition, e.Want)
	}
	return fmt.Sprintf("feed: partition %s: LSN %d was trimmed from stream %s, whose log now begins at LSN %d",
		e.Partition, e.Want, e.Partition.Stream(), e.First)
}

// Is makes a TrimmedError an ErrNotFound.
func (e *TrimmedError) Is(target error) bool { return target == ErrNotFound }

// ErrUntrimmable says that a log can never be trimmed: its stream was made by a release
// that let JetStream deny purges, which it never takes back.
var ErrUntrimmable = errors.New("feed: stream denies purging")

// Trim removes the commits up to an LSN, the trim point of a commit that is in the log
// already: whoever reads the log learns from it that they may be gone. They go at once,
// and the server's store stands still meanwhile, so callers trim in steps. It returns how
// many went. The error is ErrUntrimmable if the log can never be trimmed, and of Bounds.
func (l *Log) Trim(ctx context.Context, upTo LSN) (purged uint64, err error) {
	info, err := l.verifiedInfo(ctx)
	switch {
	case err != nil:
		return 0, fmt.Errorf("trim partition %s: %w", l.p, err)
	case info.Config.DenyPurge:
		return 0, fmt.Errorf("trim partition %s: %w", l.p, ErrUntrimmable)
	case upTo >= info.State.Last:
		// A purge beyond the end would take all, and with it the trim point.
		return 0, fmt.Errorf("trim partition %s up to LSN %d: its log ends at %d", l.p, upTo, info.State.Last)
	case upTo < info.State.First:
		return 0, nil
	}
	m, err := l.api.request(ctx, "STREAM.PURGE."+l.api.stream(), fmt.Appendf(nil, `{"seq":%d}`, upTo+1))
	if err != nil {
		return 0, fmt.Errorf("trim partition %s: %w", l.p, err)
	}
	var answer struct {
		Error  *jetstream.APIError `json:"error"`
		Purged uint64              `json:"purged"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return 0, fmt.Errorf("trim partition %s: answer: %w", l.p, err)
	}
	if answer.Error != nil {
		return 0, fmt.Errorf("trim partition %s: %w", l.p, answer.Error)
	}
	return answer.Purged, nil
}

// lastData returns the last commit's LSN and bytes, or ErrNotFound.
func (l *Log) lastData(ctx context.Context) (LSN, []byte, error) {
	return l.api.leaderMessage(ctx, func(at place) []byte { return fmt.Appendf(nil, `{"last_by_subj":%q}`, at.subject) })
}

// trimPoint returns the trim point of the log as its last commit tells it, zero if that
// cannot be read. Every commit behind a trim repeats it, and the last one is never
// trimmed, so whoever has any of the log knows how much of its beginning may be gone.
func (l *Log) trimPoint(ctx context.Context) (LSN, error) {
	_, data, err := l.lastData(ctx)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	h, err := DecodeHeader(data)
	if _, later := errors.AsType[*VersionError](err); later {
		return 0, err
	}
	if err != nil || h.Log != l.id {
		return 0, nil //nolint:nilerr // the commit is damaged: who reads that far says so
	}
	return h.Trimmed, nil
}

// missing is the error of a log that does not have an LSN but the one at got, 0 if there
// is none: *TrimmedError or *GapError. Another error says that this is not known.
//
//	trim point 9   want 4, got 7   trimmed: the purge has come to 6
//	               want 4, got 10  trimmed
//	               want 4, got 12  10 and 11 are missing
//	               want 10, got 12 10 and 11 are missing
func (l *Log) missing(ctx context.Context, want, got LSN) error {
	trimmed, err := l.trimPoint(ctx)
	switch {
	case err != nil:
		return err
	case want > trimmed:
		return &GapError{Partition: l.p, Want: want, Got: got}
	case got == 0 || got > trimmed+1:
		return &GapError{Partition: l.p, Want: trimmed + 1, Got: got}
	}
	return &TrimmedError{Partition: l.p, Want: want, First: got}
}

// Time returns the time of the commit at lsn. The error is as of Read.
func (l *Log) Time(ctx context.Context, lsn LSN) (time.Time, error) {
	data, err := l.fetch(ctx, lsn)
	if err != nil {
		return time.Time{}, err
	}
	h, err := DecodeHeader(data)
	if err != nil {
		return time.Time{}, fmt.Errorf("partition %s at LSN %d: %w", l.p, lsn, err)
	}
	return time.UnixMilli(h.Time), nil
}

// LastBefore returns the last LSN up to one that is there whose commit's time is before t;
// one below the first that is kept if none is.
func (l *Log) LastBefore(ctx context.Context, t time.Time, upTo LSN) (LSN, error) {
	first, _, err := l.Bounds(ctx)
	if err != nil {
		return 0, err
	}
	millis := ceilMillis(t)
	if upTo < first {
		return first - 1, nil
	}
	// Most often all of it is old enough, which one look tells.
	if at, err := l.Time(ctx, upTo); err != nil || at.UnixMilli() < millis {
		return upTo, err
	}
	next, err := l.search(ctx, first, upTo, millis)
	return next - 1, err
}

// oldestTries is how often Oldest asks: of three replicas one is missed by all of them about
// once in 100,000 times.
const oldestTries = 28

// Oldest returns the lowest LSN that any replica of the log still holds, as far as those that
// happened to answer tell: whoever asks for a message without naming the leader is answered
// by any of them. A purge that failed on a follower is known to nobody but its server, and
// shows here by an LSN below the first of Bounds that stays.
func (l *Log) Oldest(ctx context.Context) (LSN, error) {
	oldest := LSN(0)
	at := l.api.place()
	query := fmt.Appendf(nil, `{"seq":1,"next_by_subj":%q}`, at.subject)
	for range oldestTries {
		m, err := l.api.request(ctx, "DIRECT.GET."+at.stream, query)
		if err != nil {
			return 0, fmt.Errorf("oldest commit of partition %s: %w", l.p, err)
		}
		n, err := strconv.ParseUint(m.Header.Get(headerSequence), 10, 64)
		if err != nil {
			continue // it has none
		}
		if lsn := LSN(n); oldest == 0 || lsn < oldest {
			oldest = lsn
		}
	}
	return oldest, nil
}
