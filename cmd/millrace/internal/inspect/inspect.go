// Package inspect reads how a running Millrace is. What the commands print and what the console
// shows is the same reading.
package inspect

import (
	"cmp"
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/upkeep"
)

// Config says what is inspected.
type Config struct {
	JetStream jetstream.JetStream
	Client    *store.Client
	Registry  *registry.Registry
	// Replicas is what streams and buckets are to have.
	Replicas upkeep.Wish
	// Log is the configuration with which logs are opened.
	Log feed.LogConfig
}

// Inspector reads how a running Millrace is. Its Status and Pipelines are not safe for concurrent use, the
// rest is.
type Inspector struct {
	cfg     Config
	monitor *status.Monitor
}

// New returns an Inspector. Callers close it.
func New(cfg *Config) *Inspector {
	return &Inspector{
		cfg:     *cfg,
		monitor: status.NewMonitor(cfg.JetStream, cfg.Registry, status.MonitorConfig{Bucket: cfg.Replicas.Leases, Log: cfg.Log}),
	}
}

// Close frees what the Inspector holds.
func (i *Inspector) Close() { i.monitor.Close() }

// Status tells where all pipelines stand, with warnings of streams and buckets that lack
// replicas.
func (i *Inspector) Status(ctx context.Context) (*status.Status, error) {
	st, err := i.Pipelines(ctx)
	if err != nil {
		return nil, err
	}
	st.Warnings = append(st.Warnings, i.Replicas(ctx)...)
	return st, nil
}

// Pipelines is Status without a look at all streams.
func (i *Inspector) Pipelines(ctx context.Context) (*status.Status, error) {
	return i.monitor.Read(ctx)
}

// Replicas returns the warnings of streams and buckets that lack replicas.
func (i *Inspector) Replicas(ctx context.Context) []string {
	report, err := upkeep.Look(ctx, i.cfg.JetStream, i.cfg.Replicas)
	if err != nil {
		return []string{"replicas: " + err.Error()}
	}
	return report.Warnings()
}

// Storage asks the owners of all partitions how their logs and engines are.
func (i *Inspector) Storage(ctx context.Context) (*status.Storage, error) {
	containers, err := i.cfg.Client.Catalog().List(ctx)
	if err != nil {
		return nil, err
	}
	return status.ReadStorage(ctx, i.cfg.Client, containers)
}

// Container is one container as it is now.
type Container struct {
	store.ContainerInfo
	Partitions []Partition
	// Pipelines are the names of those that use it.
	Pipelines []string
}

// Partition is one physical partition of a container as it is now.
type Partition struct {
	store.PartitionInfo
	Items int `json:"items"` // 0 if they were not to be counted
	// Replicas are those of the partition's log; nil if they are not known.
	Replicas *upkeep.Stream         `json:"replicas,omitempty"`
	Status   *store.PartitionStatus `json:"status,omitempty"`
	// Standbys are the stores that keep a copy of the partition, beside its owner.
	Standbys []Standby `json:"standbys,omitempty"`
	// Error says why the owner could not be asked; "" if it answered.
	Error string `json:"error,omitempty"`
}

// Standby is a store that follows a partition's log.
type Standby struct {
	Node string `json:"node"`
	Host string `json:"host,omitempty"`
	// Applied is the last LSN that its copy holds, as it said within the last seconds.
	Applied feed.LSN `json:"applied"`
}

// standbys returns those of the processes that keep a copy of a partition.
func standbys(processes []leases.Process, p feed.Partition) (found []Standby) {
	for i := range processes {
		if at, ok := processes[i].Warm[owner.LeaseResource(p)]; ok {
			found = append(found, Standby{processes[i].Node, processes[i].Host, feed.LSN(at)})
		}
	}
	return found
}

// Container tells how a container and its partitions are. A partition that does not answer is
// told as that, with the reason: it is the one that somebody who looks wants to know of. Its items
// are counted only if that is asked for, because each of them is gone through.
func (i *Inspector) Container(ctx context.Context, database, name string, count bool) (*Container, error) {
	ct, err := i.cfg.Client.Container(ctx, database, name)
	if err != nil {
		return nil, err
	}
	users, err := i.cfg.Registry.Users(ctx, database, name)
	if err != nil {
		return nil, err
	}
	replicas, err := upkeep.Look(ctx, i.cfg.JetStream, i.cfg.Replicas)
	if err != nil {
		return nil, err
	}
	c := &Container{ContainerInfo: ct.Info(), Pipelines: []string{}}
	var processes []leases.Process
	var unknown error // why it is not known who keeps copies
	if c.Spec.Standbys > 0 {
		processes, unknown = leases.Processes(ctx, i.cfg.JetStream, i.cfg.Replicas.Leases)
	}
	for k := range users {
		c.Pipelines = append(c.Pipelines, users[k].Name)
	}
	for k, p := range ct.Partitions() {
		now := Partition{PartitionInfo: c.ContainerInfo.Partitions[k], Standbys: standbys(processes, p)}
		if log, ok := replicas.Of(p); ok {
			now.Replicas = &log
		}
		if now.Status, err = ct.Status(ctx, p); err == nil && count {
			now.Items, err = ct.Count(ctx, p, store.Scope{})
		}
		if err = cmp.Or(err, unknown); err != nil {
			now.Error = err.Error()
		}
		c.Partitions = append(c.Partitions, now)
	}
	return c, nil
}
