// Package inspect reads how a running Millrace is. What the commands print and what the console
// shows is the same reading.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

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
	// AnswerTimeout bounds the wait for the owner of one partition, and for one log, so that what does not answer
	// leaves time for the others. Default: as long as the Client and the context wait.
	AnswerTimeout time.Duration
}

// Inspector reads how a running Millrace is. Its Pipelines is not safe for concurrent use, the rest is.
type Inspector struct {
	cfg     Config
	monitor *status.Monitor
}

// New returns an Inspector. Callers close it.
func New(cfg *Config) *Inspector {
	return &Inspector{
		cfg:     *cfg,
		monitor: status.NewMonitor(cfg.JetStream, cfg.Registry, status.MonitorConfig{Bucket: cfg.Replicas.Leases, Log: cfg.Log, AnswerTimeout: cfg.AnswerTimeout}),
	}
}

// Close frees what the Inspector holds.
func (i *Inspector) Close() { i.monitor.Close() }

// Pipelines tells where all pipelines stand.
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

// JSON is the container as describe and the console's page show it. declaration is its own, as apply takes it.
func (c *Container) JSON(declaration any) map[string]any {
	v := map[string]any{
		"declaration": declaration, "id": c.ID, "state": c.State, "created": c.Created, "partitions": c.Partitions, "pipelines": c.Pipelines,
		"former": append([]store.FormerPartition{}, c.Former...),
	}
	if advice := c.Advice(); len(advice) > 0 {
		v["advice"] = advice
	}
	return v
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
	// Applied is the last LSN that its copy holds, as it said within the last seconds; 0 if it is being made ready.
	Applied feed.LSN `json:"applied"`
	// Remark says how the copy differs from what the owner holds, and what is done about it; "" if it is not known to differ.
	Remark string `json:"remark,omitempty"`
}

// standbys returns those of the processes that keep a copy of a partition.
func standbys(processes []leases.Process, p feed.Partition) (found []Standby) {
	for i := range processes {
		resource := owner.LeaseResource(p)
		remark := processes[i].Remarks[resource]
		if at, ok := processes[i].Warm[resource]; ok || remark != "" {
			found = append(found, Standby{processes[i].Node, processes[i].Host, feed.LSN(at), remark})
		}
	}
	return found
}

// askedMax bounds the owners that are asked at a time, how their partition is and how many items it has.
const askedMax = 16

// Container tells how a container and its partitions are. A partition that does not answer is
// told as that, with the reason: it is the one that somebody who looks wants to know of. So the end of ctx's time
// is no error either, once the container is found: who has not answered by then is told as that.
//
// The whole of it has the items, the replicas of the logs and the standbys too. That takes longer: each item is gone
// through, and each stream is looked at.
func (i *Inspector) Container(ctx context.Context, database, name string, whole bool) (*Container, error) {
	ct, err := i.cfg.Client.Container(ctx, database, name)
	if err != nil {
		return nil, err
	}
	users, err := i.cfg.Registry.Users(ctx, database, name)
	if err != nil {
		return nil, err
	}
	c := &Container{ContainerInfo: ct.Info(), Pipelines: []string{}}
	for k := range users {
		c.Pipelines = append(c.Pipelines, users[k].Name)
	}
	for k := range ct.Partitions() {
		c.Partitions = append(c.Partitions, Partition{PartitionInfo: c.ContainerInfo.Partitions[k]})
	}
	// Side by side: streams that do not answer take as long as owners that do not.
	var asking sync.WaitGroup
	asking.Go(func() { i.askOwners(ctx, ct, c.Partitions, whole) })
	k := kept{}
	if whole {
		k = i.lookAtCopies(ctx, c)
	}
	asking.Wait()
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, context.Cause(ctx) // nobody waits for it any more
	}
	for n, p := range ct.Partitions() {
		k.tell(p, &c.Partitions[n])
	}
	return c, nil
}

// kept is who keeps copies of partitions and of their logs.
type kept struct {
	replicas  *upkeep.Report // nil: not known
	processes []leases.Process
	unknown   error // why not all is known
}

// lookAtCopies finds out who keeps copies of a container's partitions.
func (i *Inspector) lookAtCopies(ctx context.Context, c *Container) (k kept) {
	var noReplicas, noProcesses error
	if k.replicas, noReplicas = upkeep.Look(ctx, i.cfg.JetStream, i.cfg.Replicas); noReplicas != nil {
		noReplicas = fmt.Errorf("the replicas of logs are not known: %w", noReplicas)
	}
	if c.Spec.Standbys > 0 {
		k.processes, noProcesses = leases.Processes(ctx, i.cfg.JetStream, i.cfg.Replicas.Leases)
	}
	k.unknown = cmp.Or(noReplicas, noProcesses)
	return k
}

// tell fills in who keeps copies of a partition. Why its owner did not answer is worth more than why they are not known.
func (k *kept) tell(p feed.Partition, now *Partition) {
	now.Standbys = standbys(k.processes, p)
	if k.replicas != nil {
		if log, ok := k.replicas.Of(p); ok {
			now.Replicas = &log
		}
	}
	if k.unknown != nil {
		now.Error = cmp.Or(now.Error, k.unknown.Error())
	}
}

// askOwners asks the owners of a container's partitions, some at a time, and fills in what they say.
func (i *Inspector) askOwners(ctx context.Context, ct *store.Container, partitions []Partition, count bool) {
	var g errgroup.Group
	g.SetLimit(askedMax)
	for k, p := range ct.Partitions() {
		g.Go(func() error {
			now := &partitions[k]
			var err error
			if now.Status, err = i.askStatus(ctx, ct, p); err == nil && count {
				now.Items, err = ct.Count(ctx, p, store.Scope{})
			}
			if err != nil {
				now.Error = err.Error()
			}
			return nil // the others are asked all the same
		})
	}
	_ = g.Wait() // none returns an error
}

// askStatus asks the owner of a partition how it is.
func (i *Inspector) askStatus(ctx context.Context, ct *store.Container, p feed.Partition) (*store.PartitionStatus, error) {
	if i.cfg.AnswerTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, i.cfg.AnswerTimeout)
		defer cancel()
	}
	return ct.Status(ctx, p)
}
