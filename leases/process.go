package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/leases/bucket"
)

// Process is a member of a group, as its record describes it.
type Process struct {
	Group string `json:"group"`
	Node  string `json:"node"`
	Host  string `json:"host,omitempty"`
	// Level is [Config.Level] of the process; 0 from releases that did not write it.
	Level int `json:"level"`
	// Warm is what was given to [Manager.SetWarm], as of the last beat.
	Warm map[string]uint64 `json:"warm,omitempty"`
	// Loading is what was given to [Manager.SetLoading], as of the last beat.
	Loading []string `json:"-"`
	// Remarks is what was given to [Manager.SetRemarks], by resource, as of the last beat.
	Remarks map[string]string `json:"remarks,omitempty"`
	// State is up, closed (it takes nothing: it begins or drains), silent or left.
	State ProcessState `json:"state"`
	// Drains says that the node is to drain, see [Drain]. Its State is closed then, once its process knows.
	Drains bool `json:"drains,omitempty"`
	// Seen is the time of the last beat, and Silent the seconds since then, both by the server's clock.
	Seen   time.Time `json:"seen"`
	Silent float64   `json:"silentSeconds"`
}

// ProcessState is how a process is, as its record tells.
type ProcessState string

// The states of a process.
const (
	ProcessUp     ProcessState = "up"
	ProcessClosed ProcessState = "closed"
	// ProcessSilent is one that has not beaten for a lifetime of its leases, or whose connection is gone, and did not
	// say that it leaves.
	ProcessSilent ProcessState = "silent"
	ProcessLeft   ProcessState = "left"
)

func (r *memberRecord) state(silent time.Duration) ProcessState {
	switch {
	case r.Left:
		return ProcessLeft
	case r.Gone != "", silent > r.ttl():
		return ProcessSilent
	case r.Closed:
		return ProcessClosed
	}
	return ProcessUp
}

// String names the process for an operator.
func (p *Process) String() string {
	if p.Host == "" {
		return p.Group + " " + p.Node
	}
	return fmt.Sprintf("%s %s on %s", p.Group, p.Node, p.Host)
}

// silentBeats is the number of lifetimes without a beat after which Processes counts a process
// as ended. Members count one lifetime, on their own clocks. Processes looks once and has
// only the server's dates; it is better that it names a process which is gone than that it
// misses one which is slow.
const silentBeats = 3

// Processes returns the processes that take leases of a bucket, or may take them, ordered by
// group and node. A bucket that does not exist has none. A record that cannot be read is an
// error, because callers rely on the list being complete.
func Processes(ctx context.Context, js jetstream.JetStream, name string) ([]Process, error) {
	return processes(ctx, js, name, func(r *memberRecord, silent time.Duration) bool {
		return !r.Left && silent <= silentBeats*r.ttl()
	})
}

// Known is Processes with those that have ended and are still in the bucket: the record of a node with a
// directory stays for a day, that of another until it was silent for ten lifetimes.
func Known(ctx context.Context, js jetstream.JetStream, name string) ([]Process, error) {
	return processes(ctx, js, name, func(*memberRecord, time.Duration) bool { return true })
}

func processes(ctx context.Context, js jetstream.JetStream, name string, among func(r *memberRecord, silent time.Duration) bool) ([]Process, error) {
	name = cmp.Or(name, DefaultBucket)
	kv, err := js.KeyValue(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open lease bucket %s: %w", name, err)
	}
	entries, err := bucket.Entries(ctx, js, kv, memberPrefix+">")
	if err != nil {
		return nil, fmt.Errorf("list the processes in %s: %w", name, err)
	}
	drains, err := drainNodes(ctx, js, kv)
	if err != nil {
		return nil, err
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the processes in %s: %w", name, err)
	}
	var now time.Time // by the server's clock, by which the entries are dated too
	if s, ok := status.(*jetstream.KeyValueBucketStatus); ok {
		now = s.StreamInfo().TimeStamp
	}
	var all []Process
	for _, e := range entries {
		_, group, _, _ := splitKey(e.Key()) // the record does not repeat the group
		rec, err := decodeMember(e.Key(), e.Value())
		if err != nil {
			return nil, err
		}
		silent := max(now.Sub(e.Created()), 0)
		if !among(rec, silent) {
			continue
		}
		all = append(all, Process{
			Group: group, Node: rec.Node, Host: rec.Host, Level: rec.Level, Warm: rec.Warm, Loading: rec.Loading, Remarks: rec.Remarks,
			State: rec.state(silent), Drains: drains[rec.Node], Seen: e.Created().UTC(), Silent: silent.Seconds(),
		})
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Node, b.Node)) })
	return all, nil
}
