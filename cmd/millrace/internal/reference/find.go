package reference

import (
	"fmt"
	"iter"
	"strings"

	"github.com/millrace/millrace/pipelines/spec"
)

// NotFoundError says that there is no key at a path.
type NotFoundError struct {
	// Path is what was asked for.
	Path string
	// In is the path of the last key that there is, "" if not even the kind is.
	In string
	// Word is the part of Path that is no key of In.
	Word string
	// Near is the path that was probably meant, or "".
	Near string
	// Names are what is there in place of Word.
	Names []string
}

func (e *NotFoundError) Error() string {
	where := e.In + " has no key " + e.Word
	switch {
	case e.In == "":
		where = "there is no kind " + e.Word
	case len(e.Names) == 0:
		return fmt.Sprintf("%s holds no keys, so %s is nothing of it", e.In, e.Word)
	}
	if e.Near != "" {
		return where + "; did you mean " + e.Near + "?"
	}
	if e.In == "" {
		return where + "; there are " + strings.Join(e.Names, ", ")
	}
	return where + "; it has " + strings.Join(e.Names, ", ")
}

// nearer says whether e has more words of a path than other, or as many and a key that is like the
// next one. Words are counted, not letters: container.spec is no nearer than pipeline.spec.
func (e *NotFoundError) nearer(other *NotFoundError) bool {
	mine, others := strings.Count(e.In, "."), strings.Count(other.In, ".")
	return mine > others || mine == others && e.Near != "" && other.Near == ""
}

// Find returns the key at a path such as pipeline.spec.cascade.match. A finding's path,
// which begins with spec, is found in the first kind that has it. The name of an entry may
// be written, or * for any: tables.orders.columns is tables.columns.
func (t *Tree) Find(path string) (*Key, error) {
	words := strings.Split(strings.Trim(path, "."), ".")
	for _, kind := range t.Kinds {
		if strings.EqualFold(kind.Name(), words[0]) || strings.EqualFold(kind.Name()+"s", words[0]) {
			k, err := find(kind, words[1:])
			if err != nil {
				err.Path = path
				return nil, err
			}
			return k, nil
		}
	}
	// A path without a kind: spec and metadata are in all of them. Pipelines have most keys, so
	// what several kinds have is told of them; and if none has the whole path, it is told of the
	// one that comes nearest: spec.partitionkey is near container.spec.partitionKey.
	var nearest *NotFoundError
	for _, name := range []string{"pipeline", "container", "test"} {
		for _, kind := range t.Kinds {
			if kind.Name() != name || child(kind, words[0]) == nil {
				continue
			}
			k, err := find(kind, words)
			if err == nil {
				return k, nil
			}
			if nearest == nil || err.nearer(nearest) {
				nearest = err
				nearest.Path = path
			}
		}
	}
	if nearest != nil {
		return nil, nearest
	}
	var names []string
	for _, kind := range t.Kinds {
		names = append(names, kind.Name())
	}
	return nil, &NotFoundError{Path: path, Word: words[0], Names: names, Near: spec.Nearest(words[0], names)}
}

// find walks down from k. A word that is no key is passed over as the name of an entry only where
// the word behind it is a key of the entries. So tables.orders.columns is found, and the end of
// tables.colums is told to be mistyped: taken for a table, it would be answered with all of tables.
func find(k *Key, words []string) (*Key, *NotFoundError) {
	for i, word := range words {
		next := child(k, word)
		if next == nil && strings.HasPrefix(k.Type, "map of ") && (word == "*" || i+1 < len(words) && child(k, words[i+1]) != nil) {
			continue // the name of an entry
		}
		if next == nil {
			var names []string
			for _, c := range k.Keys {
				names = append(names, c.Name())
			}
			e := &NotFoundError{In: k.Path, Word: word, Names: names}
			if near := spec.Nearest(word, names); near != "" {
				e.Near = strings.Join(append([]string{k.Path, near}, words[i+1:]...), ".")
			}
			return nil, e
		}
		k = next
	}
	return k, nil
}

// child returns the key of that name, nil if there is none.
func child(k *Key, name string) *Key {
	for _, c := range k.Keys {
		if c.Name() == name {
			return c
		}
	}
	return nil
}

// All calls its consumer with k and all keys below it, a key before its own.
func (k *Key) All() iter.Seq[*Key] {
	return func(yield func(*Key) bool) { k.all(yield) }
}

func (k *Key) all(yield func(*Key) bool) bool {
	if !yield(k) {
		return false
	}
	for _, c := range k.Keys {
		if !c.all(yield) {
			return false
		}
	}
	return true
}
