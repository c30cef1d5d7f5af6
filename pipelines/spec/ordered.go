package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// Duration is a time.Duration that is written as text, such as 5s, in JSON too.
type Duration time.Duration

// String returns the duration as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText returns String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// MarshalJSON writes the tables as an object in their order.
func (t Tables) MarshalJSON() ([]byte, error) {
	return orderedJSON(t, func(t *NamedTable) (string, any) { return t.Name, t.Table })
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *Tables) UnmarshalJSON(data []byte) error {
	*t = nil
	return readOrdered(data, func(name string, dec *json.Decoder) error {
		n := NamedTable{Name: name}
		err := dec.Decode(&n.Table)
		*t = append(*t, n)
		return err
	})
}

// MarshalYAML writes the tables as a mapping in their order.
func (t Tables) MarshalYAML() (any, error) {
	return orderedYAML(t, func(t *NamedTable) (string, any) { return t.Name, t.Table })
}

// MarshalJSON writes the columns as an object in their order, those without a
// type as their expression alone.
func (c Columns) MarshalJSON() ([]byte, error) { return orderedJSON(c, (*NamedColumn).short) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Columns) UnmarshalJSON(data []byte) error {
	*c = nil
	return readOrdered(data, func(name string, dec *json.Decoder) error {
		n := NamedColumn{Name: name}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return err
		}
		into := any(&n.Column)
		if raw[0] == '"' {
			into = &n.Expr
		}
		err := json.Unmarshal(raw, into)
		*c = append(*c, n)
		return err
	})
}

// MarshalYAML writes the columns as a mapping in their order, those without a
// type as their expression alone.
func (c Columns) MarshalYAML() (any, error) { return orderedYAML(c, (*NamedColumn).short) }

// short returns the column as it is written.
func (c *NamedColumn) short() (string, any) {
	if c.Type == "" {
		return c.Name, c.Expr
	}
	return c.Name, c.Column
}

// orderedJSON writes a list as an object of its named elements.
func orderedJSON[T any](list []T, named func(*T) (string, any)) ([]byte, error) {
	out := []byte{'{'}
	for i := range list {
		name, value := named(&list[i])
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, key...), ':'), data...)
	}
	return append(out, '}'), nil
}

// readOrdered calls read for each member of an object, in order; it decodes the
// member's value.
func readOrdered(data []byte, read func(name string, dec *json.Decoder) error) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	begin, err := dec.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('{') {
		return fmt.Errorf("an object is expected, not %v", begin)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		if err := read(fmt.Sprint(name), dec); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

// orderedYAML returns a list as a mapping of its named elements.
func orderedYAML[T any](list []T, named func(*T) (string, any)) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := range list {
		name, value := named(&list[i])
		var k, v yaml.Node
		if err := k.Encode(name); err != nil {
			return nil, err
		}
		if err := v.Encode(value); err != nil {
			return nil, err
		}
		n.Content = append(n.Content, &k, &v)
	}
	return n, nil
}
