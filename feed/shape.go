package feed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Stretch is a range of LSNs of a log, both ends included.
type Stretch struct{ From, To LSN }

// String prints "LSN 7" or "LSN 7 to 12".
func (r Stretch) String() string {
	if r.From == r.To {
		return fmt.Sprintf("LSN %d", r.From)
	}
	return fmt.Sprintf("LSN %d to %d", r.From, r.To)
}

// Shape is the extent of a log as its stream reports it: where it begins and ends, and which
// commits are missing in between. It costs one request while a log that lacks nothing
// keeps its end, else two or three. It shows only what the server knows to be gone:
// bytes that changed on the disk show when they are read.
type Shape struct {
	Log         LogID
	First, Last LSN // Last is one below First in an empty log
	Commits     uint64
	Bytes       uint64 // of all commits, with the server's overhead for each
	// Trimmed is the trim point: LSNs up to it may be gone and do not count as missing.
	// First is lower than Trimmed+1 during a trim, and after one that a crash cut short.
	Trimmed LSN
	// Untrimmable says that the stream denies purges, for ever.
	Untrimmable bool
	// Missing are the ranges between Begin and Last that the stream does not have, in order.
	// There are at most 1000; if there were more, the last one spans the rest.
	Missing []Stretch
	// Time is the server's clock when it answered.
	Time time.Time
	// Replicas are the servers beside the leader that hold a copy and are current.
	Replicas []string
}

// Begin is the LSN with which the log begins: the first one that it must hold, or the
// first one that it does hold if that is lower.
//
//	trim point 0   first 1   begins at 1
//	trim point 9   first 4   begins at 4: not all of it has gone yet
//	               first 10  begins at 10
//	               first 12  begins at 10, and misses 10 and 11
func (s *Shape) Begin() LSN { return min(max(s.First, 1), s.Trimmed+1) }

// Misses reports whether the commit at lsn is missing, or is behind the end of the log. A
// trimmed commit is not missing.
func (s *Shape) Misses(lsn LSN) bool {
	for _, r := range s.Missing {
		if r.From <= lsn && lsn <= r.To {
			return true
		}
	}
	return lsn > s.Last
}

// Lacks describes the missing commits as an object of a sentence, such as "LSN 4, 7 to 9 (4 of
// 12 commits)"; "" if none is missing. It names at most eight ranges.
func (s *Shape) Lacks() string {
	if len(s.Missing) == 0 {
		return ""
	}
	parts := make([]string, 0, len(s.Missing))
	count := uint64(0)
	for _, r := range s.Missing {
		count += uint64(r.To-r.From) + 1
		parts = append(parts, strings.TrimPrefix(r.String(), "LSN "))
	}
	const shown = 8
	more := ""
	if n := len(parts) - shown; n > 0 {
		more, parts = fmt.Sprintf(" and %d more places", n), parts[:shown]
	}
	return fmt.Sprintf("LSN %s%s (%d of %d commits)", strings.Join(parts, ", "), more, count, uint64(s.Last))
}

// missingRangesMax bounds Shape.Missing.
const missingRangesMax = 1000

// shapeAnswer is the part of the stream's information that a Shape is made of.
type shapeAnswer struct {
	Error *jetstream.APIError `json:"error"`
	streamInfo
	State struct {
		First    LSN    `json:"first_seq"`
		Last     LSN    `json:"last_seq"`
		Messages uint64 `json:"messages"`
		Bytes    uint64 `json:"bytes"`
		Deleted  []LSN  `json:"deleted"`
	} `json:"state"`
	Cluster *struct {
		Replicas []struct {
			Name    string `json:"name"`
			Current bool   `json:"current"`
			Offline bool   `json:"offline"`
		} `json:"replicas"`
	} `json:"cluster"`
	Time time.Time `json:"ts"`
}

