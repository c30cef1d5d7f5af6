package spec

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/feed/document"
)

// Decoder reads one file's nodes and collects what is wrong with them. It goes on
// after each finding, so that an operator sees all at once.
type Decoder struct {
	File     string
	lines    []string
	findings Findings
	places   places // of the document at hand
	Tests    bool   // documents of kind Test are read
}

// field is one field that a mapping may have.
type field struct {
	name     string
	required string // what is expected, said where it is missing; "" if it may be
	read     func(n *yaml.Node, path string)
}

func (d *Decoder) at(n *yaml.Node) Place { return Place{d.File, n.Line, n.Column} }

func (d *Decoder) bad(n *yaml.Node, format string, args ...any) {
	d.findings.Add(d.at(n), format, args...)
}

// mapping reads the fields of a mapping at path. Unknown and doubled fields,
// missing ones and what is no mapping at all are reported; the answer is whether
// it was a mapping.
func (d *Decoder) mapping(n *yaml.Node, path string, fields ...field) bool {
	n = resolve(n)
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	if n.Kind != yaml.MappingNode {
		d.bad(n, "%s is %s; fields are expected: %s", titled(path), describe(n), strings.Join(names, ", "))
		return false
	}
	seen := d.keys(n, path)
	meant := d.unknown(seen, path, names)
	// In the order of fields, not in the file's: a field can rest on one that is read before it,
	// such as an expression on its each.
	for _, f := range fields {
		value, there := seen[f.name]
		switch {
		case there && !IsNull(value):
			f.read(value, Join(path, f.name))
		// A misspelt field was told of. That the one which was meant is missing would be the same
		// mistake once more.
		case f.required == "" || meant[f.name]:
		case there:
			d.bad(value, "%s is empty; %s", Join(path, f.name), f.required)
		default:
			d.bad(n, "%s is missing; %s", Join(path, f.name), f.required)
		}
	}
	return true
}

// unknown reports the fields of a mapping that are none of names, and returns
// those of names that were probably meant.
func (d *Decoder) unknown(seen map[string]*yaml.Node, path string, names []string) map[string]bool {
	meant := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		if slices.Contains(names, name) {
			continue
		}
		at := d.places.key(Join(path, name))
		if hint := Nearest(name, names); hint != "" {
			meant[hint] = true
			d.findings.Add(at, "unknown field %s; did you mean %s?", Join(path, name), hint)
		} else {
			d.findings.Add(at, "unknown field %s; %s has %s", Join(path, name), titled(path), strings.Join(names, ", "))
		}
	}
	return meant
}

// keys returns the values of a mapping by key, and notes where they stand.
func (d *Decoder) keys(n *yaml.Node, path string) map[string]*yaml.Node {
	seen := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := resolve(n.Content[i]), resolve(n.Content[i+1])
		if key.Kind != yaml.ScalarNode {
			d.bad(n.Content[i], "the name of a field is expected, not %s", describe(key))
			continue
		}
		name := Join(path, key.Value)
		if _, twice := seen[key.Value]; twice {
			d.bad(n.Content[i], "field %s is there twice; the first is in line %d", name, d.places.key(name).Line)
			continue
		}
		seen[key.Value] = value
		// Of an alias this is where it stands, not its anchor.
		d.places[name] = d.at(n.Content[i+1])
		d.places[name+"~"] = d.at(n.Content[i])
	}
	return seen
}

// text reads a string.
func (d *Decoder) text(into *string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		switch {
		case n.Kind != yaml.ScalarNode:
			d.bad(n, "%s is %s; a text is expected", path, describe(n))
		case n.Tag != "!!str":
			d.bad(n, "%s is %s; a text is expected: if you mean the text, quote it: %q", path, describe(n), n.Value)
		case strings.TrimSpace(n.Value) == "":
			d.bad(n, "%s is empty; a text is expected", path)
		default:
			*into = n.Value
		}
	}
}

// number reads a whole number.
func (d *Decoder) number(into *int) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" {
			hint := ""
			if _, err := strconv.Atoi(n.Value); err == nil && n.Kind == yaml.ScalarNode {
				hint = ": write it without quotes"
			}
			d.bad(n, "%s is %s; a whole number is expected%s", path, describe(n), hint)
			return
		}
		v, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 32)
		if err != nil {
			d.bad(n, "%s is %s, which is out of range", path, n.Value)
			return
		}
		*into = int(v)
	}
}

