package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// consumer is one of a stream: it pushes to a subject, or waits for requests.
type consumer struct {
	st      *stream
	name    string
	config  consumerConfig
	initial []uint64 // of the policy last_per_subject: what is delivered before next
	next    uint64
	count   uint64 // delivered
	waiting []*waiting
	gone    bool
	// maker gets the answer that tells of a consumer that pushes, at the moment answered.
	maker    *conn
	answered time.Time
}

type consumerConfig struct {
	Durable       string        `json:"durable_name,omitempty"`
	Name          string        `json:"name,omitempty"`
	Deliver       string        `json:"deliver_subject,omitempty"`
	Policy        string        `json:"deliver_policy"`
	Start         uint64        `json:"opt_start_seq,omitempty"`
	Ack           string        `json:"ack_policy"`
	Replay        string        `json:"replay_policy"`
	Filter        string        `json:"filter_subject,omitempty"`
	Filters       []string      `json:"filter_subjects,omitempty"`
	Heartbeat     time.Duration `json:"idle_heartbeat,omitempty"`
	FlowControl   bool          `json:"flow_control,omitempty"`
	HeadersOnly   bool          `json:"headers_only,omitempty"`
	InactiveAfter time.Duration `json:"inactive_threshold,omitempty"`
	MaxDeliver    int           `json:"max_deliver,omitempty"`
	AckWait       time.Duration `json:"ack_wait,omitempty"`
	MemoryStorage bool          `json:"mem_storage,omitempty"`
	Replicas      int           `json:"num_replicas"`
}

// waiting is a request for messages that is not served yet.
type waiting struct {
	reply        string
	batch, bytes int
	limited      bool // in bytes
}

func (s *server) requestConsumer(st *stream, api string, o *operation, body map[string]json.RawMessage) {
	f := strings.Split(api, ".")
	switch {
	case strings.HasPrefix(api, "CONSUMER.CREATE."), strings.HasPrefix(api, "CONSUMER.DURABLE.CREATE."):
		config := value[consumerConfig](body, "config")
		c := st.createConsumer(config)
		s.answerWith(o.reply, c.info(), config.Deliver == "")
		if config.Deliver != "" {
			c.awaitAnswer(o.reply)
		}
	case strings.HasPrefix(api, "CONSUMER.MSG.NEXT."):
		if c := st.consumers[f[4]]; c != nil {
			c.ask(o, body)
		} // nobody listens there
	case strings.HasPrefix(api, "CONSUMER.DELETE."):
		if c := st.consumers[f[3]]; c != nil {
			c.remove()
			s.answer(o.reply, object{"success": true})
			return
		}
		s.answer(o.reply, object{"error": &apiError{404, 10014, "consumer not found"}})
	case strings.HasPrefix(api, "CONSUMER.INFO."):
		if c := st.consumers[f[3]]; c != nil {
			s.answer(o.reply, c.info())
			return
		}
		s.answer(o.reply, object{"error": &apiError{404, 10014, "consumer not found"}})
	default:
		panic("the simulated server does not know " + api)
	}
}

// awaitAnswer sees to it that a consumer that pushes has told who made it, before it pushes. The
// client holds a lock until it has the answer, and takes messages under that lock: a message
// without the answer before it would hold up the clock of the bubble, because who waits for a
// lock is not at rest. So a consumer whose answer nobody gets is gone.
func (c *consumer) awaitAnswer(reply string) {
	for _, conn := range c.st.s.conns {
		for _, sub := range conn.subscriptions() {
			if matches(sub.subject, reply) {
				c.maker, c.answered = conn, conn.home
				return
			}
		}
	}
	c.remove()
}

// unanswered removes the consumers whose answers a connection that breaks had still to bring.
func (s *server) unanswered(c *conn) {
	for _, st := range s.streams {
		for _, made := range slices.Clone(st.made) {
			if made.maker == c && time.Now().Before(made.answered) {
				made.remove()
			}
		}
	}
}

func (st *stream) createConsumer(config consumerConfig) *consumer {
	if config.Name == "" {
		config.Name = config.Durable
	}
	if config.Name == "" {
		config.Name = "c" + strconv.Itoa(len(st.s.streams)) + "x" + strconv.Itoa(len(st.made)) + "x" + strconv.FormatInt(time.Now().UnixNano(), 36)
	}
	if c := st.consumers[config.Name]; c != nil {
		return c
	}
	c := &consumer{st: st, name: config.Name, config: config, next: st.last + 1}
	switch config.Policy {
	case "", "all":
		c.next = st.first
	case "by_start_sequence":
		c.next = max(config.Start, st.first)
	case "last_per_subject":
		newest := map[string]uint64{}
		for _, m := range st.msgs {
			if c.wants(m) {
				newest[m.subject] = m.seq
			}
		}
		for _, seq := range newest {
			c.initial = append(c.initial, seq)
		}
		slices.Sort(c.initial)
	case "new":
	default:
		panic("the simulated server does not know the policy " + config.Policy)
	}
	st.consumers[c.name], st.made = c, append(st.made, c)
	// The answer leaves before the first message does.
	st.s.n.atLocked(time.Now(), c.deliver)
	if config.Heartbeat > 0 {
		c.beat()
	}
	return c
}

