package guard

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	apiGet = "$JS.API.DIRECT.GET."

	// getsMax bounds the direct gets under way. Each has up to batchBytesMax and one more
	// message in memory.
	getsMax = 4
	// batchMax and batchBytesMax bound the messages of one answer. The commands of Millrace
	// ask for no more at once. The server does not write to the stream while it reads them.
	batchMax      = 512
	batchBytesMax = 4 << 20

	// The headers in which JetStream says how a direct get ended.
	headerStatus = "Status"
	headerReason = "Description"
)

// getRequest has those fields of a direct get that a reader may set. A field that a later
// version of JetStream adds is left out.
type getRequest struct {
	Sequence uint64     `json:"seq,omitempty"`
	LastOf   string     `json:"last_by_subj,omitempty"`
	NextOf   string     `json:"next_by_subj,omitempty"`
	Start    *time.Time `json:"start_time,omitempty"`
	Batch    int        `json:"batch,omitempty"`
	BytesMax int        `json:"max_bytes,omitempty"`
	NoHeader bool       `json:"no_hdr,omitempty"`
}

// bound returns the request in data within the bounds, and whether it has several answers.
// The reason is not empty if it is refused.
func bound(data []byte) (bounded []byte, many bool, reason string) {
	if len(data) == 0 {
		return nil, false, "" // the subject says what is asked for
	}
	var asked struct {
		getRequest
		MultiLast json.RawMessage `json:"multi_last"`
	}
	if err := json.Unmarshal(data, &asked); err != nil {
		return nil, false, "Malformed Request"
	}
	// The last messages of many subjects: JetStream counts up to 1,024 of them by itself, but
	// looks through all subjects of the stream for them before the next write.
	if asked.MultiLast != nil {
		return nil, false, "a reader asks for the last message of one subject, not of many"
	}
	r := asked.getRequest
	// Without a batch there is one answer, and no end of a batch behind it.
	if r.Batch != 0 {
		r.Batch = min(r.Batch, batchMax)
		if r.BytesMax <= 0 || r.BytesMax > batchBytesMax {
			r.BytesMax = batchBytesMax
		}
	}
	bounded, err := json.Marshal(r)
	if err != nil {
		return nil, false, err.Error() // a time that JSON does not know
	}
	return bounded, r.Batch != 0, ""
}

// get hands on the answers to a direct get. They come by way of the Guard, because a server
// lets no client name the subject on which another account waits.
func (g *Guard) get(ctx context.Context, where string, m *nats.Msg) {
	request, many, reason := bound(m.Data)
	if reason != "" {
		g.end(m, "403", reason)
		return
	}
	inbox := g.nc.NewRespInbox()
	sub, err := g.nc.SubscribeSync(inbox)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }() // fails only where the connection is closed
		err = g.nc.PublishRequest(apiGet+where, inbox, request)
	}
	for err == nil {
		var answer *nats.Msg
		if answer, err = sub.NextMsgWithContext(ctx); err != nil {
			break
		}
		if err = m.RespondMsg(&nats.Msg{Header: answer.Header, Data: answer.Data}); err != nil {
			break
		}
		if !many || answer.Header.Get(headerStatus) != "" {
			return
		}
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		g.end(m, "503", "") // as the server says it to who asks without a Guard
	case !g.nc.IsClosed():
		g.log.Warn("a reader's direct get was not answered", slog.String("of", where), slog.Any("error", err))
		g.end(m, "500", err.Error())
	}
}

// end ends the answers to a direct get with a status.
func (g *Guard) end(m *nats.Msg, status, reason string) {
	header := nats.Header{headerStatus: {status}}
	if reason != "" {
		header.Set(headerReason, reason)
	}
	g.sent(m.RespondMsg(&nats.Msg{Header: header}))
}
