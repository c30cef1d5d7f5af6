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

// TrimmedError says that a commit which was asked for has been trimmed: the log now begins
// behind it, and its effect was in a snapshot before it went. The log is not damaged, and
// waiting does not bring the commit back. A reader continues from First, or begins again
// with the items that are there. errors.Is reports it as ErrNotFound too.
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
	return fmt.Sprintf("feed: partition %s: LSN %d was trimmed from the log, which now begins at LSN %d", e.Partition, e.Want, e.First)
}

// Is makes a TrimmedError an ErrNotFound.
func (e *TrimmedError) Is(target error) bool { return target == ErrNotFound }

// ErrUntrimmable says that a log can never be trimmed: its stream was made by an earlier
// release with DenyPurge, which JetStream never takes back. See Log.BeginMove.
var ErrUntrimmable = errors.New("feed: stream denies purging")

// Trim removes the commits up to and including an LSN, and returns how many it removed. A
// commit that is in the log must have that LSN or a greater one as its trim point, so that
// readers learn that the commits may be gone. The server's store does nothing else during
// a purge, so callers trim in steps. The error is ErrUntrimmable if the log can never be
// trimmed, and otherwise as of Bounds.
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
	m, err := l.api.requestOnce(ctx, "STREAM.PURGE."+l.api.stream(), fmt.Appendf(nil, `{"seq":%d}`, upTo+1))
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
	return l.api.leaderMessage(ctx, func(at location) []byte { return fmt.Appendf(nil, `{"last_by_subj":%q}`, at.subject) })
}

// trimPoint returns the trim point that the last commit of the log carries, zero if that commit
// cannot be read. Every commit repeats the trim point, and the last one is never trimmed,
// so one look at the end tells how much of the beginning may be gone.
func (l *Log) trimPoint(ctx context.Context) (LSN, error) {
	at, data, err := l.lastData(ctx)
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	h, err := DecodeHeader(data)
	// A later release wrote it. Zero would make a trim look like damage, so this is an error.
	if _, later := errors.AsType[*VersionError](err); later {
		return 0, err
	}
	if err != nil || h.Log != l.id {
		return 0, nil //nolint:nilerr // the commit is damaged: a reader that comes to it says so
	}
	l.knownTrim.Store(&knownTrim{at, h.Trimmed})
	return h.Trimmed, nil
}

// knownTrim is the trim point that the commit at an LSN carries.
type knownTrim struct{ at, trimmed LSN }

// knownTrimPoint returns the trim point of a log that ends at last, if trimPoint has read that
// commit before: a commit does not change, so neither does what it carries.
func (l *Log) knownTrimPoint(last LSN) (trimmed LSN, known bool) {
	if k := l.knownTrim.Load(); k != nil && k.at == last {
		return k.trimmed, true
	}
	return 0, false
}

// missingError returns the error of a log in which want is not there and got is the next LSN
// that is, 0 if none is: *TrimmedError or *GapError. Any other error says that the trim
// point could not be read, so that neither is known.
//
//	trim point 9   want 4, got 7   trimmed: the purge has come to 6
//	               want 4, got 10  trimmed
//	               want 4, got 12  10 and 11 are missing
//	               want 10, got 12 10 and 11 are missing
func (l *Log) missingError(ctx context.Context, want, got LSN) error {
	trimmed, err := l.trimPoint(ctx)
	switch {
	case err != nil:
		return err
	case want > trimmed:
		return &GapError{Partition: l.p, Stream: l.api.stream(), Want: want, Got: got}
	case got == 0 || got > trimmed+1:
		return &GapError{Partition: l.p, Stream: l.api.stream(), Want: trimmed + 1, Got: got}
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

// LastBefore returns the last LSN, at most upTo, whose commit's time is before t. If no commit
// that is kept is so old, it returns one below the first that is kept. upTo must be in the
// log or below its first LSN.
func (l *Log) LastBefore(ctx context.Context, t time.Time, upTo LSN) (LSN, error) {
	first, _, err := l.Bounds(ctx)
	if err != nil {
		return 0, err
	}
	millis := ceilMillis(t)
	if upTo < first {
		return first - 1, nil
	}
	// Most often all commits are old enough, which one request tells. The search makes about
	// 20 requests in a log of a million commits.
	if at, err := l.Time(ctx, upTo); err != nil || at.UnixMilli() < millis {
		return upTo, err
	}
	next, err := l.search(ctx, first, upTo, millis)
	return next - 1, err
}

// oldestTries is how many times Oldest asks. Each request is answered by one of three
// replicas at random, so all of them miss a given one with probability (2/3)^28, about
// once in 100,000 times.
const oldestTries = 28

// Oldest returns the lowest LSN that any replica of the log still holds, as far as the
// replicas that happened to answer tell; 0 if none has a commit. JetStream lets any replica
// answer a direct get. A purge that failed on a follower is known to that server alone;
// it shows here by an LSN that stays below the first of Bounds.
func (l *Log) Oldest(ctx context.Context) (LSN, error) {
	oldest := LSN(0)
	at := l.api.location()
	query := fmt.Appendf(nil, `{"seq":1,"next_by_subj":%q}`, at.subject)
	for range oldestTries {
		m, err := l.api.requestMessage(ctx, "DIRECT.GET."+at.stream, query)
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