func (c *consumer) wants(m *message) bool {
	if len(c.config.Filters) > 0 {
		return slices.ContainsFunc(c.config.Filters, func(p string) bool { return matches(p, m.subject) })
	}
	return matches(c.config.Filter, m.subject)
}

func (c *consumer) pending() int {
	n := len(c.initial)
	for _, m := range c.st.msgs[c.st.from(c.next):] {
		if c.wants(m) {
			n++
		}
	}
	return n
}

func (c *consumer) info() object {
	return object{
		"type": "io.nats.jetstream.api.v1.consumer_create_response", "stream_name": c.st.name, "name": c.name, "created": time.Now().UTC(),
		"config": c.config, "delivered": object{"consumer_seq": c.count, "stream_seq": c.next - 1}, "ack_floor": object{"consumer_seq": 0, "stream_seq": 0},
		"num_pending": c.pending(), "num_waiting": len(c.waiting), "push_bound": c.config.Deliver != "", "ts": time.Now().UTC(),
	}
}

func (c *consumer) remove() {
	c.gone = true
	delete(c.st.consumers, c.name)
	c.st.made = slices.DeleteFunc(c.st.made, func(other *consumer) bool { return other == c })
	for _, w := range c.waiting {
		c.status(w, "409 Consumer Deleted")
	}
	c.waiting = nil
}

// peek returns the next message to be delivered.
func (c *consumer) peek() *message {
	for len(c.initial) > 0 {
		if m := c.st.at(c.initial[0]); m != nil {
			return m
		}
		c.initial = c.initial[1:] // written again since
	}
	for _, m := range c.st.msgs[c.st.from(c.next):] {
		if c.wants(m) {
			return m
		}
	}
	return nil
}

func (c *consumer) pass(m *message) {
	if len(c.initial) > 0 {
		c.initial = c.initial[1:]
	} else {
		c.next = m.seq + 1
	}
	c.count++
}

// deliver delivers all that can be.
func (c *consumer) deliver() {
	for !c.gone {
		m := c.peek()
		if m == nil {
			return
		}
		if c.config.Deliver != "" {
			if !c.st.s.interested(c.config.Deliver) {
				return // who made it may not have subscribed yet, or is gone
			}
			c.pass(m)
			c.send(c.config.Deliver, m)
			continue
		}
		w := c.first(m)
		if w == nil {
			return
		}
		c.pass(m)
		c.send(w.reply, m)
		w.batch, w.bytes = w.batch-1, w.bytes-m.size()
		if w.batch == 0 {
			if w.limited && w.bytes > 0 {
				c.status(w, "409 Batch Completed")
			}
			c.waiting = c.waiting[1:]
		}
	}
}

// first returns the first request that a message fits into.
func (c *consumer) first(m *message) *waiting {
	for len(c.waiting) > 0 {
		w := c.waiting[0]
		switch {
		case !c.st.s.interested(w.reply):
		case w.limited && m.size() > w.bytes:
			c.status(w, "409 Message Size Exceeds MaxBytes")
		default:
			return w
		}
		c.waiting = c.waiting[1:]
	}
	return nil
}

func (c *consumer) send(to string, m *message) {
	ack := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.%d.%d", c.st.name, c.name, m.seq, c.count, m.at.UnixNano(), c.pending())
	data := m.data
	if c.config.HeadersOnly {
		data = nil
	}
	for _, conn := range c.st.s.conns {
		for _, sub := range conn.subscriptions() {
			if matches(sub.subject, to) {
				if by := c.st.s.n.mutation.holds(c.st); by > 0 {
					c.st.s.n.atLocked(time.Now().Add(by), func() { sub.deliver(m.subject, ack, m.header, data, true) })
					return
				}
				sub.deliver(m.subject, ack, m.header, data, true)
				return
			}
		}
	}
}

func (c *consumer) status(w *waiting, status string) {
	c.st.s.route(w.reply, "", makeHeader(status, "Nats-Pending-Messages", strconv.Itoa(w.batch), "Nats-Pending-Bytes", strconv.Itoa(w.bytes)), nil)
}

// ask takes a request for messages.
func (c *consumer) ask(o *operation, body map[string]json.RawMessage) {
	w := &waiting{reply: o.reply, batch: max(value[int](body, "batch"), 1), bytes: value[int](body, "max_bytes")}
	w.limited = w.bytes > 0
	c.waiting = append(c.waiting, w)
	if expires := value[time.Duration](body, "expires"); expires > 0 {
		c.st.s.n.atLocked(time.Now().Add(expires), func() {
			if i := slices.Index(c.waiting, w); i >= 0 {
				c.waiting = slices.Delete(c.waiting, i, i+1)
				c.status(w, "408 Request Timeout")
			}
		})
	}
	c.deliver()
}

// beat tells a consumer's client by and by that it is there.
func (c *consumer) beat() {
	c.st.s.n.atLocked(time.Now().Add(c.config.Heartbeat), func() {
		if c.gone {
			return
		}
		if !c.st.s.interested(c.config.Deliver) {
			c.remove()
			return
		}
		c.deliver()
		c.st.s.route(c.config.Deliver, "", makeHeader("100 Idle Heartbeat",
			"Nats-Last-Consumer", strconv.FormatUint(c.count, 10), "Nats-Last-Stream", strconv.FormatUint(c.next-1, 10)), nil)
		c.beat()
	})
}
