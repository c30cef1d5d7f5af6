package owner

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/engine"
	"github.com/millrace/millrace/store/query"
)

// schema is a partition's Settings, compiled. It does not change; a settings
// commit makes a new one.
type schema struct {
	settings store.Settings
	encoded  []byte // settings, as each state of the engine has them
	engine   engine.Schema
	key      []document.Path // partition key
	indexed  []string        // JSON pointers, with *, whose change alters entries beside the item itself
	rules    []*rule
	stones   []*stones
}

func compileSettings(data []byte) (*schema, error) {
	s := &schema{}
	if err := json.Unmarshal(data, &s.settings); err != nil {
		return nil, fmt.Errorf("settings in the log: %w", err)
	}
	for _, p := range s.settings.PartitionKey {
		path, err := document.ParsePointer(p)
		if err != nil {
			return nil, fmt.Errorf("settings in the log: partition key: %w", err)
		}
		s.key = append(s.key, path)
	}
	for _, i := range s.settings.Indexes {
		path, err := document.ParsePointer(i.Path)
		if err != nil {
			return nil, fmt.Errorf("settings in the log: index: %w", err)
		}
		index := engine.Index{Number: i.Number, Path: path, Ordered: i.Ordered, Ready: i.Ready}
		s.indexed = append(s.indexed, i.Path)
		if i.Where != "" {
			if i.Expressions > query.MeaningNow {
				return nil, fmt.Errorf("settings in the log: condition of index %s: expressions have the meaning %d; this release knows up to %d", i.Path, i.Expressions, query.MeaningNow)
			}
			where, err := max(i.Expressions, query.MeaningTyped).ParseExpr(i.Where)
			if err != nil {
				return nil, fmt.Errorf("settings in the log: condition of index %s: %w", i.Path, err)
			}
			index.Where = where.True
			// What the condition reads counts like the path: a change of it adds the item to the index, or takes it
			// away.
			for _, names := range where.Paths() {
				s.indexed = append(s.indexed, pointerOf(names))
			}
		}
		s.engine.Indexes = append(s.engine.Indexes, index)
	}
	for _, u := range s.settings.UniqueKeys {
		key := engine.UniqueKey{Number: u.Number}
		for _, p := range u.Paths {
			path, err := document.ParsePointer(p)
			if err != nil {
				return nil, fmt.Errorf("settings in the log: unique key: %w", err)
			}
			key.Paths = append(key.Paths, path)
			s.indexed = append(s.indexed, p)
		}
		s.engine.UniqueKeys = append(s.engine.UniqueKeys, key)
	}
	for i := range s.settings.Tombstones {
		kind, err := compileStones(&s.settings.Tombstones[i])
		if err != nil {
			return nil, fmt.Errorf("settings in the log: %w", err)
		}
		s.stones = append(s.stones, kind)
	}
	if err := s.compileRules(); err != nil {
		return nil, fmt.Errorf("settings in the log: %w", err)
	}
	if s.settings.TTL != 0 {
		ttl := int64(s.settings.TTL)
		s.engine.DefaultTTL = &ttl
		s.indexed = append(s.indexed, "/ttl")
	}
	s.encoded = s.settings.Marshal()
	return s, nil
}

// trimmed is the trim point of the log; 0 before the first commit.
func (s *schema) trimmed() feed.LSN {
	if s == nil {
		return 0
	}
	return s.settings.Trimmed
}

// trimmedTo returns the schema with a trim point; the rest is shared.
func (s *schema) trimmedTo(lsn feed.LSN) *schema {
	next := *s
	next.settings.Trimmed = lsn
	next.encoded = next.settings.Marshal()
	return &next
}

// pointerOf is the JSON pointer of a path of property names.
func pointerOf(names []string) string {
	path := make(document.Path, len(names))
	for i, name := range names {
		path[i] = document.Step{Name: name}
	}
	return path.Pointer()
}

// touches says whether a change at a JSON pointer can alter index entries,
// unique keys or the expiry.
func (s *schema) touches(pointer string) bool {
	for _, path := range s.indexed {
		if overlaps(pointer, path) {
			return true
		}
	}
	return false
}

// overlaps says whether one of two JSON pointers contains the other. A * step,
// and a step of brackets (an element by key), stands for any step.
func overlaps(a, b string) bool {
	// When one of them ends, it contains the other.
	for a != "" && b != "" {
		var x, y string
		x, a = step(a)
		y, b = step(b)
		if x != y && x != "*" && y != "*" && !strings.HasPrefix(x, "[") && !strings.HasPrefix(y, "[") {
			return false
		}
	}
	return true
}

func step(pointer string) (first, rest string) {
	pointer = strings.TrimPrefix(pointer, "/")
	if i := strings.IndexByte(pointer, '/'); i >= 0 {
		return pointer[:i], pointer[i:]
	}
	return pointer, ""
}

// index returns the ready index on path.
func (s *schema) index(path string) (engine.Index, *store.Error) {
	for i, index := range s.settings.Indexes {
		if index.Path != path || index.Rule != "" {
			continue
		}
		if !index.Ready {
			return engine.Index{}, &store.Error{
				Status: store.StatusUnavailable, RetryAfter: indexRetry,
				Message: fmt.Sprintf("index %s is still being built", path),
			}
		}
		return s.engine.Indexes[i], nil
	}
	// It may be on its way: a pipeline can start before its index has been put in force.
	return engine.Index{}, &store.Error{
		Status: store.StatusUnavailable, RetryAfter: indexRetry,
		Message: fmt.Sprintf("the partition has no index on %s (yet); declare it in spec.indexes", path),
	}
}

// within returns the schema without the indexes that next has not.
func (s *schema) within(next *schema) *schema {
	left := *s
	left.settings.Indexes, left.engine.Indexes = nil, nil
	for i, index := range s.settings.Indexes {
		if hasIndex(next, index.Number) {
			left.settings.Indexes = append(left.settings.Indexes, index)
			left.engine.Indexes = append(left.engine.Indexes, s.engine.Indexes[i])
		}
	}
	left.encoded = left.settings.Marshal()
	return &left
}

// protected returns the reason why a client's patch may not write pointer.
func (s *schema) protected(pointer string) string {
	if pointer == "" {
		return "the whole item cannot be patched; replace it"
	}
	if overlaps(pointer, "/id") {
		return "the id of an item cannot be changed"
	}
	for _, path := range s.settings.PartitionKey {
		if overlaps(pointer, path) {
			return "the partition key of an item cannot be changed; delete it and create it under the other key"
		}
	}
	for _, name := range [...]string{"/_rid", "/_ts", "/_self", "/_etag", "/_attachments", "/_lsn"} {
		if first, _ := step(pointer); "/"+first == name {
			return "system properties cannot be patched"
		}
	}
	return ""
}

// uniqueTuple identifies what a unique key forbids twice: its number, the
// logical partition and the canonical values; a missing value counts as null.
func uniqueTuple(u *engine.UniqueKey, key feed.PartitionKey, body []byte) (tuple string, values [][]byte) {
	values = make([][]byte, len(u.Paths))
	for i, path := range u.Paths {
		values[i], _ = document.Get(body, path) // nil counts as null
	}
	return string(engine.AppendUniqueTuple(make([]byte, 0, 128), key, u.Number, values)), values
}
