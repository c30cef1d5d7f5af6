package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// server is a NATS server with JetStream as far as Millrace uses it. All of it is guarded by
// the network's lock, and runs in the network's events.
type server struct {
	n       *network
	conns   []*conn
	streams map[string]*stream
	gone    map[string][]*stream // logs that were deleted and had commits, by names
	turn    int                  // of members of queue groups
	// purged is told when messages have gone from the beginning of a stream; may be nil.
	purged func(*stream)
	// stored is told when a log has taken a message of a host; may be nil.
	stored func(*host, *message)
}

func newServer(n *network) *server {
	return &server{n: n, streams: map[string]*stream{}, gone: map[string][]*stream{}}
}

// subscription is one of a client.
type subscription struct {
	c                   *conn
	subject, queue, sid string
	got, most           int
}

// forget drops what a connection had.
func (s *server) forget(c *conn) {
	s.conns = slices.DeleteFunc(s.conns, func(other *conn) bool { return other == c })
	c.subs = map[string]*subscription{}
	s.unanswered(c)
}

// handle does what a client asks.
func (s *server) handle(c *conn, o *operation) {
	switch o.verb {
	case "PING":
		c.deliverLocked("", []byte("PONG\r\n"), false)
	case "SUB":
		if c.closed == nil {
			c.subs[o.sid] = &subscription{c: c, subject: o.subject, queue: o.queue, sid: o.sid}
		}
	case "UNSUB":
		if sub := c.subs[o.sid]; sub != nil {
			if sub.most = o.most; sub.got >= sub.most {
				delete(c.subs, o.sid)
			}
		}
	case "PUB":
		s.publish(c, o)
	}
}

func (s *server) publish(c *conn, o *operation) {
	if api, ok := strings.CutPrefix(o.subject, "$JS.API."); ok {
		if !s.n.mutation.asked(c, api, o) {
			s.request(api, o)
		}
		return
	}
	for _, st := range s.sorted() {
		if st.takes(o.subject) {
			ack := st.publish(o)
			if s.stored != nil && st.isLog() && ack["error"] == nil {
				s.stored(c.host, st.msgs[len(st.msgs)-1])
			}
			if !c.host.jams() {
				s.answer(o.reply, ack)
			}
			return
		}
	}
	if s.route(o.subject, o.reply, o.header, o.data) == 0 && o.reply != "" {
		for _, sub := range c.subscriptions() {
			if matches(sub.subject, o.reply) {
				sub.deliver(o.reply, "", makeHeader("503"), nil, true)
				return
			}
		}
	}
}

func (s *server) sorted() []*stream {
	all := make([]*stream, 0, len(s.streams))
	for _, st := range s.streams {
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b *stream) int { return strings.Compare(a.name, b.name) })
	return all
}

func (c *conn) subscriptions() []*subscription {
	all := make([]*subscription, 0, len(c.subs))
	for _, sub := range c.subs {
		all = append(all, sub)
	}
	slices.SortFunc(all, func(a, b *subscription) int {
		if len(a.sid) != len(b.sid) {
			return len(a.sid) - len(b.sid)
		}
		return strings.Compare(a.sid, b.sid)
	})
	return all
}

// route delivers a message to who subscribed, to one of each queue group, and returns to how
// many.
func (s *server) route(subject, reply string, header, data []byte) (delivered int) {
	return s.send(subject, reply, header, data, true)
}

// send is route of a message that nothing happens to, unless it is faulty.
func (s *server) send(subject, reply string, header, data []byte, faulty bool) (delivered int) {
	groups := map[string][]*subscription{}
	var order []string
	for _, c := range s.conns {
		for _, sub := range c.subscriptions() {
			switch {
			case !matches(sub.subject, subject):
			case sub.queue != "":
				if groups[sub.queue] == nil {
					order = append(order, sub.queue)
				}
				groups[sub.queue] = append(groups[sub.queue], sub)
			default:
				sub.deliver(subject, reply, header, data, faulty)
				delivered++
			}
		}
	}
	for _, name := range order {
		s.turn++
		members := groups[name]
		members[s.turn%len(members)].deliver(subject, reply, header, data, faulty)
		delivered++
	}
	return delivered
}

func (u *subscription) deliver(subject, reply string, header, data []byte, faulty bool) {
	u.got++
	if u.c.host.strands(reply) {
		return // of a watch
	}
	u.c.deliverLocked(subject, encode(subject, u.sid, reply, header, data), faulty)
	if u.most > 0 && u.got >= u.most {
		delete(u.c.subs, u.sid)
	}
}

// interested says whether anybody would get a message.
func (s *server) interested(subject string) bool {
	for _, c := range s.conns {
		for _, sub := range c.subs {
			if matches(sub.subject, subject) {
				return true
			}
		}
	}
	return false
}

