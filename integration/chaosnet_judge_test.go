//go:build linux

package integration_test

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// registerVerdict is what a history was judged by, and what is wrong with it.
type registerVerdict struct {
	writes, reads, keys             int // acknowledged writes, reads of owners, keys of which each has a history
	sessions, eventual, byStandbies int // reads that a standby may answer, and those that one did
	oldest                          time.Duration
	wrong                           []string
	illegal                         map[string][]porcupine.Operation // by key: histories that nothing explains
}

func (v *registerVerdict) wrongf(format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Sprintf(format, args...))
}

// porcupineTime bounds the search of each key.
const porcupineTime = time.Minute

// judge judges what clients saw of the registers by itself: the history of each key is linearizable, and what a standby
// answered keeps the promise of the session. changes are those of the whole feed, by which each write that was acknowledged
// is there, once.
func (r *registers) judge(changes []registerChange) *registerVerdict {
	v := &registerVerdict{illegal: map[string][]porcupine.Operation{}}
	ops := slices.Clone(r.ops)
	for _, l := range r.looks {
		if !l.standby { // the owner answered, who knows the newest
			ops = append(ops, registerOp{client: l.client, kind: opRead, key: l.key, value: l.value, etag: l.etag, from: l.from, to: l.until})
		}
	}
	slices.SortStableFunc(ops, func(a, b registerOp) int { return cmp.Compare(a.from, b.from) })
	byKey := map[string][]registerOp{}
	for _, op := range ops {
		byKey[op.key] = append(byKey[op.key], op)
		switch {
		case op.kind == opRead:
			v.reads++
		case !op.unknown && !op.refused:
			v.writes++
		}
	}
	v.keys = len(byKey)
	v.linearizable(byKey)
	v.once(byKey, changes)
	v.promises(byKey, r.looks)
	return v
}

// registerModel is one register. Its state is its value.
var registerModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		op := input.(*registerOp)
		switch {
		case op.kind == opWrite:
			return true, op.value
		case op.kind == opRead:
			return state == op.value, state
		case op.unknown: // what was not done is the same as what is done when it does not matter any more
			if state == op.want {
				return true, op.value
			}
			return true, state
		case op.refused:
			return state != op.want, state
		}
		return state == op.want, op.value
	},
	DescribeOperation: func(input, _ any) string {
		op := input.(*registerOp)
		text := fmt.Sprintf("%s %q", op.kind, op.value)
		if op.kind == opSet {
			text += fmt.Sprintf(" in the place of %q", op.want)
		}
		if op.refused {
			text += ", refused"
		}
		if op.unknown {
			text += ", unknown"
		}
		return text + " " + op.etag.String()
	},
}

func (v *registerVerdict) linearizable(byKey map[string][]registerOp) {
	for key, ops := range byKey {
		var history []porcupine.Operation
		for i := range ops {
			op := &ops[i]
			to := int64(op.to)
			if op.unknown {
				to = math.MaxInt64
			}
			history = append(history, porcupine.Operation{ClientId: op.client, Input: op, Output: op, Call: int64(op.from), Return: to})
		}
		switch porcupine.CheckOperationsTimeout(registerModel, history, porcupineTime) {
		case porcupine.Illegal:
			v.wrongf("the history of %s is not linearizable: %d operations", key, len(ops))
			v.illegal[key] = history
		case porcupine.Unknown:
			v.wrongf("the history of %s, of %d operations, could not be judged within %s", key, len(ops), porcupineTime)
		case porcupine.Ok:
		}
	}
}

// registerChange is one change of the feed.
type registerChange struct {
	key, value string
	etag       store.ETag
}

