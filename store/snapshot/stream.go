package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// StreamName is that of the JetStream stream of snapshots.
const StreamName = "MILLRACE_SNAPSHOTS"

// subjects begin the subject of every object.
const subjects = "millrace.snapshots."

// stream is a Store in a JetStream stream: a message for each object, of which the last one
// under a subject holds. All stores of a cluster find in it what any of them wrote.
//
// It is no object store of nats.go, because a put of that into three replicas loses chunks
// when more are in flight than the servers take (nats.go issue 1908). Here one message is
// in flight at a time, acknowledged when a quorum has it on disk.
type stream struct {
	js       jetstream.JetStream
	replicas int

	mu   sync.Mutex
	open jetstream.Stream // nil until it was found or made
}

// Stream returns the store in the stream of a NATS system, which is made with the first
// object, with so many replicas.
func Stream(js jetstream.JetStream, replicas int) Store {
	return &stream{js: js, replicas: max(replicas, 1)}
}

func (s *stream) String() string { return "the stream " + StreamName }

// errName says that a name is none that FORMAT.md has.
var errName = errors.New("snapshot: not the name of an object")

// subject returns the subject of a name: a token for each of its levels. A dot would
// begin a token, so an underscore, which names do not have, stands for it.
//
//	c7k2x4ab/0/newest.json    millrace.snapshots.c7k2x4ab.0.newest_json
func subject(name string) (string, error) {
	if name == "" || strings.ContainsAny(name, "_*> \t\r\n") || strings.HasPrefix(name, "/") || strings.Contains(name, "//") {
		return "", fmt.Errorf("%w: %q", errName, name)
	}
	return subjects + strings.ReplaceAll(strings.ReplaceAll(name, ".", "_"), "/", "."), nil
}

// find returns the stream; nil if it is not there and is not to be made.
func (s *stream) find(ctx context.Context, create bool) (jetstream.Stream, error) {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	if open != nil {
		return open, nil
	}
	// Not under the lock: a request that gets no answer would hold up everybody else, also
	// those whose context ends. Two that look at once find the same.
	found, err := s.js.Stream(ctx, StreamName)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if !create {
			return nil, nil
		}
		found, err = s.js.CreateStream(ctx, jetstream.StreamConfig{
			Name: StreamName, Description: "Millrace: snapshots of partitions", Subjects: []string{subjects + ">"},
			Storage: jetstream.FileStorage, Replicas: s.replicas, MaxMsgsPerSubject: 1,
			// What is got must be what was written last, so the stream's leader answers.
			AllowDirect: false,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another store was faster, with other replicas
			found, err = s.js.Stream(ctx, StreamName)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", s, err)
	}
	s.mu.Lock()
	s.open = found
	s.mu.Unlock()
	return found, nil
}

// forget makes the next request look for the stream again: it may have been deleted.
func (s *stream) forget(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrNoStreamResponse) {
		s.mu.Lock()
		s.open = nil
		s.mu.Unlock()
	}
	return err
}

func (s *stream) Put(ctx context.Context, name string, data []byte) error {
	return s.publish(ctx, name, data)
}

func (s *stream) Replace(ctx context.Context, name string, data []byte, seen Revision) error {
	sequence := uint64(0)
	if seen != "" {
		var err error
		if sequence, err = strconv.ParseUint(string(seen), 10, 64); err != nil {
			return fmt.Errorf("%q is no revision of %s: %w", seen, s, err)
		}
	}
	err := s.publish(ctx, name, data, jetstream.WithExpectLastSequencePerSubject(sequence))
	if e, ok := errors.AsType[*jetstream.APIError](err); ok && e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return err
}

func (s *stream) publish(ctx context.Context, name string, data []byte, opts ...jetstream.PublishOpt) error {
	to, err := subject(name)
	if err != nil {
		return err
	}
	if _, err := s.find(ctx, true); err != nil {
		return err
	}
	if most := s.js.Conn().MaxPayload(); int64(len(data)) > most {
		return fmt.Errorf("%s of %d bytes exceeds the %d bytes that the NATS server takes (max_payload)", name, len(data), most)
	}
	_, err = s.js.Publish(ctx, to, data, append(opts, jetstream.WithExpectStream(StreamName))...)
	if err != nil {
		return s.forget(fmt.Errorf("put %s into %s: %w", name, s, err))
	}
	return nil
}

func (s *stream) Get(ctx context.Context, name string) ([]byte, error) {
	data, _, err := s.Look(ctx, name)
	return data, err
}

func (s *stream) Look(ctx context.Context, name string) ([]byte, Revision, error) {
	from, err := subject(name)
	if err != nil {
		return nil, "", err
	}
	open, err := s.find(ctx, false)
	if err != nil {
		return nil, "", err
	}
	if open == nil {
		return nil, "", fmt.Errorf("%w: %s in %s", ErrNotFound, name, s)
	}
	msg, err := open.GetLastMsgForSubject(ctx, from)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, "", fmt.Errorf("%w: %s in %s", ErrNotFound, name, s)
	}
	if err != nil {
		return nil, "", s.forget(fmt.Errorf("get %s from %s: %w", name, s, err))
	}
	return msg.Data, Revision(strconv.FormatUint(msg.Sequence, 10)), nil
}

func (s *stream) List(ctx context.Context, prefix string) ([]string, error) {
	below, err := subject(prefix)
	if err != nil {
		return nil, err
	}
	open, err := s.find(ctx, false)
	if err != nil || open == nil {
		return nil, err
	}
	// The stream tells the subjects of all objects below; List is of one level, and of that each name once.
	info, err := open.Info(ctx, jetstream.WithSubjectFilter(below+">"))
	if err != nil {
		return nil, s.forget(fmt.Errorf("list %s in %s: %w", prefix, s, err))
	}
	levels := map[string]bool{}
	var names []string
	for found := range info.State.Subjects {
		rest, further, isLevel := strings.Cut(strings.TrimPrefix(found, below), ".")
		name := strings.ReplaceAll(rest, "_", ".")
		if isLevel && further != "" {
			name += "/"
		}
		if !levels[name] {
			levels[name] = true
			names = append(names, name)
		}
	}
	return names, nil
}

func (s *stream) Remove(ctx context.Context, name string) error {
	which, err := subject(name)
	if err != nil {
		return err
	}
	if strings.HasSuffix(name, "/") {
		which += ">"
	}
	open, err := s.find(ctx, false)
	if err != nil || open == nil {
		return err
	}
	if err := open.Purge(ctx, jetstream.WithPurgeSubject(which)); err != nil {
		return s.forget(fmt.Errorf("remove %s from %s: %w", name, s, err))
	}
	return nil
}