// Shape asks the stream's leader how the log stands. The error is ErrNoLog if there
// is no stream, and *MismatchError if it is not this log.
func (l *Log) Shape(ctx context.Context) (*Shape, error) {
	a, err := l.shapeOnce(ctx, false)
	if err == nil && a.State.Messages != uint64(a.State.Last-a.State.First)+1 && a.State.Last >= a.State.First {
		// Fewer messages than LSNs: ask for the list of the missing ones. It may be long,
		// so it is not asked for every time.
		a, err = l.shapeOnce(ctx, true)
	}
	if err != nil {
		return nil, fmt.Errorf("shape of partition %s: %w", l.p, err)
	}
	s := &Shape{
		Log: l.id, First: a.State.First, Last: a.State.Last, Commits: a.State.Messages, Bytes: a.State.Bytes, Time: a.Time,
		Untrimmable: a.Config.DenyPurge,
	}
	// The trim point is read after the stream's state. It only grows, so it covers all that
	// was trimmed when the state was read. Read before, a trim between the two would look
	// like damage. The last commit of that state carries it, so it is not read again while
	// the log keeps its end: the server reads up to 4 MiB of its disk for that, the block
	// that the commit is in. Nothing is called missing on the word of what was read earlier,
	// because the stream may have been replaced by another that ends there too.
	trimmed, known := l.knownTrimPoint(s.Last)
	s.setTrimmed(trimmed, a.State.Deleted)
	if s.Last > 0 && (!known || len(s.Missing) > 0) {
		if trimmed, err = l.trimPoint(ctx); err != nil {
			return nil, fmt.Errorf("shape of partition %s: %w", l.p, err)
		}
		s.setTrimmed(trimmed, a.State.Deleted)
	}
	if a.Cluster != nil {
		for _, r := range a.Cluster.Replicas {
			if r.Current && !r.Offline {
				s.Replicas = append(s.Replicas, r.Name)
			}
		}
	}
	return s, nil
}

// setTrimmed sets the trim point, and what is missing beyond it: the beginning, and of the
// LSNs that the stream has deleted.
func (s *Shape) setTrimmed(trimmed LSN, deleted []LSN) {
	s.Trimmed, s.Missing = trimmed, nil
	if s.First > s.Begin() && s.Last > 0 {
		s.Missing = append(s.Missing, Stretch{s.Begin(), s.First - 1})
	}
	slices.Sort(deleted)
	for _, lsn := range deleted {
		if lsn < s.Begin() {
			continue
		}
		// Neighbours join into one range:  4 7 8 9  ->  4, 7 to 9.
		switch n := len(s.Missing); {
		case n > 0 && (s.Missing[n-1].To+1 == lsn || n == missingRangesMax):
			s.Missing[n-1].To = lsn
		default:
			s.Missing = append(s.Missing, Stretch{lsn, lsn})
		}
	}
}

// shapeOnce makes one request. details asks for the list of missing LSNs too.
func (l *Log) shapeOnce(ctx context.Context, details bool) (*shapeAnswer, error) {
	var query []byte
	if details {
		query = []byte(`{"deleted_details":true}`)
	}
	stream := l.api.stream()
	m, err := l.api.request(ctx, "STREAM.INFO."+stream, query)
	if err != nil {
		return nil, err
	}
	a := &shapeAnswer{}
	if err := json.Unmarshal(m.Data, a); err != nil {
		return nil, fmt.Errorf("stream %s: answer: %w", stream, err)
	}
	if e := a.Error; e != nil {
		if e.ErrorCode == codeStreamNotFound {
			if l.api.followMove(ctx) {
				return l.shapeOnce(ctx, details)
			}
			return nil, fmt.Errorf("%w: stream %s is not there", ErrNoLog, stream)
		}
		return nil, fmt.Errorf("stream %s: %w", stream, e)
	}
	id, err := a.logID()
	if err != nil {
		return nil, &MismatchError{Partition: l.p, Stream: l.api.stream(), LSN: a.State.Last, What: err.Error()}
	}
	if id != l.id {
		return nil, &MismatchError{Partition: l.p, Stream: l.api.stream(), LSN: a.State.Last, What: "log " + id.String() + " stands in place of " + l.id.String()}
	}
	return a, nil
}

// Damaged reports whether err says that a log is not what it was, or cannot be read
// somewhere: *GapError, *MismatchError or *FormatError. Waiting does not heal that. A
// commit of a later version is not damage.
func Damaged(err error) bool {
	var gap *GapError
	var mismatch *MismatchError
	var format *FormatError
	return errors.As(err, &gap) || errors.As(err, &mismatch) || errors.As(err, &format)
}
