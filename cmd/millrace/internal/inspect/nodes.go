package inspect

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/standby"
)

// Node is a process that takes leases, or stands by to take them.
type Node struct {
	leases.Process
	// Leases counts those that it has.
	Leases int `json:"leases"`
	// Loading counts the copies that a store makes, or is to make as a standby, and that are not warm yet.
	Loading int `json:"loading,omitempty"`
}

// Fleet is which processes there are, and what they do for the group. Those that have ended are told of too, for as
// long as their records are kept.
type Fleet struct {
	Nodes []Node `json:"nodes"`
	// Unowned counts the partitions of which no store that lives has the lease.
	Unowned int `json:"unowned"`
	// Problems say what could not be read.
	Problems []string `json:"problems,omitempty"`
}

// Fleet tells which processes there are. It asks none of them.
func (i *Inspector) Fleet(ctx context.Context) (*Fleet, error) {
	processes, err := leases.Known(ctx, i.cfg.JetStream, i.cfg.Replicas.Leases)
	if err != nil {
		return nil, err
	}
	held, unread := leases.List(ctx, i.cfg.JetStream, i.cfg.Replicas.Leases)
	if unread != nil && held == nil {
		return nil, unread
	}
	containers, err := i.cfg.Client.Catalog().List(ctx)
	if err != nil {
		return nil, err
	}
	f := fleetOf(processes, held, containers)
	if unread != nil {
		f.Problems = append(f.Problems, unread.Error())
	}
	return f, nil
}

func fleetOf(processes []leases.Process, held []leases.Lease, containers []store.ContainerInfo) *Fleet {
	f := &Fleet{Nodes: []Node{}}
	var stores []string // that live and are not to drain
	living := map[string]bool{}
	for k := range processes {
		p := &processes[k]
		living[p.Group+" "+p.Node] = p.State == leases.ProcessUp || p.State == leases.ProcessClosed
		if p.Group == owner.LeaseGroup && living[p.Group+" "+p.Node] && !p.Drains {
			stores = append(stores, p.Node)
		}
	}
	counts, owners, owned := map[string]int{}, map[string]string{}, map[string]bool{}
	for k := range held {
		l := &held[k]
		node := nodeOf(l.Owner)
		if l.Group == owner.LeaseGroup {
			owners[l.Resource], owned[l.Resource] = cmp.Or(node, nodeOf(l.Last)), living[l.Group+" "+node]
		}
		counts[l.Group+" "+node]++
	}
	var wishes []standby.Wish
	for k := range containers {
		for _, p := range containers[k].Partitions {
			id := feed.Partition{Container: containers[k].ID, Number: p.Number}
			if !owned[owner.LeaseResource(id)] {
				f.Unowned++
			}
			wishes = append(wishes, standby.Wish{Partition: id, Standbys: containers[k].Spec.Standbys, Owner: owners[owner.LeaseResource(id)]})
		}
	}
	for _, p := range processes {
		n := Node{Process: p, Leases: counts[p.Group+" "+p.Node]}
		if p.Group == owner.LeaseGroup && living[p.Group+" "+p.Node] {
			// It says itself what it makes beyond its rank, as of partitions that are to move to it.
			copies := slices.Clone(p.Loading)
			for _, id := range standby.Choose(p.Node, stores, wishes) {
				copies = append(copies, owner.LeaseResource(id))
			}
			slices.Sort(copies)
			for _, resource := range slices.Compact(copies) {
				if _, warm := p.Warm[resource]; !warm {
					n.Loading++
				}
			}
		}
		f.Nodes = append(f.Nodes, n)
	}
	return f
}

// nodeOf returns the node of a holder of a lease, which is node/incarnation.
func nodeOf(holder string) string {
	if at := strings.LastIndexByte(holder, '/'); at >= 0 {
		return holder[:at]
	}
	return holder
}

// Lease is who has the right to a resource: a partition of a store, or a part of a pipeline.
type Lease struct {
	Group    string `json:"group"`
	Resource string `json:"resource"`
	// Node has it; "" if it is free.
	Node     string `json:"node,omitempty"`
	Host     string `json:"host,omitempty"`
	Epoch    uint64 `json:"epoch"`
	Attempts int    `json:"attempts,omitempty"`
	// LastError is what the work under it ended with last.
	LastError string `json:"lastError,omitempty"`
}

// NodePartition is a physical partition with what its owner says.
type NodePartition struct {
	Database  string                 `json:"database"`
	Container string                 `json:"container"`
	Partition uint32                 `json:"partition"`
	Status    *store.PartitionStatus `json:"status,omitempty"`
	// Error says why the owner did not answer.
	Error string `json:"error,omitempty"`
}

// Nodes is which process has what.
type Nodes struct {
	Nodes      []Node          `json:"nodes"`
	Leases     []Lease         `json:"leases"`
	Partitions []NodePartition `json:"partitions"`
	// Problems say what could not be read.
	Problems []string `json:"problems,omitempty"`
}

// Nodes tells which process has what. asked are the answers of the owners.
func (i *Inspector) Nodes(ctx context.Context, asked []status.Asked) (*Nodes, error) {
	processes, err := leases.Processes(ctx, i.cfg.JetStream, i.cfg.Replicas.Leases)
	if err != nil {
		return nil, err
	}
	held, unread := leases.List(ctx, i.cfg.JetStream, i.cfg.Replicas.Leases)
	if unread != nil && held == nil {
		return nil, unread
	}
	n := &Nodes{Nodes: []Node{}, Leases: []Lease{}, Partitions: []NodePartition{}}
	if unread != nil {
		n.Problems = append(n.Problems, unread.Error())
	}
	counts := map[string]int{}
	for k := range held {
		l := &held[k]
		node := nodeOf(l.Owner)
		if node != "" {
			counts[l.Group+" "+node]++
		}
		n.Leases = append(n.Leases, Lease{l.Group, l.Resource, node, l.Host, l.Epoch, l.Attempts, l.LastError})
	}
	for _, p := range processes {
		n.Nodes = append(n.Nodes, Node{Process: p, Leases: counts[p.Group+" "+p.Node]})
	}
	for k := range asked {
		a := &asked[k]
		n.Partitions = append(n.Partitions, NodePartition{a.Database, a.Container, a.Partition.Number, a.Status, a.Error})
	}
	return n, nil
}
