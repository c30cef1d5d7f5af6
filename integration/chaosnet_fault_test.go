//go:build linux

package integration_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/owner"
	"github.com/millrace/millrace/store/upkeep"
)

// inflict lets a fault begin, and returns what ends it.
func (f *chaosFleet) inflict(kind string, h *chaosHost) (end func()) {
	f.t.Helper()
	switch kind {
	case faultKill:
		h.end(syscall.SIGKILL)
		return h.begin
	case faultPlanned:
		h.end(syscall.SIGTERM)
		return h.begin
	case faultWiped:
		h.end(syscall.SIGKILL)
		return func() {
			f.t.Helper()
			h.wipe()
			h.begin()
		}
	case faultStop:
		h.tell(syscall.SIGSTOP)
		return func() { h.tell(syscall.SIGCONT) }
	case faultCut:
		h.Cut()
	case faultDumb:
		h.CutSending()
	case faultDeaf:
		h.CutReceiving()
	case faultSlow:
		f.t.Logf("the link of %s: %s", h.Name, h.Slow())
	case faultFull:
		free := h.disk.takeAll()
		if h.nats == nil {
			return free
		}
		return func() {
			// A server that could not write has given JetStream up until somebody starts it again.
			free()
			h.end(syscall.SIGTERM)
			h.begin()
		}
	}
	return h.Heal
}

func (h *chaosHost) tell(s syscall.Signal) { _ = h.process().Signal(s) } // it may have ended

// wipe removes all that the host's disk holds.
func (h *chaosHost) wipe() {
	h.disk.t.Helper()
	all, err := os.ReadDir(h.disk.dir)
	if err != nil {
		h.disk.t.Fatal(err)
	}
	for _, entry := range all {
		if err := os.RemoveAll(filepath.Join(h.disk.dir, entry.Name())); err != nil {
			h.disk.t.Fatal(err)
		}
	}
}

// find returns the host of a name.
func (f *chaosFleet) find(name string) *chaosHost {
	f.t.Helper()
	for _, h := range f.hosts {
		if h.Name == name {
			return h
		}
	}
	f.t.Fatalf("there is no host %s", name)
	return nil
}

// alive fails the test if a process of Millrace has ended by itself: none of the faults is to end it.
func (f *chaosFleet) alive() {
	f.t.Helper()
	for _, h := range f.hosts {
		if h.gone() {
			f.t.Fatalf("the %s on %s has ended by itself", h.role, h.Name)
		}
	}
}

// wellTold is how often is told what is missing.
const wellTold = 15 * time.Second

// well waits until nothing is missing: every replica of every stream is up to date, every process is up, what has a lease
// is up, every partition has an owner and a warm copy elsewhere, and no split is under way.
func (f *chaosFleet) well() {
	f.t.Helper()
	told := time.Now()
	poll.Until(f.t, func() (err error) {
		f.alive()
		ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
		defer cancel()
		if err = f.replicasWhole(ctx); err == nil {
			err = f.ownersWhole(ctx)
		}
		if err != nil && time.Since(told) > wellTold {
			told = time.Now()
			f.t.Logf("not well yet: %v", err)
		}
		return err
	})
}

func (f *chaosFleet) replicasWhole(ctx context.Context) error {
	report, err := upkeep.Look(ctx, f.js, upkeep.Wish{Replicas: 3})
	if err != nil {
		return err
	}
	for i := range report.Streams {
		if s := &report.Streams[i]; s.Short() || len(s.Offline)+len(s.Behind) > 0 || s.Error != "" {
			return fmt.Errorf("stream %+v", *s)
		}
	}
	return nil
}

func (f *chaosFleet) ownersWhole(ctx context.Context) error {
	members, err := leases.Processes(ctx, f.js, "")
	if err != nil {
		return err
	}
	up, warm := map[string]int{}, map[string][]string{} // of groups, and nodes by resource
	nodes := map[string]bool{}                          // group and node
	for i := range members {
		if m := &members[i]; m.State == leases.ProcessUp {
			up[m.Group]++
			nodes[m.Group+" "+m.Node] = true
			for resource := range m.Warm {
				warm[resource] = append(warm[resource], m.Node)
			}
		}
	}
	if up[owner.LeaseGroup] != chaosStores || up["worker"] != chaosWorkers {
		return fmt.Errorf("of the groups so many are up: %v", up)
	}
	all, err := leases.List(ctx, f.js, "")
	if err != nil {
		return err
	}
	owners := map[string]string{}
	for i := range all {
		l := &all[i]
		node := leases.NodeOf(l.Owner)
		switch {
		case node == "": // as of a partition that was split
		case !nodes[l.Group+" "+node]:
			return fmt.Errorf("%s of group %s has owner %s, which is not up", l.Resource, l.Group, l.Owner)
		case l.Group == owner.LeaseGroup:
			owners[l.Resource] = node
		}
	}
	return f.copiesWhole(ctx, owners, warm)
}

// copiesWhole compares who owns what, and who has a warm copy, with the catalog.
func (f *chaosFleet) copiesWhole(ctx context.Context, owners map[string]string, warm map[string][]string) error {
	containers, err := f.client.Catalog().List(ctx)
	if err != nil {
		return err
	}
	for i := range containers {
		info := &containers[i]
		if len(info.Splits) > 0 {
			return fmt.Errorf("a split of %s is under way: %+v", info.Name, info.Splits)
		}
		for _, p := range info.Partitions {
			resource := owner.LeaseResource(feed.Partition{Container: info.ID, Number: p.Number})
			node := owners[resource]
			if node == "" {
				return fmt.Errorf("partition %d of %s has no owner", p.Number, info.Name)
			}
			copied := info.Spec.Standbys == 0
			for _, at := range warm[resource] {
				copied = copied || at != node
			}
			if !copied {
				return fmt.Errorf("partition %d of %s, owned by %s, has no warm copy elsewhere: %v", p.Number, info.Name, node, warm[resource])
			}
		}
	}
	return nil
}

// splitsMost bounds the partitions of a container.
const splitsMost = 8

// split asks for the split that a step names, and tells what came of it.
func (f *chaosFleet) split(ctx context.Context, s *chaosStep) string {
	ct, err := f.client.Container(ctx, "default", s.split)
	if err != nil {
		return err.Error()
	}
	if len(ct.Partitions()) >= splitsMost {
		return "it has enough partitions"
	}
	p := ct.Partitions()[int(s.where*float64(len(ct.Partitions())))]
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	did, err := ct.Split(ctx, p, store.SplitPartition{})
	if err != nil {
		return fmt.Sprintf("%s is not split: %v", p, err)
	}
	var into []string
	for _, child := range did.Children {
		into = append(into, fmt.Sprint(child.Number))
	}
	return fmt.Sprintf("%s becomes %s", p, strings.Join(into, " and "))
}
