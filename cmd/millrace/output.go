package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/millrace/millrace/cmd/millrace/internal/declaration"
)

// print writes v as --output asks: by table, or as JSON or YAML of what v
// marshals to.
func (a *app) print(v any, table func(w io.Writer) error) error {
	switch a.output {
	case "json":
		return writeJSON(a.out, v)
	case "yaml":
		return declaration.WriteYAML(a.out, v)
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