// apiError is an error of JetStream.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

var (
	errNoStream  = &apiError{404, 10059, "stream not found"}
	errNoMessage = &apiError{404, 10037, "no message found"}
	errInUse     = &apiError{400, 10058, "stream name already in use with a different configuration"}
)

func wrongLast(last uint64) *apiError {
	return &apiError{400, 10071, fmt.Sprintf("wrong last sequence: %d", last)}
}

type object = map[string]any

// answer sends an answer as JSON.
func (s *server) answer(reply string, content object) { s.answerWith(reply, content, true) }

func (s *server) answerWith(reply string, content object, faulty bool) {
	if reply == "" {
		return
	}
	data, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	s.send(reply, "", nil, data, faulty)
}

// request does what a request to JetStream's API asks.
func (s *server) request(api string, o *operation) {
	var body map[string]json.RawMessage
	if len(o.data) > 0 {
		if err := json.Unmarshal(o.data, &body); err != nil {
			panic(fmt.Sprintf("%s: %v: %s", api, err, o.data))
		}
	}
	verb, name := api, ""
	if f := strings.Split(api, "."); len(f) > 2 {
		verb, name = f[0]+"."+f[1], f[2]
		if f[1] == "MSG" {
			verb, name = strings.Join(f[:3], "."), f[3]
		}
	}
	st := s.streams[name]
	if st == nil && strings.Count(api, ".") >= 2 && verb != "STREAM.CREATE" {
		if strings.HasPrefix(api, "DIRECT.") {
			return // nobody listens there
		}
		s.answer(o.reply, object{"error": errNoStream})
		return
	}
	switch verb {
	case "INFO":
		s.answer(o.reply, object{"memory": 0, "storage": 0, "api": object{"level": 2, "total": 1}, "limits": object{"max_streams": -1}})
	case "STREAM.NAMES", "STREAM.LIST":
		s.answer(o.reply, s.list(verb == "STREAM.LIST"))
	case "STREAM.CREATE":
		s.answer(o.reply, s.create(name, o.data))
	case "STREAM.UPDATE":
		st.configure(o.data)
		s.answer(o.reply, st.info(nil))
	case "STREAM.DELETE":
		s.remove(st)
		s.answer(o.reply, object{"success": true})
	case "STREAM.INFO":
		s.answer(o.reply, st.info(body))
	case "STREAM.PURGE":
		s.answer(o.reply, st.purge(body))
	case "STREAM.MSG.GET":
		s.answer(o.reply, st.get(body))
	case "DIRECT.GET":
		_, subject, _ := strings.Cut(strings.TrimPrefix(api, "DIRECT.GET."), ".")
		header, data := st.direct(body, subject)
		s.route(o.reply, "", header, data)
	default:
		s.requestConsumer(st, api, o, body)
	}
}

// remove deletes a stream. What was in a log stays for the judge.
func (s *server) remove(st *stream) {
	for _, c := range slices.Clone(st.made) {
		c.remove()
	}
	if len(st.history) > 0 {
		s.gone[st.name] = append(s.gone[st.name], st)
	}
	delete(s.streams, st.name)
}

func (s *server) list(whole bool) object {
	var names, infos []any
	for _, st := range s.sorted() {
		names, infos = append(names, st.name), append(infos, st.info(nil))
	}
	key, all := "streams", names
	if whole {
		all = infos
	}
	return object{key: all, "total": len(all), "offset": 0, "limit": 1024}
}

func (s *server) create(name string, config []byte) object {
	if st := s.streams[name]; st != nil {
		if string(st.config) != string(config) {
			return object{"error": errInUse}
		}
		return st.info(nil)
	}
	st := &stream{s: s, name: name, created: time.Now(), consumers: map[string]*consumer{}}
	st.configure(config)
	s.streams[name] = st
	return st.info(nil)
}

// logs are those that are there, and those that were deleted.
func (s *server) logs() (all []*stream) {
	for _, st := range s.sorted() {
		if st.isLog() {
			all = append(all, st)
		}
	}
	for _, gone := range s.gone {
		all = append(all, gone...)
	}
	return all
}

// fork returns a server of another network that has the same streams; with whole they have
// every message that was ever stored in a log.
func (s *server) fork(whole bool) *server {
	s.n.mu.Lock()
	defer s.n.mu.Unlock()
	f := newServer(s.n)
	for name, st := range s.streams {
		other := *st
		other.s, other.consumers, other.made = f, map[string]*consumer{}, nil
		other.msgs, other.history = slices.Clone(st.msgs), slices.Clone(st.history)
		if whole && st.isLog() {
			other.msgs, other.first = slices.Clone(st.history), st.born
		}
		f.streams[name] = &other
	}
	return f
}
