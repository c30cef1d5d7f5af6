package processors

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
)

const (
	deadLetterStream  = "MILLRACE_DEADLETTERS"
	deadLetterSubject = "millrace.deadletters."

	// deadLetterVersion begins every record; see DEADLETTERS.md.
	deadLetterVersion = 1
	// deadLettersMax bounds the stream: the oldest letters go first.
	deadLettersMax = 1_000_000
	// reasonBytesMax bounds the reason of one letter.
	reasonBytesMax = 4 << 10
)

// DeadLetter is a change, or an item that should have followed one, that a
// pipeline gave up.
type DeadLetter struct {
	Pipeline   string    `json:"pipeline"`
	Generation uint32    `json:"generation"`
	Role       Role      `json:"role"`
	Partition  string    `json:"partition"` // whose feed was read
	Time       time.Time `json:"time"`
	// Item is the item whose change could not be processed, as store.ItemRef
	// prints; Position is that of the change.
	Item     string        `json:"item"`
	Position feed.Position `json:"-"`
	// Target is the item that refused its copy; empty if the change itself could
	// not be processed.
	Target string `json:"target,omitempty"`
	// Status is the store's code, 0 if there was none.
	Status int `json:"status,omitempty"`
	// Reason is for people; at most 4 KiB of it are kept.
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts,omitempty"`
	// Trace is the W3C traceparent of the write.
	Trace string `json:"trace,omitempty"`
	// Sequence orders letters; it is their stream's. Not stored.
	Sequence uint64 `json:"-"`
}

type plainLetter DeadLetter

type letterJSON struct {
	Version int `json:"version"`
	plainLetter
	Position string `json:"position"`
}

// letterBox takes dead letters. DeadLetters is one; tests have others.
type letterBox interface {
	Write(ctx context.Context, l *DeadLetter) error
}

// DeadLetters is the stream of what pipelines gave up. Safe for concurrent use.
type DeadLetters struct {
	js     jetstream.JetStream
	stream jetstream.Stream
}

// OpenDeadLetters opens the stream of dead letters of a NATS system and makes it
// if there is none.
func OpenDeadLetters(ctx context.Context, js jetstream.JetStream, replicas int) (*DeadLetters, error) {
	stream, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: deadLetterStream, Description: "Millrace: changes that could not be processed",
		Subjects: []string{deadLetterSubject + "*"}, Storage: jetstream.FileStorage, Retention: jetstream.LimitsPolicy,
		MaxMsgs: deadLettersMax, Discard: jetstream.DiscardOld, AllowDirect: true, Replicas: max(replicas, 1),
	})
	if err != nil {
		return nil, fmt.Errorf("open the dead letters (stream %s): %w", deadLetterStream, err)
	}
	return &DeadLetters{js: js, stream: stream}, nil
}

// Write stores l durably. The same letter may be stored twice after a crash.
func (d *DeadLetters) Write(ctx context.Context, l *DeadLetter) error {
	letter := *l
	if len(letter.Reason) > reasonBytesMax {
		letter.Reason = strings.ToValidUTF8(letter.Reason[:reasonBytesMax], "")
	}
	data, err := json.Marshal(letterJSON{Version: deadLetterVersion, plainLetter: plainLetter(letter), Position: l.Position.String()})
	if err != nil {
		return fmt.Errorf("dead letter of %s: %w", l.Item, err)
	}
	if _, err := d.js.Publish(ctx, deadLetterSubject+l.Pipeline, data); err != nil {
		return fmt.Errorf("write the dead letter of %s: %w", l.Item, err)
	}
	return nil
}

// List returns up to limit letters of a pipeline, the oldest first, with greater
// sequences than after.
func (d *DeadLetters) List(ctx context.Context, pipeline string, after uint64, limit int) ([]DeadLetter, error) {
	var letters []DeadLetter
	for len(letters) < limit {
		msg, err := d.stream.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(deadLetterSubject+pipeline))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the dead letters of %s: %w", pipeline, err)
		}
		l, err := decodeDeadLetter(msg.Data)
		if err != nil {
			return nil, fmt.Errorf("dead letter %d: %w", msg.Sequence, err)
		}
		l.Sequence = msg.Sequence
		letters = append(letters, *l)
		after = msg.Sequence
	}
	return letters, nil
}

func decodeDeadLetter(data []byte) (*DeadLetter, error) {
	var w letterJSON
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, err
	}
	if w.Version != deadLetterVersion {
		return nil, fmt.Errorf("version %d, this program knows %d", w.Version, deadLetterVersion)
	}
	position, err := feed.ParsePosition(w.Position)
	if err != nil {
		return nil, err
	}
	l := DeadLetter(w.plainLetter)
	l.Position = position
	return &l, nil
}
