package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
)

// print writes v as --output asks: by table, or as JSON or YAML of what v
// marshals to.
func (a *app) print(v any, table func(w io.Writer) error) error {
	switch a.output {
	case "json":
		return writeJSON(a.out, v)
	case "yaml":
		return writeYAML(a.out, v)
	}
	return table(a.out)
}

// printText is print of a line or two of text.
func (a *app) printText(v any, text string, args ...any) error {
	return a.print(v, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, text, args...)
		return err
	})
}

func writeJSON(w io.Writer, v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// writeYAML writes v with the keys that its JSON has, in their order.
func writeYAML(w io.Writer, v any) error {
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	// By way of JSON, so that both forms have the same keys, in the same order.
	var doc yaml.Node
	if err := yaml.Unmarshal(data.Bytes(), &doc); err != nil { // JSON is YAML
		return fmt.Errorf("print: %w", err)
	}
	block(&doc)
	out := yaml.NewEncoder(w)
	out.SetIndent(2)
	if err := out.Encode(&doc); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return out.Close()
}

// block turns JSON's style into that of YAML: indented, quotes only where needed.
func block(n *yaml.Node) {
	n.Style = 0
	if (n.Kind == yaml.MappingNode || n.Kind == yaml.SequenceNode) && len(n.Content) == 0 {
		n.Style = yaml.FlowStyle // [] and {}
	}
	for _, child := range n.Content {
		block(child)
	}
}

// columns writes rows under a header, aligned.
func columns(w io.Writer, header []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{header}, rows...) {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t")) // t keeps the error for Flush
	}
	return t.Flush()
}

// cut shortens s to n characters. Less than 4 is no limit.
func cut(s string, n int) string {
	r := []rune(s)
	if n < 4 || len(r) <= n {
		return s
	}
	return string(r[:n-3]) + "..."
}
