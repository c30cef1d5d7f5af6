package processors_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
)

func TestCheckpointRoundTrip(t *testing.T) {
	want := &processors.Checkpoint{
		Position: feed.Position{LSN: 12, Index: 3}, Time: 1700000000000, Attempts: 4, Transient: 3, LastError: "no owner",
		Log: feed.LogID{1, 2}, Sum: 77,
		Parked: []processors.Job{{Source: `["a/b"]/x`, Position: feed.Position{LSN: 9}, Parked: true, LastError: "bad"}},
		State: processors.State{
			Jobs:   []processors.Job{{Source: `["tag"]/T-5`, Position: feed.Position{LSN: 11, Index: 2}, Gone: true, Digest: 1<<63 + 7, Total: 10, Scanned: 5, Began: 1}},
			Counts: processors.Counts{Copies: 100, DeadLetters: 2},
		},
	}
	got, err := processors.DecodeCheckpoint(want.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded checkpoint (-want +got):\n%s", diff)
	}
	if got.Open() != 2 {
		t.Errorf("Open() = %d, want a parked item and a job", got.Open())
	}
}

// The form that version 1 wrote stays readable.
func TestCheckpointVersion1(t *testing.T) {
	const v1 = `{"version":1,"position":"12.3","time":5,"jobs":[{"source":"[\"tag\"]/T-5","digest":"9","position":"11.2"}],"counts":{"copies":7}}`
	cp, err := processors.DecodeCheckpoint([]byte(v1))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v1, string(cp.Encode())); diff != "" {
		t.Errorf("encoded again (-want +got):\n%s", diff)
	}
}

func TestCheckpointRefuses(t *testing.T) {
	if _, err := processors.DecodeCheckpoint([]byte(`{"version":2,"position":{}}`)); !errors.Is(err, processors.ErrCheckpointVersion) || !strings.Contains(err.Error(), "2") {
		t.Errorf("a later version: %v, want ErrCheckpointVersion naming it", err)
	}
	for name, text := range map[string]string{
		"no version": `{"position":"1.0"}`, "not JSON": `{`, "bad log": `{"version":1,"position":"1.0","log":"x"}`, "bad position": `{"version":1,"position":"1"}`,
		"bad job": `{"version":1,"position":"1.0","jobs":[{"position":"x"}]}`,
	} {
		if _, err := processors.DecodeCheckpoint([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if cp, err := processors.DecodeCheckpoint(nil); err != nil || !cp.Position.IsZero() {
		t.Errorf("no checkpoint: %+v, %v, want the zero one", cp, err)
	}
}

func TestFinishedBelow(t *testing.T) {
	at := func(lsn feed.LSN) feed.Position { return feed.Position{LSN: lsn} }
	for name, c := range map[string]struct {
		cp   processors.Checkpoint
		want feed.Position
	}{
		"nothing open": {processors.Checkpoint{Position: at(9)}, at(9)},
		"the oldest open job holds it back": {processors.Checkpoint{Position: at(9), State: processors.State{
			Jobs: []processors.Job{{Position: at(7)}, {Position: at(4)}},
		}}, at(4)},
		"a job from beyond the position does not": {processors.Checkpoint{Position: at(3), State: processors.State{
			Jobs: []processors.Job{{Position: at(7)}},
		}}, at(3)},
		"what is filled does not": {processors.Checkpoint{Position: at(9), State: processors.State{
			Jobs: []processors.Job{{Source: processors.BackfillJob}, {Position: at(7)}},
		}}, at(7)},
	} {
		if got := c.cp.FinishedBelow(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestJobProgress(t *testing.T) {
	began := time.UnixMilli(1_000_000)
	j := processors.Job{Began: began.UnixMilli(), Total: 1000, Scanned: 250}
	done, eta, ok := j.Progress(began.Add(10 * time.Second))
	if !ok || done != 0.25 || eta != 30*time.Second {
		t.Errorf("a quarter after 10s: %v, %s, %v, want 0.25 and 30s left", done, eta, ok)
	}
	if _, _, ok := (&processors.Job{Scanned: 5}).Progress(began); ok {
		t.Error("progress without a total")
	}
}

func TestResourceRoundTrip(t *testing.T) {
	want := processors.Resource{Pipeline: "category-names", Generation: 3, Role: processors.RoleTarget, Partition: feed.Partition{Container: "c7k2x4ab", Number: 2}}
	got, err := processors.ParseResource(want.String())
	if err != nil || got != want {
		t.Errorf("%q parses to %+v, %v", want.String(), got, err)
	}
	producer := feed.Producer{Pipeline: "category-names", Generation: 3, Source: "target:c7k2x4ab/2"}
	if got := want.Producer(); got != producer {
		t.Errorf("producer %v, want %v", got, producer)
	}
	for _, bad := range []string{
		"", "pipe/", "store/c7k2x4ab/2", "pipe/p/x/source/c7k2x4ab/2", "pipe/p/1/sink/c7k2x4ab/2", "pipe/p/1/source/c7k2x4ab", "pipe//1/source/c7k2x4ab/2",
	} {
		if r, err := processors.ParseResource(bad); err == nil {
			t.Errorf("%q parses to %+v", bad, r)
		}
	}
}

// TestCheckpoint_TellsTheRate, so that one look at it is enough, for as long as it is
// that of now.
func TestCheckpoint_TellsTheRate(t *testing.T) {
	now := time.Now()
	cp, err := processors.DecodeCheckpoint((&processors.Checkpoint{Rate: 1234.5, Saved: now.Add(-time.Second).UnixMilli()}).Encode())
	if err != nil {
		t.Fatal(err)
	}
	if got := cp.RateAt(now); got != 1235 {
		t.Errorf("a second later it is %v", got)
	}
	if got := cp.RateAt(now.Add(time.Minute)); got != 0 {
		t.Errorf("a minute later it is %v", got)
	}
}
