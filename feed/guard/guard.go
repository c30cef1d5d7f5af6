// Package guard lets readers of a NATS system have consumers and pages of messages without
// letting them write, or keep others from writing.
//
// The maker of a JetStream consumer may name the subject to which the server pushes
// messages. The server does not check whether the maker may publish there, so a reader could
// copy old records of a bucket or a log over the new ones. JetStream has one subject for
// all kinds of consumers, so permissions cannot tell them apart. And who gets messages
// directly names how many: the server reads them all before the next write, and holds them
// in memory. In the account of readers, three requests of JetStream's API therefore lead to
// a Guard:
//
//	reader ── $JS.API.CONSUMER.CREATE.S.C ──▶ millrace.guard.create.S.C ──▶ Guard
//	                                                                          │ pull, ephemeral,
//	                                                                          ▼ in memory, no acks
//	                                                       $JS.API.CONSUMER.CREATE.S.C
//	reader ── $JS.API.DIRECT.GET.S ──▶ millrace.guard.get.S ──▶ Guard
//	   ▲                                                          │ at most batchMax messages
//	   │ answers, one by one                                      ▼ and batchBytesMax bytes
//	   └────────────────────────────────────── Guard ◀── $JS.API.DIRECT.GET.S
//
// Each write to a stream wakes all of its consumers, so a Guard makes a bounded number of them.
// Readers ask a consumer for its messages without a Guard, because a server lets no client send
// a message in the name of a consumer. JetStream bounds the messages of a request, not its bytes.
//
// A Guard marks each consumer that it makes, and deletes only marked ones for a reader. It
// answers requests as JetStream would, so clients need not know of it. Each process of
// Millrace has a Guard; NATS gives each request to one of them.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package guard

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The subjects of a Guard. Each is followed by what follows the verb in the subject of
// JetStream's API, such as "S.C".
const (
	Create = "millrace.guard.create."
	Delete = "millrace.guard.delete."
	Get    = "millrace.guard.get."
)

const (
	apiCreate = "$JS.API.CONSUMER.CREATE."
	apiInfo   = "$JS.API.CONSUMER.INFO."
	apiDelete = "$JS.API.CONSUMER.DELETE."

	// requestsMax bounds the requests under way of each kind; others wait.
	requestsMax = 16
	// requestTimeout bounds one of them.
	requestTimeout = 5 * time.Second
	// idleMax is how long a reader's consumer may be idle at most.
	idleMax = 5 * time.Minute

	// mark is in the metadata of consumers that were made for readers.
	mark = "millrace.reader"
	// codeRefused is an err_code that JetStream does not use.
	codeRefused = 19990
)

// Guard answers requests of readers.
type Guard struct {
	nc      *nats.Conn
	log     *slog.Logger
	subs    []*nats.Subscription
	answers sync.WaitGroup
	made    consumers
}

// New makes a Guard that answers requests which come over nc until Close. Close it before nc.
// The answers to readers go over nc, so nc should not be the connection that writes.
// The end of ctx does not end the answering; only the values of ctx are used.
func New(ctx context.Context, nc *nats.Conn, log *slog.Logger) (*Guard, error) {
	ctx = context.WithoutCancel(ctx)
	g := &Guard{nc: nc, log: log, made: consumers{ofStream: map[string]map[string]bool{}}}
	for _, kind := range []struct {
		prefix string
		max    int // requests under way
		handle func(ctx context.Context, where string, m *nats.Msg)
	}{
		{Create, requestsMax, func(ctx context.Context, where string, m *nats.Msg) { g.answer(m, g.create(ctx, where, m.Data)) }},
		{Delete, requestsMax, func(ctx context.Context, where string, m *nats.Msg) { g.answer(m, g.remove(ctx, where)) }},
		{Get, getsMax, g.get},
	} {
		slots := make(chan struct{}, kind.max)
		sub, err := nc.QueueSubscribe(kind.prefix+">", "guard", func(m *nats.Msg) {
			// An answer goes to an inbox only. Any other reply subject could be that of a log, and
			// the Guard's own connection may publish there.
			if !IsInbox(m.Reply) {
				return
			}
			// Waits for a slot here, in the subscription's own goroutine: further requests
			// then wait in NATS, and not each in a goroutine.
			slots <- struct{}{}
			g.answers.Go(func() {
				defer func() { <-slots }()
				ctx, cancel := context.WithTimeout(ctx, requestTimeout)
				defer cancel()
				kind.handle(ctx, strings.TrimPrefix(m.Subject, kind.prefix), m)
			})
		})
		if err != nil {
			g.Close()
			return nil, fmt.Errorf("guard: subscribe to %s: %w", kind.prefix, err)
		}
		g.subs = append(g.subs, sub)
	}
	return g, nil
}

// Close ends the answering and waits for what is under way. It may be called
// twice.
func (g *Guard) Close() {
	for _, sub := range g.subs {
		_ = sub.Unsubscribe() // fails only where the connection is closed
	}
	g.answers.Wait()
}

func (g *Guard) answer(m *nats.Msg, data []byte) {
	g.sent(m.Respond(data))
}

