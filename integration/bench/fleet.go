//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/integration/netns/hosts"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/upkeep"
)

// fleetConfig says what a fleet has.
type fleetConfig struct {
	servers, stores, workers int // servers are of NATS, 1 by default; of several each has all logs
	// network has a host for each NATS server and store, or is nil: all are here. The first stores share the hosts of servers;
	// the last one has one to itself.
	network *hosts.Network
	worker  []string // more flags of a worker
}

// fleet is Millrace as it runs on hosts of its own: some store and worker processes, over NATS servers that are other
// processes and outlive them.
type fleet struct {
	b       *bench
	cfg     fleetConfig
	dir     string
	url     string // of all servers
	servers []*natsServer
	stores  []*fleetMember
	workers []*fleetMember
	clients *hosts.Host // where clients are; nil: here
	session session
	judged  map[string]bool // the partitions that share tells of; nil: all
}

// fleetMember is one of the stores or workers, in whatever process of its directory.
type fleetMember struct {
	*child
	role string      // store or worker
	name string      // of its directory, and of the file with what it logs
	node string      // by which leases name it
	host *hosts.Host // nil: here
}

// openFleet starts what cfg says in dir, and opens a session. An error leaves nothing running.
func (b *bench) openFleet(ctx context.Context, dir string, cfg fleetConfig) (_ *fleet, err error) {
	cfg.servers = max(cfg.servers, 1)
	f := &fleet{b: b, cfg: cfg, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if err := f.startServers(ctx); err != nil {
		return nil, err
	}
	for i := range cfg.stores {
		s := &fleetMember{role: "store", name: fmt.Sprint("store-", i+1)}
		if cfg.network != nil {
			if s.host, err = f.hostOf(ctx, i); err != nil {
				return nil, err
			}
		}
		if err := f.add(ctx, s); err != nil {
			return nil, err
		}
		f.stores = append(f.stores, s)
	}
	for i := range cfg.workers {
		w := &fleetMember{role: "worker", name: fmt.Sprint("worker-", i+1)}
		if err := f.add(ctx, w); err != nil {
			return nil, err
		}
		f.workers = append(f.workers, w)
	}
	f.session, err = dialFrom(ctx, f.clients, f.url, cfg.servers)
	return f, err
}

// hostOf returns the host of a store.
func (f *fleet) hostOf(ctx context.Context, store int) (*hosts.Host, error) {
	if store < min(f.cfg.stores-1, len(f.servers)) {
		return f.servers[store].host, nil
	}
	return f.cfg.network.Host(ctx, fmt.Sprint("s", store+1))
}

// add starts a member for the first time.
func (f *fleet) add(ctx context.Context, m *fleetMember) error {
	if err := f.start(ctx, m); err != nil {
		return err
	}
	id, err := os.ReadFile(filepath.Join(f.dir, m.name, "node-id"))
	if err != nil {
		return errors.Join(fmt.Errorf("the name of %s: %w", m.name, err), m.kill())
	}
	m.node = strings.TrimSpace(string(id))
	return nil
}

// start starts a process of a member and waits until it is ready.
func (f *fleet) start(ctx context.Context, m *fleetMember) error {
	log, err := os.OpenFile(filepath.Join(f.dir, m.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", m.name, err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	args := []string{"--server", f.url, "--dir", filepath.Join(f.dir, m.name), "--log-level", "info"}
	if f.cfg.servers > 1 {
		args = append(args, "--durability", "replicas")
	}
	if m.role == "worker" {
		args = append(args, f.cfg.worker...)
	}
	if m.child, err = f.b.startChildAt(ctx, m.host, log, m.role, args...); err != nil {
		return err
	}
	if err := m.waitReady(ctx); err != nil {
		return errors.Join(err, m.kill())
	}
	return nil
}

// signal sends a signal to a member's process.
func (m *fleetMember) signal(s syscall.Signal) error {
	if err := m.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", m.name, err)
	}
	return nil
}

const fleetContainer = `
apiVersion: millrace/v1
kind: Container
metadata: {name: product}
spec: {partitionKey: [/categoryId], partitions: %d, standbys: %d}
`

// declare declares the container of the products, or how many standbys it is to have, and waits until they are as they
// should be.
func (f *fleet) declare(ctx context.Context, partitions, standbys int) error {
	if err := f.session.apply(ctx, fmt.Sprintf(fleetContainer, partitions, standbys)); err != nil {
		return err
	}
	_, err := f.awaitWhole(ctx, partitions, standbys > 0)
	return err
}

// load stores the products in the container that was declared, and returns it.
func (f *fleet) load(ctx context.Context, set *dataset.Set) (*store.Container, error) {
	into, err := f.session.client.Container(ctx, database, "product")
	if err != nil {
		return nil, err
	}
	f.b.say("  loading %s products", measure.Number(float64(set.Products())))
	return into, load(ctx, into, set, 0, set.Products())
}

// close ends all processes.
func (f *fleet) close() error {
	f.session.close()
	var errs []error
	for _, m := range slices.Concat(f.workers, f.stores) {
		errs = append(errs, m.stop())
	}
	for _, n := range f.servers {
		errs = append(errs, n.stop())
	}
	return errors.Join(errs...)
}

// share is who has what: of each partition the lease, and the nodes that have a warm copy.
type share struct {
	leases map[string]leases.Lease    // by resource
	warm   map[string]map[string]bool // by resource, nodes
	up     map[string]bool            // nodes
	short  string                     // a stream that lacks a replica, or whose replicas lack something; "" if none does
}

func (f *fleet) share(ctx context.Context) (s share, err error) {
	all, err := leases.List(ctx, f.session.js, "")
	if err != nil {
		return s, err
	}
	processes, err := leases.Processes(ctx, f.session.js, "")
	if err != nil {
		return s, err
	}
	s = share{leases: map[string]leases.Lease{}, warm: map[string]map[string]bool{}, up: map[string]bool{}}
	for i := range all {
		if all[i].Group == owner.LeaseGroup && (f.judged == nil || f.judged[all[i].Resource]) {
			s.leases[all[i].Resource] = all[i]
		}
	}
	for i := range processes {
		p := &processes[i]
		if p.Group != owner.LeaseGroup || p.State != leases.ProcessUp {
			continue
		}
		s.up[p.Node] = true
		for resource := range p.Warm {
			if s.warm[resource] == nil {
				s.warm[resource] = map[string]bool{}
			}
			s.warm[resource][p.Node] = true
		}
	}
	if f.cfg.servers > 1 {
		s.short, err = f.short(ctx)
	}
	return s, err
}

// short names a stream whose replicas are not all there and up to date.
func (f *fleet) short(ctx context.Context) (string, error) {
	report, err := upkeep.Look(ctx, f.session.js, upkeep.Wish{Replicas: f.cfg.servers})
	if err != nil {
		return "", err
	}
	for i := range report.Streams {
		if s := &report.Streams[i]; s.Short() || len(s.Offline)+len(s.Behind) > 0 || s.Error != "" {
			return fmt.Sprintf("%+v", *s), nil
		}
	}
	return "", nil
}

// except returns the resources that others than a node own.
func (s *share) except(node string) (resources []string) {
	for resource, l := range s.leases {
		if leases.NodeOf(l.Owner) != node {
			resources = append(resources, resource)
		}
	}
	return resources
}

// all returns the resources that have a lease.
func (s *share) all() (resources []string) {
	for resource := range s.leases {
		resources = append(resources, resource)
	}
	return resources
}

// of returns the resources that a node owns.
func (s *share) of(node string) (resources []string) {
	for resource, l := range s.leases {
		if leases.NodeOf(l.Owner) == node {
			resources = append(resources, resource)
		}
	}
	return resources
}

// whole says what is missing until so many partitions have an owner and, if copied, a warm copy elsewhere, and every
// store owns something; "" if nothing is.
func (f *fleet) whole(s *share, partitions int, copied bool) string {
	if s.short != "" {
		return s.short
	}
	if len(s.leases) < partitions {
		return fmt.Sprintf("%d of %d partitions have a lease", len(s.leases), partitions)
	}
	for resource, l := range s.leases {
		node := leases.NodeOf(l.Owner)
		if !s.up[node] {
			return fmt.Sprintf("%s has no owner that is up (%q)", resource, l.Owner)
		}
		elsewhere := 0
		for at := range s.warm[resource] {
			if at != node {
				elsewhere++
			}
		}
		if copied && elsewhere == 0 {
			return resource + " has no warm copy"
		}
	}
	for _, m := range f.stores {
		if len(s.of(m.node)) == 0 {
			return m.name + " owns nothing"
		}
	}
	return ""
}

const (
	wholePoll = 250 * time.Millisecond
	wholeMax  = 3 * time.Minute
	// wholeFor is for how long nothing must have been missing.
	wholeFor = 2 * time.Second
)

// awaitWhole waits until nothing has been missing for a while, and returns who has what.
func (f *fleet) awaitWhole(ctx context.Context, partitions int, copied bool) (share, error) {
	began := time.Now()
	for since := began; ; {
		s, err := f.share(ctx)
		missing := ""
		if err != nil { // NATS servers may be about to find a leader
			missing = err.Error()
		} else {
			missing = f.whole(&s, partitions, copied)
		}
		switch {
		case missing != "":
			since = time.Now()
		case time.Since(since) >= wholeFor:
			return s, nil
		}
		if time.Since(began) > wholeMax {
			return s, fmt.Errorf("the stores have not come to rest in %s: %s", wholeMax, missing)
		}
		if err := wait(ctx, wholePoll); err != nil {
			return s, err
		}
	}
}

// awaitTaken waits until others have taken all leases that were of one node.
func (f *fleet) awaitTaken(ctx context.Context, before *share, node string) error {
	began := time.Now()
	for {
		s, err := f.share(ctx)
		missing := ""
		if err != nil {
			missing = err.Error()
		}
		for _, resource := range before.of(node) {
			if s.leases[resource].Epoch == before.leases[resource].Epoch || s.leases[resource].Owner == "" {
				missing = resource
			}
		}
		if missing == "" {
			return nil
		}
		if time.Since(began) > wholeMax {
			return fmt.Errorf("nobody has taken %s in %s", missing, wholeMax)
		}
		if err := wait(ctx, wholePoll); err != nil {
			return err
		}
	}
}
