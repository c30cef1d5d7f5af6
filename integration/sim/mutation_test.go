package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/store"
)

// mutation makes something wrong that a role of a store must not do, at the seam between its
// process and the world. A simulation that does not find it proves nothing.
type mutation string

const (
	// acknowledgesFirst lets an owner believe that a commit is in the log when it has been sent.
	acknowledgesFirst mutation = "an owner acknowledges before the append"
	// expectsNothing lets appends through whose expected sequence is not the last.
	expectsNothing mutation = "appends expect no sequence"
	// leasesTwice lets two have a lease, because it seems to expire soon, and what others have
	// written is seen late and compared with nothing: the log fences what they write, and nothing
	// what they answer.
	leasesTwice mutation = "leases are taken without comparing"
	// readsNothingBack lets a writer of snapshots read what it has sent, not what was stored.
	readsNothingBack mutation = "snapshots are trimmed by that were not read back"
	// trimsMore purges one commit more than it is asked for.
	trimsMore mutation = "a trim takes more than the log allows"
	// asksNobody lets an owner trim a log without asking which pipelines read it.
	asksNobody mutation = "logs are trimmed beyond what pipelines have read"
	// copiesNothing lets a fan-out believe that its copies are made.
	copiesNothing mutation = "pages of fan-outs are acknowledged and not made"
	// bearsTwice stores each first commit of a child's log that somebody sends.
	bearsTwice mutation = "the first commit of a child expects no sequence"
	// harmsEngines changes a byte of an item in an engine, under the right checksums.
	harmsEngines mutation = "engines hold what the log does not make"
	// forgetsSessions asks standbys for any state, not for one that a session has seen.
	forgetsSessions mutation = "standbys are not told what a session has seen"
)

const snapshotSubjects = "millrace.snapshots."

// sent does what the mutation does with a message of a client; true if that is all.
func (m mutation) sent(c *conn, o *operation) bool {
	switch {
	case o.verb != "PUB":
	case m == acknowledgesFirst && headerOf(o.header, "Nats-Expected-Last-Sequence") != "":
		last, _ := strconv.ParseUint(headerOf(o.header, "Nats-Expected-Last-Sequence"), 10, 64)
		name := ""
		for _, st := range c.host.server.sorted() {
			if st.takes(o.subject) {
				name = st.name
			}
		}
		ack, _ := json.Marshal(object{"stream": name, "seq": last + 1})
		c.answer(o.reply, ack)
		o.reply = ""
	case m == forgetsSessions && strings.HasSuffix(o.subject, ".standby"):
		o.header = atLeast.ReplaceAllFunc(o.header, func(b []byte) []byte { return bytes.Map(zeroed, b) })
	case m == leasesTwice && strings.HasPrefix(o.subject, "$KV.millrace_leases.lease."):
		o.data = bytes.Replace(o.data, fmt.Appendf(nil, `"ttlMs":%d`, leaseTTL.Milliseconds()), []byte(`"ttlMs":100`), 1)
	case m == copiesNothing && strings.HasPrefix(o.subject, "millrace.store."):
		if r, err := store.DecodeRequest(o.data); err == nil && r.PatchMany != nil {
			done := store.Response{PatchMany: &store.PatchManyResult{Done: true, Position: r.PatchMany.Position}}
			c.answer(o.reply, store.EncodeResponse(&done, r))
			return true
		}
	case m == readsNothingBack && strings.HasPrefix(o.subject, snapshotSubjects) && len(o.data) > 0:
		if c.cache == nil {
			c.cache = map[string][]byte{}
		}
		c.cache[o.subject] = o.data
		// Of the parts some arrive as zeros.
		if c.n.lied++; c.n.lied%3 == 0 && !strings.HasSuffix(o.subject, "_json") {
			o.data = make([]byte, len(o.data))
		}
	}
	return false
}

// atLeast is the header with the LSN that a copy must hold.
var atLeast = regexp.MustCompile(store.HeaderAtLeast + `: \d+`)

func zeroed(r rune) rune {
	if r >= '0' && r <= '9' {
		return '0'
	}
	return r
}

// answer answers a client in the place of whom it asks.
func (c *conn) answer(reply string, data []byte) {
	for _, sub := range c.subscriptions() {
		if matches(sub.subject, reply) {
			c.deliverLocked(reply, encode(reply, sub.sid, "", nil, data), false)
		}
	}
}

// asked does what the mutation does with a request to JetStream; true if that is all.
func (m mutation) asked(c *conn, api string, o *operation) bool {
	switch {
	case m == readsNothingBack && strings.HasPrefix(api, "STREAM.MSG.GET."):
		var q struct {
			Last string `json:"last_by_subj"`
		}
		_ = json.Unmarshal(o.data, &q)
		if data, ok := c.cache[q.Last]; ok && !strings.HasSuffix(q.Last, "_json") {
			c.host.server.answer(o.reply, object{"message": object{"subject": q.Last, "seq": 1, "data": data, "time": time.Now().UTC()}})
			return true
		}
	case m == trimsMore && strings.HasPrefix(api, "STREAM.PURGE.MILLRACE_"):
		var q struct {
			Seq uint64 `json:"seq"`
		}
		_ = json.Unmarshal(o.data, &q)
		o.data, _ = json.Marshal(object{"seq": q.Seq + 1})
	}
	return false
}

// blind says whether a stream compares nothing of what a message expects.
func (m mutation) blind(st *stream, o *operation) bool {
	switch m { //nolint:exhaustive // the others are no stream's
	case expectsNothing:
		return st.isLog()
	case leasesTwice:
		return st.name == "KV_millrace_leases"
	case bearsTwice:
		return st.isLog() && st.born > 1 && headerOf(o.header, "Nats-Expected-Last-Sequence") == strconv.FormatUint(st.born-1, 10)
	}
	return false
}

// holds says how late a stream tells of what was written.
func (m mutation) holds(st *stream) time.Duration {
	if m == leasesTwice && st.name == "KV_millrace_leases" {
		return leaseTTL / 2
	}
	return 0
}
