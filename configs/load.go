package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// fileBytesMax bounds a configuration file.
const fileBytesMax = 1 << 20

// Finding is one thing wrong with a configuration.
type Finding struct {
	// Where is file:line:column, the variable or the flag.
	Where string
	// Message says what is wrong and what is expected.
	Message string
}

func (f *Finding) Error() string { return f.Where + ": " + f.Message }

// Load returns the configuration of file, if one is named, of the environment
// environ, in the form of os.Environ, and of sets, each key=value; later ones
// win. The error tells everything that is wrong, a line each; those with a place
// are *Finding.
func Load(file string, environ, sets []string) (*Config, error) {
	c := &Config{}
	var errs []error
	if file != "" {
		data, err := readFile(file)
		if err != nil {
			return nil, err
		}
		errs = append(errs, c.decode(file, data)...)
	}
	known := leaves(c)
	errs = append(errs, c.environment(known, environ)...)
	for _, set := range sets {
		where := "--set " + set
		key, value, ok := strings.Cut(set, "=")
		if !ok {
			errs = append(errs, &Finding{where, "KEY=VALUE is expected, such as store.queueMax=1000"})
			continue
		}
		leaf, ok := known[strings.TrimSpace(key)]
		if !ok {
			errs = append(errs, &Finding{where, "there is no key " + key + "; " + hintOf(strings.TrimSpace(key), "configs/millrace.yaml explains all")})
			continue
		}
		if err := setText(leaf, value); err != nil {
			errs = append(errs, &Finding{where, err.Error()})
		}
	}
	// Also behind other errors, so that an operator sees all at once.
	if err := c.complete(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if len(data) > fileBytesMax {
		return nil, fmt.Errorf("read the configuration: %s is larger than %d bytes", name, fileBytesMax)
	}
	return data, nil
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// decode takes in one file.
func (c *Config) decode(file string, data []byte) []error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return nil // an empty file asks for nothing
	}
	if err != nil {
		m := yamlLine.FindStringSubmatch(err.Error())
		line := "1"
		if m[1] != "" {
			line = m[1]
		}
		return []error{&Finding{file + ":" + line + ":1", "not YAML near this line: " + strings.TrimPrefix(err.Error(), m[0])}}
	}
	d := &decoder{file: file}
	d.mapping("", doc.Content[0], reflect.ValueOf(c).Elem())
	if err := dec.Decode(&doc); err == nil {
		d.bad(&doc, "a second document; a configuration is one")
	}
	return d.errs
}

// decoder walks a YAML tree beside a struct.
type decoder struct {
	file string
	errs []error
}

func (d *decoder) bad(at *yaml.Node, format string, args ...any) {
	d.errs = append(d.errs, &Finding{fmt.Sprintf("%s:%d:%d", d.file, at.Line, at.Column), fmt.Sprintf(format, args...)})
}

// mapping sets the fields of v from the keys of n.
func (d *decoder) mapping(path string, n *yaml.Node, v reflect.Value) {
	if n.Tag == "!!null" {
		return // a key without a value is as if it were not there
	}
	if n.Kind != yaml.MappingNode {
		d.bad(n, "%s: keys are expected: %s", orTop(path), strings.Join(keysOf(v), ", "))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if seen[key.Value] {
			d.bad(key, "%s is there twice", key.Value)
			continue
		}
		seen[key.Value] = true
		field, ok := fieldOf(v, key.Value)
		if !ok {
			d.bad(key, "%s: there is no key %s; %s", orTop(path), key.Value, hintOf(join(path, key.Value), "known are "+strings.Join(keysOf(v), ", ")))
			continue
		}
		at := join(path, key.Value)
		if field.Kind() == reflect.Struct {
			d.mapping(at, value, field)
			continue
		}
		d.leaf(at, value, field)
	}
}

// leaf sets one field.
func (d *decoder) leaf(path string, n *yaml.Node, v reflect.Value) {
	switch {
	case n.Tag == "!!null":
	case n.Kind == yaml.SequenceNode && v.Kind() == reflect.Slice:
		list := []string{} // not nil: an empty one is not the same as none
		for _, e := range n.Content {
			if e.Kind != yaml.ScalarNode {
				d.bad(e, "%s: a text is expected", path)
				return
			}
			list = append(list, e.Value)
		}
		v.Set(reflect.ValueOf(list))
	case n.Kind != yaml.ScalarNode:
		d.bad(n, "%s: %s is expected", path, kindOf(v))
	default:
		if err := setText(v, n.Value); err != nil {
			d.bad(n, "%s: %v", path, err)
		}
	}
}

func orTop(path string) string {
	if path == "" {
		return "at the top"
	}
	return path
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// describeInt is what an integer may look like.
const describeInt = "a number, such as 1000 or 64MiB,"

func kindOf(v reflect.Value) string {
	switch {
	case v.Type() == durationType:
		return "a duration, such as 5s or 100ms,"
	case v.Kind() == reflect.Bool, v.Type() == optionalBoolType:
		return "true or false"
	case v.CanInt():
		return describeInt
	case v.Kind() == reflect.Slice:
		return "a list"
	}
	return "a text"
}

func quoted(text string) string { return strconv.Quote(text) }

// renamed are the keys of earlier releases that have other names now. The old ones are
// refused: taken for the new ones, they would live on in every configuration.
var renamed = map[string]string{"steward": "reconciler"}

// hintOf says what an unknown key is called now, or otherwise what helps.
func hintOf(key, otherwise string) string {
	for was, is := range renamed {
		if rest, ok := strings.CutPrefix(key, was); ok && (rest == "" || rest[0] == '.') {
			return "it is " + is + rest + " now"
		}
	}
	return otherwise
}
