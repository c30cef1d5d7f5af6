package spec

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/feed/document"
)

// YamlWriter writes YAML as JSON: mappings in their order, numbers as they are
// written where JSON can write them so, everything that JSON has no form for as text.
// A merge key (<<) brings the fields that the mapping does not have itself.
type YamlWriter struct {
	Out bytes.Buffer
	// place is told of each value where it stands, by the path in which fields are
	// joined by dots and elements stand in brackets; may be nil.
	place func(n *yaml.Node, path string)
	// bad is told what cannot be written, for which null is; may be nil.
	bad func(n *yaml.Node, message string)

	full bool // what follows is left out, and was told
}

// Limits of what is written, which aliases make longer than what was read.
const (
	yamlDepthMax = document.DepthMax // of values in each other
	yamlBytesMax = 8 << 20
)

// Value writes a node, whose path in the document is path, to Out.
func (w *YamlWriter) Value(n *yaml.Node, path string) { w.nested(n, path, 0) }

func (w *YamlWriter) nested(n *yaml.Node, path string, depth int) {
	// Before the alias is resolved: later findings point at where it is used, not at its anchor.
	if w.place != nil {
		w.place(n, path)
	}
	n = resolve(n)
	// A few aliases can make gigabytes of a short text, each of ten of the one before it. One
	// inside its own anchor, &a {b: *a}, would never end; the depth ends it.
	switch {
	case w.full:
		w.Out.WriteString("null")
		return
	case depth > yamlDepthMax:
		w.wrong(n, fmt.Sprintf("more than %d values lie in each other", yamlDepthMax))
		return
	case w.Out.Len() > yamlBytesMax:
		w.full = true
		w.wrong(n, fmt.Sprintf("it is longer than %d bytes", yamlBytesMax))
		return
	}
	switch n.Kind {
	case yaml.MappingNode:
		w.mapping(n, path, depth)
	case yaml.SequenceNode:
		w.Out.WriteByte('[')
		for i, e := range n.Content {
			if i > 0 {
				w.Out.WriteByte(',')
			}
			w.nested(e, fmt.Sprintf("%s[%d]", path, i), depth+1)
		}
		w.Out.WriteByte(']')
	default:
		w.scalar(n)
	}
}

func (w *YamlWriter) mapping(n *yaml.Node, path string, depth int) {
	w.Out.WriteByte('{')
	seen := map[string]bool{}
	w.members(n, path, depth, seen)
	w.Out.WriteByte('}')
}

// members writes the members of a mapping that are not in seen, its own before those
// that a merge key brings.
func (w *YamlWriter) members(n *yaml.Node, path string, depth int, seen map[string]bool) {
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), n.Content[i+1]
		switch {
		// Merged fields come behind all others, wherever << stands: the mapping's own fields win.
		case key.Tag == "!!merge":
			merged = append(merged, resolve(value))
			continue
		case key.Kind != yaml.ScalarNode:
			w.note(n.Content[i], "the name of a field is expected, not "+describe(key))
			continue
		case seen[key.Value]:
			// seen holds the fields of the mapping that is merged into too. A merged field that is
			// there already gives way, and that is no mistake.
			if w.twice(n, i) {
				w.note(n.Content[i], fmt.Sprintf("field %s is there twice", key.Value))
			}
			continue
		}
		if len(seen) > 0 {
			w.Out.WriteByte(',')
		}
		seen[key.Value] = true
		w.Out.Write(document.AppendQuote(nil, key.Value))
		w.Out.WriteByte(':')
		w.nested(value, Join(path, key.Value), depth+1)
	}
	for _, from := range merged {
		all := []*yaml.Node{from}
		if from.Kind == yaml.SequenceNode {
			all = from.Content
		}
		for _, m := range all {
			if m = resolve(m); m.Kind != yaml.MappingNode || depth > yamlDepthMax {
				w.note(m, "<< merges mappings, not "+describe(m))
				continue
			}
			w.members(m, path, depth+1, seen)
		}
	}
}

// twice tells whether the key at i stands before in the same mapping.
func (w *YamlWriter) twice(n *yaml.Node, i int) bool {
	for j := 0; j < i; j += 2 {
		if resolve(n.Content[j]).Value == resolve(n.Content[i]).Value {
			return true
		}
	}
	return false
}

func (w *YamlWriter) scalar(n *yaml.Node) {
	switch n.ShortTag() {
	case "!!null":
		w.Out.WriteString("null")
	case "!!bool":
		w.Out.WriteString(strings.ToLower(n.Value))
	case "!!int", "!!float":
		w.number(n)
	default:
		w.Out.Write(document.AppendQuote(nil, n.Value))
	}
}

func (w *YamlWriter) number(n *yaml.Node) {
	// As it is written, so that 1.10 stays 1.10 and no digit of a long number is lost. Only
	// what JSON cannot write is computed: 0x1F, 0o17, 010 (which is 8), 1_000, +5, .5.
	if document.CheckValue([]byte(n.Value)) == nil {
		w.Out.WriteString(n.Value)
		return
	}
	text := strings.ReplaceAll(n.Value, "_", "")
	if v, err := strconv.ParseInt(text, 0, 64); err == nil && n.ShortTag() == "!!int" {
		w.Out.WriteString(strconv.FormatInt(v, 10))
		return
	}
	v, err := strconv.ParseFloat(text, 64)
	out := strconv.AppendFloat(nil, v, 'g', -1, 64)
	if err != nil || document.CheckValue(out) != nil {
		w.wrong(n, n.Value+" is no number that JSON can write; quote it if you mean the text")
		return
	}
	w.Out.Write(out)
}

// wrong writes null in place of what cannot be written.
func (w *YamlWriter) wrong(n *yaml.Node, message string) {
	w.Out.WriteString("null")
	w.note(n, message)
}

func (w *YamlWriter) note(n *yaml.Node, message string) {
	if w.bad != nil {
		w.bad(n, message)
	}
}
