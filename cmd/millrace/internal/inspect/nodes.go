package inspect

import (
	"context"
	"strings"

	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/store"
)

// Node is a process that takes leases, or stands by to take them.
type Node struct {
	leases.Process
	// Leases counts those that it has.
	Leases int `json:"leases"`
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
		node := l.Owner
		if at := strings.LastIndexByte(node, '/'); at >= 0 {
			node = node[:at] // what follows is the incarnation
		}
		if node != "" {
			counts[l.Group+" "+node]++
		}
		n.Leases = append(n.Leases, Lease{l.Group, l.Resource, node, l.Host, l.Epoch, l.Attempts, l.LastError})
	}
	for _, p := range processes {
		n.Nodes = append(n.Nodes, Node{p, counts[p.Group+" "+p.Node]})
	}
	for k := range asked {
		a := &asked[k]
		n.Partitions = append(n.Partitions, NodePartition{a.Database, a.Container, a.Partition.Number, a.Status, a.Error})
	}
	return n, nil
}
