package remote

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// systemNames are the members that the protocol adds to items and drops from what is
// written. A change feed adds _lsn.
var systemNames = []string{"_rid", "_self", "_etag", "_ts", "_attachments", "_lsn"}

// system takes them out of an item, of which all else stays byte for byte.
var system = func() *document.Setter {
	fields := make([]document.FieldValue, len(systemNames))
	for i, name := range systemNames {
		fields[i].Path = document.Path{{Name: name}}
	}
	s, err := document.NewSetter(fields)
	if err != nil {
		panic("remote: system properties: " + err.Error())
	}
	return s
}()

func withoutSystem(body []byte) ([]byte, error) {
	after, _, _, err := system.Apply(body)
	if err != nil {
		return nil, fmt.Errorf("take the system properties from an item: %w", err)
	}
	return after, nil
}

// isItem says whether a row is a whole item, as SELECT * gives it, and not an object
// that a query made.
func isItem(row []byte) bool {
	if document.KindOf(row) != document.Object {
		return false
	}
	for _, name := range systemNames[:4] {
		if _, ok := document.Get(row, document.Path{{Name: name}}); !ok {
			return false
		}
	}
	return true
}

// systemOf are the system properties of an item that are of use.
type systemOf struct {
	ETag string `json:"_etag"`
	Time int64  `json:"_ts"` // of the last write, in seconds
	LSN  uint64 `json:"_lsn"`
}

// item returns an item that the protocol shows, as the store has it. An etag in the
// form of another store is left out.
func (c *Container) item(body []byte) (store.Item, error) {
	item, _, err := c.itemAndSystem(body)
	return item, err
}

func (c *Container) itemAndSystem(body []byte) (store.Item, systemOf, error) {
	var s systemOf
	if err := json.Unmarshal(body, &s); err != nil {
		return store.Item{}, s, fmt.Errorf("read an item: %w", err)
	}
	item := store.Item{Modified: s.Time * 1000}
	item.ID, _ = document.ID(body)
	var err error
	if item.Key, err = store.KeyAt(body, c.paths); err != nil {
		return item, s, fmt.Errorf("item %s: %w", item.ID, err)
	}
	if etag, err := store.ParseETag(s.ETag); err == nil {
		item.ETag = etag
	}
	item.Body, err = withoutSystem(body)
	return item, s, err
}

// access tells from index metrics how a query is answered: in the words of a Millrace
// gateway, or as far as the protocol's form tells.
func access(metrics *string) (string, error) {
	const none = "the endpoint does not tell which indexes the query uses"
	if metrics == nil {
		return none, nil
	}
	// Newer endpoints send JSON, others its base64.
	data := []byte(*metrics)
	if decoded, err := base64.StdEncoding.DecodeString(*metrics); err == nil {
		data = decoded
	}
	type indexes struct {
		SingleIndexes    []struct{ IndexSpec string }
		CompositeIndexes []struct{ IndexSpecs []string }
	}
	// The form has two versions. Which one comes is the endpoint's choice.
	var m struct {
		Access                            string
		UtilizedIndexes, PotentialIndexes indexes

		UtilizedSingleIndexes, PotentialSingleIndexes       []struct{ IndexSpec string }
		UtilizedCompositeIndexes, PotentialCompositeIndexes []struct{ IndexSpecs []string }
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return "", fmt.Errorf("read the index metrics: %w", err)
	}
	if m.Access != "" {
		return m.Access, nil
	}
	add := func(x *indexes, first indexes) {
		x.SingleIndexes = append(x.SingleIndexes, first.SingleIndexes...)
		x.CompositeIndexes = append(x.CompositeIndexes, first.CompositeIndexes...)
	}
	add(&m.UtilizedIndexes, indexes{m.UtilizedSingleIndexes, m.UtilizedCompositeIndexes})
	add(&m.PotentialIndexes, indexes{m.PotentialSingleIndexes, m.PotentialCompositeIndexes})
	list := func(x indexes) string {
		var specs []string
		for _, index := range x.SingleIndexes {
			specs = append(specs, index.IndexSpec)
		}
		for _, index := range x.CompositeIndexes {
			specs = append(specs, "("+strings.Join(index.IndexSpecs, ", ")+")")
		}
		if specs == nil {
			return "none"
		}
		return strings.Join(specs, ", ")
	}
	return "indexes used: " + list(m.UtilizedIndexes) + "; that would help: " + list(m.PotentialIndexes), nil
}
