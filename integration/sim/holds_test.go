package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed"
)

// Who reads a log keeps what it has not read from being trimmed. Copies come out right without
// that too, because a pipeline that is cut off begins anew by itself; so it is looked at each purge.
//
//	apply writes the record       an owner that asks from now on finds it
//	apply looks at the log        what may have gone before is below the trim point, which it
//	                              sees: it begins anew, with another generation
//	apply has returned            no purge takes what this generation has not read,
//	                              however late it arrives
//
// The judge reads records and checkpoints by itself, as the simulated server has them at the
// moment of the purge. A generation that an attempt left behind that was told to have failed is not
// looked at: nobody has looked at the log for it, and it may rightly begin anew.

// record is a pipeline's record, as far as it tells what is read.
type record struct {
	ID         string                     `json:"id"`
	Generation uint32                     `json:"generation"`
	Source     feed.ResourceID            `json:"source"`
	Target     feed.ResourceID            `json:"target"`
	Spec       map[string]json.RawMessage `json:"spec"`
	Starts     []start                    `json:"starts"`
	From       []start                    `json:"from"`
	Walks      []struct {
		Partition uint32   `json:"partition"`
		LSN       feed.LSN `json:"lsn"`
		Items     uint64   `json:"items"`
	} `json:"walks"`
}

type start struct {
	Partition uint32 `json:"partition"`
	After     string `json:"after"`
}

// checkpoint is that of a reader, as far as it tells what is read.
type checkpoint struct {
	Position string `json:"position"`
	Jobs     []struct {
		Source   string `json:"source"`
		Position string `json:"position"`
	} `json:"jobs"`
	Fill struct {
		Scanned uint64 `json:"scanned"`
		Done    bool   `json:"done"`
	} `json:"fill"`
}

// records returns the records of all pipelines.
func (w *world) records() []record {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	return w.recordsLocked()
}

func (w *world) recordsLocked() (all []record) {
	st := w.server.streams["KV_millrace_pipelines"]
	if st == nil {
		return nil
	}
	for _, m := range st.msgs {
		if !strings.HasPrefix(m.subject, "$KV.millrace_pipelines.pipeline.") || len(m.data) == 0 || st.lastOf(m.subject) != m {
			continue // of the bucket's history
		}
		var r record
		if err := json.Unmarshal(m.data, &r); err != nil {
			panic(err)
		}
		all = append(all, r)
	}
	return all
}

func (r *record) same(o *record) bool { return r.ID == o.ID && r.Generation == o.Generation }

// hold remembers which generations an attempt has registered that did not fail.
func (w *world) hold(before []record) {
	after := w.records()
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	for i := range after {
		if !slices.ContainsFunc(before, func(o record) bool { return after[i].same(&o) }) {
			w.held = append(w.held, after[i])
		}
	}
}

// reader is who reads a partition for a generation.
type reader struct {
	r         *record
	role      string
	partition feed.Partition
}

func (u reader) String() string {
	return fmt.Sprintf("pipe/%s/%d/%s/%s", u.r.ID, u.r.Generation, u.role, u.partition)
}

// readers returns who reads the partitions of a container.
func (r *record) readers(p feed.Partition) (all []reader) {
	if p.Container == r.Source {
		all = append(all, reader{r, "source", p})
	}
	if _, cascade := r.Spec["cascade"]; cascade && p.Container == r.Target {
		all = append(all, reader{r, "target", p})
	}
	return all
}

// checkpointLocked returns what is saved of a reader, nil if nothing is. It is over if its lease was forgotten: its generation
// is not there any more, which judgeGenerations judges.
func (w *world) checkpointLocked(u reader) (_ *checkpoint, over bool) {
	st := w.server.streams["KV_millrace_leases"]
	m := st.lastOf("$KV.millrace_leases.lease.worker." + u.String())
	if m == nil {
		return nil, false
	}
	if len(m.data) == 0 { // the marker of a deletion
		return nil, true
	}
	var lease struct {
		Checkpoint []byte `json:"checkpoint"`
	}
	if err := json.Unmarshal(m.data, &lease); err != nil {
		panic(err)
	}
	if len(lease.Checkpoint) == 0 {
		return nil, false
	}
	c := &checkpoint{}
	if err := json.Unmarshal(lease.Checkpoint, c); err != nil {
		panic(err)
	}
	return c, false
}

// doneLocked returns up to which LSN a reader needs its log no more.
func (w *world) doneLocked(u reader) feed.LSN {
	begins := u.r.From
	if u.role == "target" {
		begins = u.r.Starts
	}
	var at feed.Position
	for _, s := range begins {
		if s.Partition == u.partition.Number {
			at = must(feed.ParsePosition(s.After))
		}
	}
	c, over := w.checkpointLocked(u)
	if over {
		return math.MaxUint64 - 1
	}
	if c != nil {
		at = must(feed.ParsePosition(c.Position))
		for _, j := range c.Jobs {
			if open := must(feed.ParsePosition(j.Position)); open.Before(at) && j.Source != "what was there" {
				at = open
			}
		}
	}
	for _, walk := range u.r.Walks {
		if u.role == "source" && walk.Partition == u.partition.Number {
			at.LSN = max(at.LSN, walk.LSN)
		}
	}
	return at.LSN
}

// purged looks whether a purge has left what readers need.
func (w *world) purged(st *stream) {
	if !st.isLog() || len(w.held) == 0 {
		return
	}
	for _, info := range w.containers {
		for _, p := range info.Partitions {
			id := feed.Partition{Container: info.ID, Number: p.Number}
			if id.Stream() != st.name {
				continue
			}
			for i := range w.held {
				for _, u := range w.held[i].readers(id) {
					if done := w.doneLocked(u); feed.LSN(st.first) > done+1 {
						w.failf("the log of %s is trimmed and begins at %d; %s has read up to %s", id, st.first, u, done)
					}
				}
			}
		}
	}
}

// judgeGenerations looks whether no pipeline had to begin anew.
func (w *world) judgeGenerations() {
	now := w.records()
	for i := range w.held {
		was := &w.held[i]
		if !slices.ContainsFunc(now, func(r record) bool { return was.same(&r) }) {
			w.failf("generation %d of pipeline %s was registered, and is not there any more", was.Generation, was.ID)
		}
	}
}

// measureWalks tells how many walks there were.
func (w *world) measureWalks(r *counts) {
	w.net.mu.Lock()
	defer w.net.mu.Unlock()
	records := w.recordsLocked()
	r.Declared += len(records)
	for i := range records {
		rec := &records[i]
		for _, walk := range rec.Walks {
			r.Walks, r.Walked = r.Walks+1, r.Walked+walk.Items
		}
		for _, info := range w.containers {
			for _, p := range info.Partitions {
				// A cascade's walk is over its target, by whoever reads that partition.
				for _, u := range rec.readers(feed.Partition{Container: info.ID, Number: p.Number}) {
					if c, _ := w.checkpointLocked(u); c != nil && c.Fill.Done {
						r.Walks, r.Walked = r.Walks+1, r.Walked+c.Fill.Scanned
					}
				}
			}
		}
	}
}