// sent logs why an answer was not sent.
func (g *Guard) sent(err error) {
	if err != nil && !g.nc.IsClosed() {
		g.log.Warn("an answer to a reader could not be sent", slog.Any("error", err))
	}
}

// IsInbox reports whether a subject is one on which a client or a server waits for an answer.
func IsInbox(subject string) bool {
	// _R_ is where a server waits for answers to other accounts.
	return strings.HasPrefix(subject, nats.InboxPrefix) || strings.HasPrefix(subject, "_R_.")
}

// create makes a consumer that cannot do more than read.
func (g *Guard) create(ctx context.Context, where string, data []byte) []byte {
	var asked struct {
		Stream string                   `json:"stream_name"`
		Config jetstream.ConsumerConfig `json:"config"`
	}
	var pushed struct {
		Config struct {
			Subject string `json:"deliver_subject"`
		} `json:"config"`
	}
	// where is "stream", "stream.consumer" or "stream.consumer.filter".
	stream, rest, _ := strings.Cut(where, ".")
	name, _, _ := strings.Cut(rest, ".")
	err := json.Unmarshal(data, &asked)
	if err == nil {
		err = json.Unmarshal(data, &pushed)
	}
	c := &asked.Config
	switch {
	case err != nil:
		return refuse("consumer_create", fmt.Sprintf("not JSON of a consumer: %v", err))
	case asked.Stream != "" && asked.Stream != stream:
		return refuse("consumer_create", "stream name in subject does not match request")
	case pushed.Config.Subject != "":
		return refuse("consumer_create", "a reader's consumer is pulled from; one that pushes could write")
	case c.Durable != "":
		return refuse("consumer_create", "a reader's consumer is not durable; leave out the durable name")
	case c.AckPolicy != jetstream.AckNonePolicy:
		return refuse("consumer_create", "a reader's consumer acknowledges nothing; ask for ack_policy none")
	}
	if name == "" {
		name = c.Name
	}
	if name == "" {
		name = nats.NewInbox()[len(nats.InboxPrefix):]
	}
	// A new configuration takes over the fields that decide what is read, and nothing else.
	// Deleting the dangerous fields from the request's would let through whatever a later
	// version of JetStream adds.
	safe := jetstream.ConsumerConfig{
		Name: name, Description: c.Description,
		DeliverPolicy: c.DeliverPolicy, OptStartSeq: c.OptStartSeq, OptStartTime: c.OptStartTime,
		FilterSubject: c.FilterSubject, FilterSubjects: c.FilterSubjects, ReplayPolicy: c.ReplayPolicy, HeadersOnly: c.HeadersOnly,
		AckPolicy: jetstream.AckNonePolicy, MaxDeliver: c.MaxDeliver, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: idleMax, Metadata: map[string]string{mark: "true"},
		MaxWaiting: pullsMax, MaxRequestBatch: batchMax, MaxRequestExpires: idleMax,
	}
	if c.InactiveThreshold > 0 {
		safe.InactiveThreshold = min(c.InactiveThreshold, idleMax)
	}
	request, err := json.Marshal(map[string]any{"stream_name": stream, "config": safe, "action": "create"})
	if err != nil {
		return refuse("consumer_create", err.Error())
	}
	if reason := g.admit(ctx, stream, name); reason != "" {
		return refuse("consumer_create", reason)
	}
	subject := apiCreate + stream + "." + name
	if safe.FilterSubject != "" {
		subject += "." + safe.FilterSubject
	}
	answer := g.ask(ctx, "consumer_create", subject, request)
	// Without an answer it may come to be.
	code := errorCode(answer)
	g.made.settle(stream, name, code == 0 || code == codeRefused)
	return answer
}

// remove deletes a consumer that create has made.
func (g *Guard) remove(ctx context.Context, where string) []byte {
	const kind = "consumer_delete"
	m, err := g.nc.RequestWithContext(ctx, apiInfo+where, nil)
	if err != nil {
		return refuse(kind, err.Error())
	}
	var info struct {
		Error  json.RawMessage `json:"error"`
		Config struct {
			Metadata map[string]string `json:"metadata"`
		} `json:"config"`
	}
	switch err := json.Unmarshal(m.Data, &info); {
	case err != nil:
		return refuse(kind, err.Error())
	case info.Error != nil:
		return m.Data
	case info.Config.Metadata[mark] == "":
		return refuse(kind, "a reader deletes consumers of readers only")
	}
	answer := g.ask(ctx, kind, apiDelete+where, nil)
	if stream, name, ok := strings.Cut(where, "."); ok && errorCode(answer) == 0 {
		g.made.forget(stream, name)
	}
	return answer
}

// ask asks JetStream.
func (g *Guard) ask(ctx context.Context, kind, subject string, data []byte) []byte {
	m, err := g.nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return refuse(kind, err.Error())
	}
	return m.Data
}

// refuse returns an error in the form in which JetStream returns its own.
func refuse(kind, reason string) []byte {
	data, err := json.Marshal(map[string]any{
		"type":  "io.nats.jetstream.api.v1." + kind + "_response",
		"error": map[string]any{"code": 403, "err_code": codeRefused, "description": reason},
	})
	if err != nil {
		panic(fmt.Sprintf("guard: %v", err)) // texts and numbers
	}
	return data
}
