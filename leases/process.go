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

// Process is a member of a group as its record tells of it.
type Process struct {
	Group string `json:"group"`
	Node  string `json:"node"`
	Host  string `json:"host,omitempty"`
	// Level is [Config.Level] of the process; 0 from releases that did not tell.
	Level int `json:"level"`
}

// String names the process for an operator.
func (p *Process) String() string {
	if p.Host == "" {
		return p.Group + " " + p.Node
	}
	return fmt.Sprintf("%s %s on %s", p.Group, p.Node, p.Host)
}

// silentBeats is after how many lifetimes without a beat a process counts as ended here.
// Members themselves take one lifetime of their own clocks; who looks once has only the
// server's dates, and must rather name a process that is gone than miss one that is slow.
const silentBeats = 3

// Processes returns the processes that take leases of a bucket, or may, ordered by group
// and node. A bucket that does not exist has none. A record that cannot be read is an
// error: who asks wants to know that nobody was missed.
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
	var now time.Time // by the clock that the entries are dated by
	if s, ok := status.(*jetstream.KeyValueBucketStatus); ok {
		now = s.StreamInfo().TimeStamp
	}
	var all []Process
	for _, e := range entries {
		_, group, _, _ := splitKey(e.Key())
		rec, err := decodeMember(e.Key(), e.Value())
		if err != nil {
			return nil, err
		}
		if rec.Left || now.Sub(e.Created()) > silentBeats*rec.ttl() {
			continue
		}
		all = append(all, Process{Group: group, Node: rec.Node, Host: rec.Host, Level: rec.Level})
	}
	slices.SortFunc(all, func(a, b Process) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Node, b.Node)) })
	return all, nil
}
