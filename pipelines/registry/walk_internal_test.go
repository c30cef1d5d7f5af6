package registry

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// A generation of a cascade reads the logs of its source from their beginning while they
// are short, and goes through the items of its target where that costs less or where the
// beginning was trimmed; so it is set back too.
func TestACascadeWalksWhereALogIsLongOrTrimmed(t *testing.T) {
	js := natstest.Start(t).JS
	r := &Registry{JetStream: js}
	// container makes the log of one: commits of some bytes each, the first so many trimmed.
	container := func(id feed.ResourceID, commits, bytes int, trimmed feed.LSN) *store.ContainerInfo {
		t.Helper()
		p := feed.Partition{Container: id}
		if err := feed.CreateLog(t.Context(), js, p, feed.NewLogID(), feed.LogConfig{}); err != nil {
			t.Fatal(err)
		}
		log, err := feed.OpenLog(t.Context(), js, p, feed.LogConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		var last feed.LSN
		var sum feed.Checksum
		for n := range commits {
			c := &feed.Commit{ID: feed.NewCommitID(), Log: log.ID(), Prev: sum, Epoch: 1, Owner: "test", Time: time.Unix(int64(1_000_000+n), 0).UnixMilli()}
			c.Transactions = []feed.Transaction{{Control: &feed.Control{Kind: "settings", Data: make([]byte, bytes)}}}
			if n == commits-1 {
				c.Trimmed = trimmed
			}
			if last, err = log.Append(t.Context(), last, c.ID, feed.AppendCommit(nil, c)); err != nil {
				t.Fatal(err)
			}
			sum = c.Sum
		}
		if trimmed > 0 {
			if _, err := log.Trim(t.Context(), trimmed); err != nil {
				t.Fatal(err)
			}
		}
		return &store.ContainerInfo{ID: id, Partitions: []store.PartitionInfo{{}}}
	}
	short := container("aaaaaaaa", 10, 10, 0)
	trimmed := container("bbbbbbbb", 10, 10, 5)
	for name, test := range map[string]struct {
		source *store.ContainerInfo
		want   bool
	}{
		"short":             {short, false},
		"of many bytes":     {container("cccccccc", 3, shortLogBytes/2, 0), true},
		"of many commits":   {container("dddddddd", shortLogCommits+1, 1, 0), true},
		"that begins later": {trimmed, true},
	} {
		if got, err := r.walks(t.Context(), test.source); got != test.want || err != nil {
			t.Errorf("of a source with a log %s: %t, %v", name, got, err)
		}
	}

	rec := &Record{Generation: 4, Spec: spec.PipelineSpec{Cascade: &spec.Cascade{}}, Backfills: 3, BackfillScope: BackfillScope{Where: "size > 5"}, InForce: true}
	at := func(n int) RewindTo { return RewindTo{Kind: RewindTime, time: time.Unix(int64(1_000_000+n), 0)} }
	for name, test := range map[string]struct {
		source, target *store.ContainerInfo
		to             RewindTo
		want           bool
	}{
		"to the beginning":                            {short, trimmed, RewindTo{}, false},
		"to a beginning that was trimmed":             {trimmed, short, RewindTo{}, true},
		"to a time":                                   {short, short, at(3), false},
		"to a time that both logs have":               {trimmed, trimmed, at(8), false},
		"to a time that the source's log has not":     {trimmed, short, at(3), true},
		"to a time that the target's log has not":     {short, trimmed, at(3), true},
		"to a commit":                                 {short, short, RewindTo{Kind: rewindLSN, lsn: 4}, false},
		"to a commit that was trimmed":                {trimmed, short, RewindTo{Kind: rewindLSN, lsn: 4}, true},
		"to a commit from whose time the target's is": {short, trimmed, RewindTo{Kind: rewindLSN, lsn: 4}, true},
		"to now": {trimmed, trimmed, RewindTo{Kind: RewindNow}, false},
	} {
		b := &Bound{Source: test.source, Target: test.target}
		walk, err := r.rewindWalks(t.Context(), rec, b, test.to)
		if walk != test.want || err != nil {
			t.Errorf("%s: it walks %t, %v", name, walk, err)
		}
		next, err := r.rewound(t.Context(), rec, b, test.to, Checkpoints{})
		if err != nil || next.Generation != 5 || next.InForce {
			t.Errorf("%s: %+v, %v", name, next, err)
		}
		if !test.want {
			continue
		}
		if end := PositionOf(next.Heads, 0); next.Backfills != 1 || next.BackfillScope != (BackfillScope{}) || end.LSN != 10 ||
			PositionOf(next.From, 0) != end || PositionOf(next.Starts, 0).LSN != 10 {
			t.Errorf("%s: the walk begins as %+v", name, next)
		}
	}

	// Others begin with items only when they are set back to the beginning. A place that the
	// log does not hold any more is refused, with the places that there are.
	rec = &Record{Generation: 4, Spec: spec.PipelineSpec{Aggregate: &spec.Aggregate{}}}
	b := &Bound{Source: trimmed, Target: short}
	for name, to := range map[string]RewindTo{"commit": {Kind: rewindLSN, lsn: 5}, "time": at(2)} {
		if next, err := r.rewound(t.Context(), rec, b, to, Checkpoints{}); err == nil || !strings.Contains(err.Error(), "or to the beginning") {
			t.Errorf("an aggregate is set back to a %s that was trimmed: %+v, %v", name, next, err)
		}
	}
	// It has folded what was trimmed. One that has not begun there would miss that.
	reader := processors.Resource{Generation: rec.Generation, Role: processors.RoleSource, Partition: feed.Partition{Container: trimmed.ID}}
	folded := Checkpoints{reader.String(): {Position: feed.Position{LSN: 10}}}
	next, err := r.rewound(t.Context(), rec, b, RewindTo{Kind: rewindLSN, lsn: 6}, folded)
	if err != nil || PositionOf(next.From, 0).LSN != 5 {
		t.Errorf("it is set back to the first commit that is kept: %+v, %v", next, err)
	}
}
