// Package declaration prints documents in the form in which apply reads them.
package declaration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// JSON returns a declared document as JSON in the form in which apply
// reads it: the keys and texts of its YAML, durations such as 168h among them.
// Empty values are left out, but for a key whose mere presence is a choice, such as
// sink: {container: {}}.
func JSON(doc any) (json.RawMessage, error) {
	var n yaml.Node
	if err := n.Encode(doc); err != nil {
		return nil, fmt.Errorf("print: %w", err)
	}
	var out bytes.Buffer
	if err := appendJSON(&out, &n); err != nil {
		return nil, fmt.Errorf("print: %w", err)
	}
	return out.Bytes(), nil
}

func appendJSON(out *bytes.Buffer, n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode:
		out.WriteByte('{')
		first := true
		for i := 0; i+1 < len(n.Content); i += 2 {
			value := n.Content[i+1]
			if empty(value) && !chosen[n.Content[i].Value] {
				continue
			}
			if !first {
				out.WriteByte(',')
			}
			first = false
			fmt.Fprintf(out, "%q:", n.Content[i].Value)
			if err := appendJSON(out, value); err != nil {
				return err
			}
		}
		out.WriteByte('}')
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, e := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			if err := appendJSON(out, e); err != nil {
				return err
			}
		}
		out.WriteByte(']')
	default:
		if tag := n.ShortTag(); tag == "!!int" || tag == "!!bool" || tag == "!!null" {
			out.WriteString(n.Value)
			return nil
		}
		text, err := json.Marshal(n.Value)
		if err != nil {
			return err
		}
		out.Write(text)
	}
	return nil
}

// chosen are the keys whose empty mapping says something.
var chosen = map[string]bool{"container": true, "parquet": true, "postgres": true}

func empty(n *yaml.Node) bool {
	return n.ShortTag() == "!!null" || (n.Kind == yaml.SequenceNode || n.Kind == yaml.MappingNode) && len(n.Content) == 0
}

// WriteYAML writes v with the keys that its JSON has, in their order.
func WriteYAML(w io.Writer, v any) error {
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	// By way of JSON, so that both forms have the same keys, in the same order. It is not read as the YAML that it
	// nearly is: an item may have a character as two escaped surrogates, which YAML does not have.
	dec := json.NewDecoder(&data)
	dec.UseNumber()
	doc, err := nextNode(dec)
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	out := yaml.NewEncoder(w)
	out.SetIndent(2)
	if err := out.Encode(doc); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return out.Close()
}

// nextNode reads a value of JSON into a node in the style of YAML: indented, quotes only where needed.
func nextNode(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}, nil
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if v == '{' {
			n.Kind = yaml.MappingNode
		}
		for dec.More() {
			child, err := nextNode(dec) // keys too
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle // [] and {}
		}
		_, err := dec.Token()
		return n, err
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}, nil
}
