package sim

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// message is one of a stream.
type message struct {
	seq     uint64
	subject string
	header  []byte
	data    []byte
	at      time.Time
}

func (m *message) size() int { return len(m.subject) + len(m.header) + len(m.data) + 22 }

// stream is one of JetStream, in memory.
type stream struct {
	s             *server
	name          string
	created       time.Time
	config        json.RawMessage
	subjects      []string
	mostOfSubject int
	last, first   uint64 // first is one behind last in an empty stream
	msgs          []*message
	history       []*message // of a log: all that it ever held
	born          uint64     // the first sequence that it ever had
	consumers     map[string]*consumer
	made          []*consumer // in the order in which they were made
}

func (st *stream) isLog() bool { return strings.HasPrefix(st.name, "MILLRACE_") }

func (st *stream) configure(config []byte) {
	var c struct {
		Subjects []string `json:"subjects"`
		Most     int      `json:"max_msgs_per_subject"`
		First    uint64   `json:"first_seq"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		panic(err)
	}
	if st.config == nil {
		st.born = max(c.First, 1)
		st.first, st.last = st.born, st.born-1
	}
	st.config, st.subjects, st.mostOfSubject = slices.Clone(config), c.Subjects, c.Most
}

func (st *stream) takes(subject string) bool {
	return slices.ContainsFunc(st.subjects, func(p string) bool { return matches(p, subject) })
}

// publish stores a message if what it expects holds, and returns the acknowledgement.
func (st *stream) publish(o *operation) object {
	blind := st.s.n.mutation.blind(st, o)
	if e := headerOf(o.header, "Nats-Expected-Last-Sequence"); !blind && e != "" && e != strconv.FormatUint(st.last, 10) {
		return object{"error": wrongLast(st.last), "stream": st.name, "seq": 0}
	}
	if e := headerOf(o.header, "Nats-Expected-Last-Subject-Sequence"); !blind && e != "" {
		last := uint64(0)
		if m := st.lastOf(o.subject); m != nil {
			last = m.seq
		}
		if e != strconv.FormatUint(last, 10) {
			return object{"error": wrongLast(last), "stream": st.name, "seq": 0}
		}
	}
	if headerOf(o.header, "Nats-Rollup") == "sub" {
		st.drop(func(m *message) bool { return m.subject == o.subject })
	}
	st.last++
	m := &message{st.last, o.subject, o.header, o.data, time.Now()}
	st.msgs = append(st.msgs, m)
	if st.isLog() {
		st.history = append(st.history, m)
	}
	if st.mostOfSubject > 0 {
		of := st.having(o.subject)
		if over := len(of) - st.mostOfSubject; over > 0 {
			gone := of[over-1].seq
			st.drop(func(m *message) bool { return m.subject == o.subject && m.seq <= gone })
		}
	}
	st.moveFirst()
	for _, c := range slices.Clone(st.made) {
		c.deliver()
	}
	return object{"stream": st.name, "seq": m.seq}
}

func (st *stream) having(subject string) (all []*message) {
	for _, m := range st.msgs {
		if m.subject == subject {
			all = append(all, m)
		}
	}
	return all
}

func (st *stream) drop(gone func(*message) bool) (count int) {
	before := len(st.msgs)
	st.msgs = slices.DeleteFunc(slices.Clone(st.msgs), gone)
	return before - len(st.msgs)
}

func (st *stream) moveFirst() {
	if len(st.msgs) > 0 {
		st.first = st.msgs[0].seq
	} else {
		st.first = st.last + 1
	}
}

func (st *stream) lastOf(pattern string) *message {
	for _, m := range slices.Backward(st.msgs) {
		if matches(pattern, m.subject) {
			return m
		}
	}
	return nil
}

// from returns the place of the first message at or behind seq.
func (st *stream) from(seq uint64) int {
	i, _ := slices.BinarySearchFunc(st.msgs, seq, func(m *message, seq uint64) int { return cmp.Compare(m.seq, seq) })
	return i
}

func (st *stream) at(seq uint64) *message {
	if i := st.from(seq); i < len(st.msgs) && st.msgs[i].seq == seq {
		return st.msgs[i]
	}
	return nil
}

func value[T any](body map[string]json.RawMessage, key string) (v T) {
	if raw, ok := body[key]; ok {
		if err := json.Unmarshal(raw, &v); err != nil {
			panic(err)
		}
	}
	return v
}

// find returns the message that a request names.
func (st *stream) find(body map[string]json.RawMessage) *message {
	if last := value[string](body, "last_by_subj"); last != "" {
		return st.lastOf(last)
	}
	seq, next := value[uint64](body, "seq"), value[string](body, "next_by_subj")
	if next == "" {
		return st.at(seq)
	}
	for _, m := range st.msgs[st.from(seq):] {
		if matches(next, m.subject) {
			return m
		}
	}
	return nil
}

func (st *stream) get(body map[string]json.RawMessage) object {
	m := st.find(body)
	if m == nil {
		return object{"error": errNoMessage}
	}
	return object{"message": object{"subject": m.subject, "seq": m.seq, "data": m.data, "hdrs": m.header, "time": m.at.UTC()}}
}

func (st *stream) direct(body map[string]json.RawMessage, subject string) (header, data []byte) {
	m := st.lastOf(subject)
	if subject == "" {
		m = st.find(body)
	}
	if m == nil {
		return makeHeader("404 Message Not Found"), nil
	}
	return withHeader(m.header, "Nats-Stream", st.name, "Nats-Subject", m.subject, "Nats-Sequence", strconv.FormatUint(m.seq, 10),
		"Nats-Time-Stamp", m.at.UTC().Format(time.RFC3339Nano)), m.data
}

func (st *stream) purge(body map[string]json.RawMessage) object {
	upTo, filter := value[uint64](body, "seq"), value[string](body, "filter")
	n := st.drop(func(m *message) bool { return (upTo == 0 || m.seq < upTo) && matches(filter, m.subject) })
	st.moveFirst()
	if st.s.purged != nil {
		st.s.purged(st)
	}
	return object{"success": true, "purged": n}
}

func (st *stream) info(body map[string]json.RawMessage) object {
	bytes, kinds := 0, map[string]int{}
	for _, m := range st.msgs {
		bytes += m.size()
		kinds[m.subject]++
	}
	state := object{
		"messages": len(st.msgs), "bytes": bytes, "first_seq": st.first, "last_seq": st.last,
		"consumer_count": len(st.made), "num_subjects": len(kinds),
	}
	if len(st.msgs) > 0 {
		state["first_ts"], state["last_ts"] = st.msgs[0].at.UTC(), st.msgs[len(st.msgs)-1].at.UTC()
	}
	if filter := value[string](body, "subjects_filter"); filter != "" {
		found := object{}
		for subject, n := range kinds {
			if matches(filter, subject) {
				found[subject] = n
			}
		}
		state["subjects"] = found
	}
	if value[bool](body, "deleted_details") {
		var gone []uint64
		for seq := st.first; seq < st.last; seq++ {
			if st.at(seq) == nil {
				gone = append(gone, seq)
			}
		}
		state["deleted"], state["num_deleted"] = gone, len(gone)
	}
	return object{"config": st.config, "created": st.created.UTC(), "state": state, "ts": time.Now().UTC()}
}