// texts reads a list of strings.
func (d *Decoder) texts(into *[]string, example string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		d.list(n, path, example, func(e *yaml.Node, path string) {
			var s string
			d.text(&s)(e, path)
			// What could not be read is in the list too, empty: findings name elements by their index.
			*into = append(*into, s)
		})
	}
}

// list calls read for each element of a list.
func (d *Decoder) list(n *yaml.Node, path, example string, read func(*yaml.Node, string)) {
	if n.Kind != yaml.SequenceNode {
		d.bad(n, "%s is %s; a list is expected, such as %s", path, describe(n), example)
		return
	}
	for i, e := range n.Content {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.places[at] = d.at(e)
		read(resolve(e), at)
	}
}

// boolean reads true or false.
func (d *Decoder) boolean(into *bool) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		switch {
		case n.Kind == yaml.ScalarNode && n.Tag == "!!bool" && strings.EqualFold(n.Value, "true"):
			*into = true
		case n.Kind == yaml.ScalarNode && n.Tag == "!!bool" && strings.EqualFold(n.Value, "false"):
			*into = false
		default:
			hint := ""
			switch strings.ToLower(n.Value) {
			// YAML 1.1 took these for booleans, and the parser takes them for texts.
			case "yes", "on":
				hint = ": write true"
			case "no", "off":
				hint = ": write false"
			case "true", "false":
				hint = ": write it without quotes"
			}
			d.bad(n, "%s is %s; true or false is expected%s", path, describe(n), hint)
		}
	}
}

// entry is a key of a mapping and its value.
type entry struct {
	name       string
	key, value *yaml.Node
}

// entries returns the entries of a mapping at path in their order, those with the
// same key once. What is no mapping or an empty one is reported with what is
// expected.
func (d *Decoder) entries(n *yaml.Node, path, expected string) []entry {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		d.bad(n, "%s is %s; %s", path, describe(n), expected)
		return nil
	}
	values := d.keys(n, path)
	var all []entry
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := resolve(n.Content[i])
		value, ok := values[key.Value]
		if !ok || key.Kind != yaml.ScalarNode {
			continue
		}
		delete(values, key.Value) // a doubled key is read once
		all = append(all, entry{key.Value, n.Content[i], value})
	}
	return all
}

// fieldReader parses a field of the target or of the source. It reports what is none,
// and what is not allowed where it stands.
type fieldReader func(n *yaml.Node, path, text string) (document.Field, bool)

// pairs reads a mapping of field names of the target to those of the source.
func (d *Decoder) pairs(into *ByField[document.Field], example string, target, source fieldReader) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		entries := d.entries(n, path, "field of the target: field of the source is expected, such as "+example)
		for _, e := range entries {
			at := Join(path, e.name)
			// Both sides are read whatever is wrong with the other, so that both are told of.
			copied, ok := target(e.key, at, e.name)
			if IsNull(e.value) {
				d.bad(e.value, "%s is empty; the name of a field of the source is expected", at)
				continue
			}
			var text string
			d.text(&text)(e.value, at)
			if text == "" {
				continue
			}
			if from, read := source(e.value, at, text); ok && read {
				into.put(copied, from)
			}
		}
	}
}

// resolve returns the node that an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// IsNull tells whether a node is null.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// describe says what a node is, for a message.
func describe(n *yaml.Node) string {
	if n.Kind == yaml.MappingNode && len(n.Content) == 0 {
		return "empty"
	}
	if n.Kind == yaml.MappingNode {
		return "a mapping"
	}
	if n.Kind == yaml.SequenceNode {
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "empty"
	case "!!str":
		return fmt.Sprintf("the text %q", n.Value)
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!bool":
		return "the boolean " + n.Value
	}
	return fmt.Sprintf("%s %s", strings.TrimPrefix(n.Tag, "!!"), n.Value)
}

// Join returns the path of a field of what path names.
func Join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// titled names the whole document where path is empty.
func titled(path string) string {
	if path == "" {
		return "a document"
	}
	return path
}
