package spec

import (
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// TestScalarPlace finds every character of a scalar's value at the place where it
// stands in the file, whatever the style.
func TestScalarPlace(t *testing.T) {
	for name, text := range map[string]string{
		"plain":            "a: type = x AND größe > 10",
		"plain, two lines": "a: type = x\n   AND b\n\n   OR c",
		"single quotes":    "a: 'type = x AND y'",
		"single, lines":    "a: 'type = x\n\n  AND y'",
		"double quotes":    `a: "type = x AND y"`,
		"double, lines":    "a: \"type = x\n  AND y \\\n  OR z\"",
		"literal":          "a: |\n  type = x\n    AND y\n",
		"literal, comment": "a: |-  # where\n\n  type = x\n  AND y\n",
		"folded":           "a: >\n  type = x\n  AND y\n\n  OR z\n",
		"in a flow":        "{b: 1, a: type = x AND y, c: 2}",
		"tag and anchor":   "a: !!str &w type = x",
	} {
		t.Run(name, func(t *testing.T) {
			lines := strings.Split(text, "\n")
			n := value(t, text)
			for i, c := range n.Value {
				if unicode.IsSpace(c) {
					continue
				}
				at := scalarPlace("f", lines, n, i)
				line := []rune(lines[at.Line-1])
				if at.Column > len(line) || line[at.Column-1] != c {
					t.Errorf("%q: offset %d (%c) is said to be at %s", n.Value, i, c, at)
				}
			}
			end := scalarPlace("f", lines, n, len(n.Value))
			last := scalarPlace("f", lines, n, len(strings.TrimRight(n.Value, " \n"))-1)
			if last.Column++; end != last {
				t.Errorf("%q: the end is said to be at %s, want %s", n.Value, end, last)
			}
		})
	}
}

// TestScalarPlaceEscapes counts what an escape stands for, not how it is written.
func TestScalarPlaceEscapes(t *testing.T) {
	text := `a: "caf\u00e9\x21 = \"x\""`
	n := value(t, text)
	for offset, want := range map[int]int{
		strings.Index(n.Value, "é"): 8,
		strings.Index(n.Value, "!"): 14,
		strings.Index(n.Value, "="): 19,
		strings.Index(n.Value, "x"): 23,
	} {
		if got := scalarPlace("f", []string{text}, n, offset); got.Column != want {
			t.Errorf("offset %d is said to be in column %d, want %d", offset, got.Column, want)
		}
	}
	text = `a: 'it''s = x'`
	n = value(t, text)
	if got := scalarPlace("f", []string{text}, n, strings.Index(n.Value, "=")); got.Column != 11 {
		t.Errorf("behind a doubled quote: column %d, want 11", got.Column)
	}
}

// value returns the value of the key a of a mapping.
func value(t *testing.T, text string) *yaml.Node {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	mapping := doc.Content[0]
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == "a" {
			return mapping.Content[i+1]
		}
	}
	t.Fatal("no key a")
	return nil
}

func TestNearest(t *testing.T) {
	names := []string{"partitionKey", "partitions", "indexes", "ttl"}
	for name, want := range map[string]string{
		"partitionkey": "partitionKey", "partitons": "partitions", "index": "indexes", "tll": "ttl", "replicas": "", "x": "",
	} {
		if got := Nearest(name, names); got != want {
			t.Errorf("nearest(%q) = %q, want %q", name, got, want)
		}
	}
}
