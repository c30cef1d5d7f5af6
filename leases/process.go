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
		if rec.Left || now.Sub(e.Created()) > silentBeats*rec.ttl() {
			continue
		}
		all = append(all, Process{Group: group, Node: rec.Node, Host: rec.Host, Level: rec.Level, Warm: rec.Warm})
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Node, b.Node)) })
	return all, nil
}
