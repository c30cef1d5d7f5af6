package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
)

// findingsVersion begins what the continuous verification keeps in its lease; see CONTINUOUS.md.
const findingsVersion = 1

// Verification is what the continuous verification has found of a pipeline.
type Verification struct {
	// At is when the last pass began, Seconds how long it took.
	At      time.Time `json:"at"`
	Seconds float64   `json:"seconds"`
	// Verdict is what it found, and Reason why it could not judge the pipeline as a
	// whole.
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason,omitempty"`
	// Copies were compared, groups included; Drift of them differ for no reason, and
	// Behind may be in flight.
	Copies int64 `json:"copies"`
	Drift  int64 `json:"drift"`
	Behind int64 `json:"behind"`
	// Unjudged are rows besides of which nobody can tell whether they are right.
	Unjudged int64 `json:"unjudged,omitempty"`
	// Equal is when the last pass began that found all copies equal, zero if none
	// did; all changes of the source up to EqualAt were then copied.
	Equal   time.Time        `json:"proved,omitzero"`
	EqualAt []registry.Start `json:"provedAt,omitempty"`
}

// Coverage is the share of copies that the last pass found to be equal, 0 if the
// pipeline could not be judged as a whole. Rows that nobody can judge are not equal.
func (p *Verification) Coverage() float64 {
	switch {
	case p.Reason != "" && p.Unjudged == 0, p.At.IsZero():
		return 0
	case p.Copies+p.Unjudged == 0:
		return 1
	}
	return float64(max(p.Copies-p.Drift-p.Behind, 0)) / float64(p.Copies+p.Unjudged)
}

// Finding is what is known of one pipeline.
type Finding struct {
	Database   string    `json:"database"`
	Name       string    `json:"name"`
	Generation uint32    `json:"generation"`
	Since      time.Time `json:"since"` // when it was first looked at
	Verification

	failed string // why the last try found nothing
}

// update takes over a report. What was found of another generation says nothing of
// this one.
func (o *Finding) update(rec *registry.Record, r *PipelineReport, heads []registry.Start, began time.Time) {
	if o.Generation != rec.Generation {
		o.Equal, o.EqualAt = time.Time{}, nil
	}
	o.failed, o.Generation = "", rec.Generation
	o.At, o.Seconds = began.UTC().Truncate(time.Millisecond), time.Since(began).Seconds()
	o.Verdict, o.Reason = r.Verdict, r.Reason
	o.Copies, o.Drift, o.Behind, o.Unjudged = r.Copies+r.Groups, r.Drift, r.Behind, r.Unjudged
	if r.Verdict == VerdictEqual {
		o.Equal, o.EqualAt = o.At, heads
	}
}

type findingsJSON struct {
	Version   int                 `json:"version"`
	Pipelines map[string]*Finding `json:"pipelines"` // by id
}

// DecodeFindings reads what the continuous verification keeps in its lease, by the ids of
// pipelines; see CONTINUOUS.md.
func DecodeFindings(data []byte) (map[string]*Finding, error) {
	w := findingsJSON{Pipelines: map[string]*Finding{}}
	if len(data) == 0 {
		return w.Pipelines, nil
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("lease %s: %w", ContinuousResource, err)
	}
	if w.Version != findingsVersion {
		return nil, fmt.Errorf("lease %s has version %d; this release knows %d: was it written by a newer one?", ContinuousResource, w.Version, findingsVersion)
	}
	maps.DeleteFunc(w.Pipelines, func(_ string, one *Finding) bool { return one == nil })
	return w.Pipelines, nil
}

// encodeFindings leaves out the positions, and then those that were looked at the
// longest ago, where all is more than a lease takes.
func encodeFindings(findings map[string]*Finding) []byte {
	w := findingsJSON{findingsVersion, maps.Clone(findings)}
	for {
		data, err := json.Marshal(w)
		if err != nil {
			panic(fmt.Sprintf("verify: what was verified cannot be encoded: %v", err))
		}
		if len(data) <= leases.CheckpointBytesMax || len(w.Pipelines) == 0 {
			return data
		}
		w.shrink()
	}
}

// shrink leaves out the positions, or half of the pipelines if there are none.
func (w *findingsJSON) shrink() {
	ids := slices.SortedFunc(maps.Keys(w.Pipelines), func(a, b string) int { return w.Pipelines[a].At.Compare(w.Pipelines[b].At) })
	had := false
	for _, id := range ids {
		one := *w.Pipelines[id]
		had = had || one.EqualAt != nil
		one.EqualAt = nil
		w.Pipelines[id] = &one
	}
	if !had {
		for _, id := range ids[:(len(ids)+1)/2] {
			delete(w.Pipelines, id)
		}
	}
}

// restoreFindings takes over what an earlier holder of the lease has found.
func (a *Continuous) restoreFindings(checkpoint []byte) error {
	findings, err := DecodeFindings(checkpoint)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.findings, a.saved = findings, time.Now()
	return nil
}

// saveFindings keeps what was found in the lease: at once if it is news, else if the last time
// is long ago.
func (a *Continuous) saveFindings(ctx context.Context, lease Lease, long time.Duration) {
	a.mu.Lock()
	if time.Since(a.saved) < long {
		a.mu.Unlock()
		return
	}
	a.saved = time.Now()
	data := encodeFindings(a.findings)
	a.mu.Unlock()
	if err := lease.Save(ctx, data); err != nil && ctx.Err() == nil {
		a.log.DebugContext(ctx, "what was verified could not be saved", slog.Any("error", err))
	}
}

// eachFinding tells what was found of each pipeline.
func (a *Continuous) eachFinding(f func(one *Finding)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.findings {
		if !one.At.IsZero() {
			f(one)
		}
	}
}

// age is how old the state is that was last found equal; while none was, for how long
// none has been.
func (o *Finding) age() float64 {
	if o.Equal.IsZero() {
		return time.Since(o.Since).Seconds()
	}
	return time.Since(o.Equal).Seconds()
}

// VerificationOf returns what the continuous verification has found of a record, nil if it has not looked
// at its generation yet.
func VerificationOf(findings map[string]*Finding, rec *registry.Record) *Verification {
	one := findings[rec.ID]
	if one == nil || one.At.IsZero() || one.Generation != rec.Generation {
		return nil
	}
	found := one.Verification
	return &found
}
