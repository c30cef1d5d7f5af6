package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/steps"
	"github.com/millrace/millrace/store"
)

// splitKills is a store in one process that is killed while a partition of it is split.
type splitKills struct {
	stepper
	t      *testing.T
	node   *child
	client *store.Client
	js     jetstream.JetStream
}

// TestKill_AtEveryStepOfASplit kills the one process at each step in which it changes files while it splits a partition
// that is written. The split goes on by itself when the process is there again. Every acknowledged write is in a child,
// once (I2), the parent's log ends with the split, each child's begins with one genesis (I1), and what was written under
// an idempotency key is not written again.
func TestKill_AtEveryStepOfASplit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := strconv.Itoa(freePort(t))
	server := "nats://127.0.0.1:" + port
	k := &splitKills{t: t, stepper: stepper{
		dice: rand.New(rand.NewPCG(newStepSeed(t), 0)), known: map[string]map[string]*tally{}, folders: map[string]string{dir: ""},
	}}
	watcher := steps.New(t, k.see)
	watcher.Writes = true
	k.node = spawnWatched(t, watcher, "up", "--dir", dir, "--port", port, "--listen", "off", "--set", "store.snapshots.sharePercent=100")
	tellOnFailure(t, k.node)
	k.client, k.js = dial(t, server), dialJetStream(t, server)
	for n := range *stepRounds {
		name := fmt.Sprint("things", n)
		file := filepath.Join(t.TempDir(), "things.yaml")
		writeText(t, file, "apiVersion: millrace/v1\nkind: Container\nmetadata: {name: "+name+"}\nspec: {partitionKey: [/pk], partitions: 1, indexes: [/n]}\n")
		mustRun(t, server, "apply", "-f", file)
		k.round(name)
		if t.Failed() {
			t.Fatalf("round %d", n)
		}
	}
	t.Log(k.table())
}

// round splits the partition of a container, and kills the process meanwhile.
func (k *splitKills) round(name string) {
	k.t.Helper()
	const before = 200
	for i := range before {
		k.write(k.t.Context(), name, i)
	}
	ctx, stop := context.WithCancel(k.t.Context())
	var writing sync.WaitGroup
	wrote := before
	writing.Go(func() {
		for ctx.Err() == nil {
			k.write(k.t.Context(), name, wrote)
			wrote++
		}
	})
	over := make(chan struct{})
	writing.Go(func() {
		defer close(over)
		k.split(ctx, name)
	})
	k.begin("splitting")
	select {
	case <-k.node.Ended:
	case <-over:
	case <-time.After(5 * stepPatience): // no event tells that a step does not come
	}
	if missed := k.end(); missed != "" {
		k.t.Logf("the step %q did not come", missed)
	}
	k.node.kill()
	k.node.start()
	<-over
	stop()
	writing.Wait()
	k.check(name, wrote)
}

// split asks for the split until the catalog names the children.
func (k *splitKills) split(ctx context.Context, name string) {
	poll.Until(k.t, func() error {
		ct, err := k.client.Container(ctx, "default", name)
		if err != nil || len(ct.Partitions()) > 1 {
			return err
		}
		_, err = ct.Split(ctx, ct.Partitions()[0], store.SplitPartition{})
		return fmt.Errorf("partition %s is there: %w", ct.Partitions()[0], err)
	})
}

// write writes an item, under its idempotency key until that is acknowledged.
func (k *splitKills) write(ctx context.Context, name string, i int) {
	body := fmt.Appendf(nil, `{"id":"i%d","pk":"p%d","n":%d}`, i, i%61, i%7)
	poll.Until(k.t, func() error {
		ct, err := k.client.Container(ctx, "default", name)
		if err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = ct.Create(short, body, store.WriteOptions{IdempotencyKey: fmt.Sprint("w", i)})
		return err
	})
}

// check compares what the children hold with what was acknowledged, and looks at the logs.
func (k *splitKills) check(name string, wrote int) {
	k.t.Helper()
	ct := open(k.t, k.client, name)
	info, held := ct.Info(), 0
	if len(info.Partitions) != 2 || len(info.Former) != 1 || len(info.Splits) > 0 {
		k.t.Fatalf("the catalog has %+v", info)
	}
	for _, p := range ct.Partitions() {
		n, err := ct.Count(k.t.Context(), p, store.Scope{})
		if err != nil {
			k.t.Fatal(err)
		}
		held += n
	}
	if held != wrote {
		k.t.Errorf("the children hold %d items, %d were written", held, wrote)
	}
	for i := range wrote {
		key, err := feed.NewPartitionKey(fmt.Sprint("p", i%61))
		if err != nil {
			k.t.Fatal(err)
		}
		if _, err := ct.Read(k.t.Context(), key, fmt.Sprint("i", i)); err != nil {
			k.t.Errorf("write %d was acknowledged: %v", i, err)
		}
	}
	former := &info.Former[0]
	commits := k.commits(feed.Partition{Container: info.ID, Number: former.Number})
	last := commits[len(commits)-1]
	if split, err := feed.SplitOf(last); err != nil || split == nil || last.LSN != former.Last || split.First != former.First {
		k.t.Errorf("the log of the parent ends with LSN %d: %+v, %v; the catalog says %+v", last.LSN, split, err, former)
	}
	for _, p := range ct.Partitions() {
		commits := k.commits(p)
		for at, c := range commits {
			begins := c.Transactions[0].Control != nil && c.Transactions[0].Control.Kind == store.ControlGenesis
			if begins != (at == 0) || at == 0 && (c.LSN != former.First || c.Prev != last.Sum) {
				k.t.Errorf("commit %d of %s, the %dth of its log, begins it: %t; it follows %s", c.LSN, p, at+1, begins, c.Prev)
			}
		}
	}
}

// commits are those of a log.
func (k *splitKills) commits(p feed.Partition) (all []*feed.Commit) {
	k.t.Helper()
	log, err := feed.OpenLog(k.t.Context(), k.js, p, feed.LogConfig{})
	if err != nil {
		k.t.Fatal(err)
	}
	defer log.Close()
	first, last, err := log.Bounds(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	tail, err := log.Tail(k.t.Context(), first, feed.TailOptions{})
	if err != nil {
		k.t.Fatal(err)
	}
	defer tail.Close()
	for lsn := first; lsn <= last; lsn++ {
		c, err := tail.Next(k.t.Context())
		if err != nil {
			k.t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}