// once compares acknowledged writes with the feed: each is there, with the etag that was told, and no write is there twice.
func (v *registerVerdict) once(byKey map[string][]registerOp, changes []registerChange) {
	at := map[string]registerChange{} // by value: no value is written by two
	for _, c := range changes {
		if other, twice := at[c.value]; twice {
			v.wrongf("the value %q was written to %s at %s, and to %s at %s", c.value, other.key, other.etag, c.key, c.etag)
		}
		at[c.value] = c
	}
	for key, ops := range byKey {
		for i := range ops {
			op := &ops[i]
			c, there := at[op.value]
			switch {
			case op.kind == opRead && op.value == "":
			case !there && (op.kind == opRead || !op.unknown && !op.refused):
				v.wrongf("%s of %q to %s at %s, acknowledged at %s, is not in the feed", op.kind, op.value, key, op.etag, op.to)
			case there && op.refused:
				v.wrongf("%q was refused, and is in the feed at %s", op.value, c.etag)
			case there && !op.unknown && (c.key != key || c.etag != op.etag):
				v.wrongf("%s of %q of %s tells the etag %s; the feed has it of %s at %s", op.kind, op.value, key, op.etag, c.key, c.etag)
			}
		}
	}
}

// promises compares what may be older than the newest with what was promised: it was written, and in a session it is not
// older than what the session has seen of the item, and not older than the state that the session has of the partition.
func (v *registerVerdict) promises(byKey map[string][]registerOp, looks []registerLook) {
	for i := range looks {
		l := &looks[i]
		if l.standby {
			v.byStandbies++
		}
		if l.session {
			v.sessions++
		} else {
			v.eventual++
		}
		written := l.value == ""
		var newest *registerOp // of those that were acknowledged before
		for n := range byKey[l.key] {
			op := &byKey[l.key][n]
			if op.refused || op.unknown {
				written = written || op.unknown && op.value == l.value
				continue
			}
			if op.kind != opRead && op.value == l.value {
				written = true
				if op.etag != l.etag {
					v.wrongf("client %d reads %q of %s at %s; it was written at %s", l.client, l.value, l.key, l.etag, op.etag)
				}
			}
			mine := op.client == l.client && op.to <= l.from
			if l.session && (mine || op.etag.LSN <= l.least) && feed.Position(l.etag).Before(feed.Position(op.etag)) {
				v.wrongf("client %d, whose session has LSN %d, reads %q of %s at %s, after %s of %q at %s (standby: %t, at %s)",
					l.client, l.least, l.value, l.key, l.etag, op.kind, op.value, op.etag, l.standby, l.from)
			}
			if op.kind != opRead && op.to <= l.from && (newest == nil || feed.Position(newest.etag).Before(feed.Position(op.etag))) {
				newest = op
			}
		}
		if !written {
			v.wrongf("client %d reads %q of %s at %s, which nobody wrote", l.client, l.value, l.key, l.etag)
		}
		if newest != nil && feed.Position(l.etag).Before(feed.Position(newest.etag)) {
			v.oldest = max(v.oldest, l.until-newest.to)
		}
	}
}

// tell fails the test with what is wrong, and draws the histories that nothing explains.
func (v *registerVerdict) tell(t *testing.T) {
	t.Helper()
	for i, wrong := range v.wrong {
		if i == 50 {
			t.Errorf("and %d more", len(v.wrong)-i)
			break
		}
		t.Error(wrong)
	}
	for key, history := range v.illegal {
		for _, op := range history {
			t.Logf("%s: client %d, %s to %s: %s", key, op.ClientId, time.Duration(op.Call), time.Duration(op.Return), registerModel.DescribeOperation(op.Input, op.Output))
		}
		_, info := porcupine.CheckOperationsVerbose(registerModel, history, porcupineTime)
		picture := filepath.Join(t.ArtifactDir(), key+".html")
		if err := porcupine.VisualizePath(registerModel, info, picture); err != nil {
			t.Error(err)
			continue
		}
		t.Logf("a picture of the history of %s: %s (kept with -artifacts)", key, picture)
	}
	t.Logf("judged: %d acknowledged writes and %d reads of %d registers; %d reads in sessions and %d of any state, %d of them answered by standbys, the oldest state %s old",
		v.writes, v.reads, v.keys, v.sessions, v.eventual, v.byStandbies, v.oldest.Round(time.Millisecond))
}
