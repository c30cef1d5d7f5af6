//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/integration/bench/dataset"
	"github.com/millrace/millrace/integration/bench/measure"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
)

// fleet is Millrace as it runs on hosts of its own: some store processes, over a NATS server that is another
// process and outlives them.
type fleet struct {
	b       *bench
	dir     string
	url     string
	nats    *exec.Cmd
	said    bytes.Buffer // by the NATS server; read when it has ended
	stores  []*fleetStore
	session session
}

// fleetStore is one of the stores, in whatever process of its directory.
type fleetStore struct {
	*child
	name string // of its directory, and of the file with what it logs
	node string // by which leases name it
}

const fleetConf = `
listen: "127.0.0.1:%d"
max_payload: 8MB
jetstream { store_dir: %q, sync_interval: always }
authorization { user: %q, password: %q }
`

// openFleet starts a NATS server and so many stores in dir, and opens a session. An error leaves nothing running.
func (b *bench) openFleet(ctx context.Context, dir string, stores int) (_ *fleet, err error) {
	f := &fleet{b: b, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if err := f.startNATS(ctx); err != nil {
		return nil, err
	}
	for i := range stores {
		s := &fleetStore{name: fmt.Sprint("store-", i+1)}
		if err := f.start(ctx, s); err != nil {
			return nil, err
		}
		f.stores = append(f.stores, s)
		id, err := os.ReadFile(filepath.Join(dir, s.name, "node-id"))
		if err != nil {
			return nil, fmt.Errorf("the store's name: %w", err)
		}
		s.node = strings.TrimSpace(string(id))
	}
	f.session, err = dial(ctx, f.url)
	return f, err
}

// startNATS builds the server of this module and starts it, with every append synced.
func (f *fleet) startNATS(ctx context.Context) error {
	binary, conf := filepath.Join(f.dir, "nats-server"), filepath.Join(f.dir, "nats.conf")
	f.b.say("  building nats-server")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/nats-io/nats-server/v2").CombinedOutput(); err != nil {
		return fmt.Errorf("build nats-server: %w: %s", err, bytes.TrimSpace(out))
	}
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	text := fmt.Appendf(nil, fleetConf, port, filepath.Join(f.dir, "jetstream"), user, password)
	if err := os.WriteFile(conf, text, 0o600); err != nil {
		return fmt.Errorf("configure nats-server: %w", err)
	}
	f.url = natsURL(port)
	f.nats = exec.CommandContext(context.WithoutCancel(ctx), binary, "-c", conf)
	f.nats.Stdout, f.nats.Stderr = &f.said, &f.said
	f.nats.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := f.nats.Start(); err != nil {
		f.nats = nil
		return fmt.Errorf("start nats-server: %w", err)
	}
	for deadline := time.Now().Add(readyMax); ; {
		nc, err := nats.Connect(f.url, nats.UserInfo(user, password))
		if err == nil {
			nc.Close()
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("connect to %s: %w", f.url, err)
		}
		if err := wait(ctx, readyPoll); err != nil {
			return err
		}
	}
}

// start starts a process of a store and waits until it is ready.
func (f *fleet) start(ctx context.Context, s *fleetStore) error {
	log, err := os.OpenFile(filepath.Join(f.dir, s.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of a store: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	s.child, err = f.b.startChildTo(ctx, log, "store", "--server", f.url, "--dir", filepath.Join(f.dir, s.name), "--log-level", "info")
	if err != nil {
		return err
	}
	if err := s.waitReady(ctx); err != nil {
		return errors.Join(err, s.kill())
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
	for _, s := range f.stores {
		errs = append(errs, s.stop())
	}
	if f.nats == nil {
		return errors.Join(errs...)
	}
	if err := f.nats.Process.Signal(syscall.SIGTERM); err != nil {
		errs = append(errs, fmt.Errorf("stop nats-server: %w", err))
	}
	if err := f.nats.Wait(); err != nil && f.nats.ProcessState.Exited() && f.nats.ProcessState.ExitCode() != 1 { // which SIGTERM makes it return
		errs = append(errs, fmt.Errorf("nats-server: %w: %s", err, bytes.TrimSpace(f.said.Bytes())))
	}
	return errors.Join(errs...)
}

// share is who has what: of each partition the lease, and the nodes that have a warm copy.
type share struct {
	leases map[string]leases.Lease    // by resource
	warm   map[string]map[string]bool // by resource, nodes
	up     map[string]bool            // nodes
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
		if all[i].Group == owner.LeaseGroup {
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
	return s, nil
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
		if err != nil {
			return s, err
		}
		missing := f.whole(&s, partitions, copied)
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
		if err != nil {
			return err
		}
		missing := ""
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
