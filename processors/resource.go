package processors

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/millrace/millrace/feed"
)

// Role is what a processor does for its pipeline on the partition that it reads.
type Role string

// The roles of processors.
const (
	// RoleSource reads a partition of the pipeline's source.
	RoleSource Role = "source"
	// RoleTarget reads a partition of the pipeline's target.
	RoleTarget Role = "target"
)

// resourcePrefix begins the name of every processor's lease.
const resourcePrefix = "pipe/"

// Resource names what a processor's lease gives the right to: one role of one
// generation of a pipeline on one physical partition.
type Resource struct {
	Pipeline   string
	Generation uint32
	Role       Role
	Partition  feed.Partition
}

// String prints the resource as "pipe/category-names/1/source/c7k2x4ab/0", the
// name of its lease.
func (r Resource) String() string {
	return resourcePrefix + r.Pipeline + "/" + strconv.FormatUint(uint64(r.Generation), 10) + "/" + string(r.Role) + "/" + r.Partition.String()
}

// ParseResource reads what String printed.
func ParseResource(s string) (Resource, error) {
	bad := func() (Resource, error) {
		return Resource{}, fmt.Errorf("resource %q: want pipe/PIPELINE/GENERATION/ROLE/CONTAINER/PARTITION", s)
	}
	rest, ok := strings.CutPrefix(s, resourcePrefix)
	parts := strings.SplitN(rest, "/", 4)
	if !ok || len(parts) != 4 || parts[0] == "" {
		return bad()
	}
	generation, err := strconv.ParseUint(parts[1], 10, 32)
	if err != nil {
		return bad()
	}
	role := Role(parts[2])
	if role != RoleSource && role != RoleTarget {
		return bad()
	}
	partition, err := feed.ParsePartition(parts[3])
	if err != nil {
		return bad()
	}
	return Resource{Pipeline: parts[0], Generation: uint32(generation), Role: role, Partition: partition}, nil
}

// Producer is the name under which the processor writes, which the partitions
// that it writes to fence by lease epoch.
func (r Resource) Producer() feed.Producer {
	return feed.Producer{Pipeline: r.Pipeline, Generation: r.Generation, Source: string(r.Role) + ":" + r.Partition.String()}
}
