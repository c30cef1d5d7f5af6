package pipelines_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// everyState is a status with a pipeline of each kind and state.
func everyState() *status.Status {
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	reader := func(generation uint32, state status.State, position string, lag status.Lag) status.Processor {
		return status.Processor{
			Generation: generation, Role: processors.RoleSource, Partition: "c7k2x4ab/0", State: state, Owner: "n1/k2x4", Epoch: 3,
			Position: position, Head: 120_000, Lag: lag,
		}
	}
	lag := status.Lag{Commits: 90_000, Changes: 1_250_000, Estimated: true, Seconds: 61}
	storage := &status.Storage{
		Partitions: 9, Answered: 8, Read: 7, Oldest: at.Add(-3 * time.Minute),
		Troubles: []string{"partition c7k2x4ab/0 refuses writes: its log lacks LSN 1 to 9 (9 of 22 commits); reads go on from what was applied."},
	}
	return &status.Status{Time: at, Storage: storage, Pipelines: []status.Pipeline{
		{
			Database: "default", Name: "analytics", ID: "analytics-k2x4c7ab", Kind: spec.ProjectKind, Generation: 2, Source: "customer", Target: "./analytics",
			State: status.Backfilling, Lag: lag, Counts: processors.Counts{Rows: 400_000, Rejects: 2}, Rate: 51_234,
			Backfill: &status.Backfill{Generation: 2, Done: 30_000, Total: 120_000, Percent: 25, ETA: 3 * time.Minute, Seconds: 180, Shadow: true},
			Sink:     &status.Sink{Kind: "parquet", Where: "./analytics", Rejected: []string{`orders customer/["c1"]/o7 column total: "many" is no double`}},
			Processors: []status.Processor{
				reader(2, status.Backfilling, "30000.4", lag), reader(1, status.Idle, "120000.0", status.Lag{}),
			},
		},
		{
			Database: "default", Name: "copies-to-pg", Kind: spec.ProjectKind, Generation: 1, Source: "customer", Target: "$ANALYTICS_DSN public",
			State: status.Stuck, Reason: "source c7k2x4ab/0: what follows 4.0 failed 12 times in 40s, and is tried again by itself within 5s: connection refused",
			Lag:  status.Lag{Commits: 7, Changes: 9, Seconds: 41},
			Sink: &status.Sink{Kind: "postgres", Where: "$ANALYTICS_DSN public", Attempts: 12, Since: at.Add(-40 * time.Second), Error: "connection refused"},
		},
		{
			Database: "default", Name: "customer-totals", Kind: spec.AggregateKind, Generation: 1, Source: "customer", Target: "customer",
			State: status.Switching, Reason: "its fields are being set, or partitions and readers pass on who computes them", Counts: processors.Counts{Copies: 12},
			Verified: &verify.Verification{
				At: at.Add(-42 * time.Second), Seconds: 0.25, Verdict: verify.VerdictDrift, Copies: 1200, Drift: 3,
				Equal: at.Add(-5 * time.Minute), EqualAt: []registry.Start{{Partition: 0, After: feed.Position{LSN: 119_000}}},
			},
		},
		{
			Database: "default", Name: "halting", Kind: spec.CascadeKind, Generation: 1, Source: "a", Target: "b", State: status.Halted,
			Reason:   "source c7k2x4ab/0: halted at the change 11.0 of [\"a\"]/a, which cannot be processed: too large; it is tried again by itself: correct the item, or apply the pipeline with onError: park",
			Lag:      status.Lag{Commits: 1, Changes: 1, Seconds: 3},
			Verified: &verify.Verification{At: at.Add(-90 * time.Second), Seconds: 2, Verdict: verify.VerdictEqual, Copies: 1, Equal: at.Add(-90 * time.Second)},
		},
	}}
}

func TestStatusIsPrinted(t *testing.T) {
	s := everyState()
	var table bytes.Buffer
	if err := s.Print(&table, true); err != nil {
		t.Fatal(err)
	}
	document, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string][]byte{"status.txt": table.Bytes(), "status.json": append(document, '\n')} {
		path := filepath.Join("testdata", name)
		if storetest.Update() {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	if s.Healthy() {
		t.Error("a halted pipeline is healthy")
	}
}

// A status tells how many logs were read whole, and does not wait for what no owner
// tells; what an owner finds is bad news though every pipeline does well.
func TestStatus_TellsHowLogsAndEnginesAre(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	read := func() *status.Storage {
		t.Helper()
		containers, err := n.client.Catalog().List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := status.ReadStorage(t.Context(), n.client, containers)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	spec := store.ContainerSpec{PartitionKey: []string{"/pk"}, Partitions: 2}
	if _, err := n.client.Catalog().Create(t.Context(), "default", "kept", spec); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		if s := read(); s.Read < 2 || s.Read != s.Partitions || s.Oldest.IsZero() || len(s.Troubles) > 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	status := &status.Status{Storage: read()}
	if !status.Healthy() {
		t.Errorf("all is well, and it is not healthy: %+v", status.Storage)
	}
	status.Storage.Troubles = []string{"partition p: its log lacks LSN 1"}
	if status.Healthy() {
		t.Error("a damaged partition is healthy")
	}
}
