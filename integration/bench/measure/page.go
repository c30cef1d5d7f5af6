//go:build linux

package measure

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// A page of documentation holds each table between two lines of its own:
//
//	<!-- bench:writes -->
//	…
//	<!-- /bench:writes -->
//
// What stands between them is replaced; everything else is people's.
func begin(id string) string { return "<!-- bench:" + id + " -->\n" }
func end(id string) string   { return "<!-- /bench:" + id + " -->\n" }

// machineID marks the description of the machine.
const machineID = "machine"

// WritePage puts the report's tables into the page at path, between their
// markers. A table that has none is appended under its title; a page that does
// not exist is begun. Tables of other cases stay as they are.
func (r *Report) WritePage(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte("# Benchmarks\n"), nil
	}
	if err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	page := string(data)
	if page, err = replace(page, machineID, "Where", r.Machine.Markdown); err != nil {
		return fmt.Errorf("write the tables to %s: %w", path, err)
	}
	for _, t := range r.Tables {
		if page, err = replace(page, t.ID, t.Title, t.Markdown); err != nil {
			return fmt.Errorf("write the tables to %s: %w", path, err)
		}
	}
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		return fmt.Errorf("write the tables: %w", err)
	}
	return nil
}

// replace puts what write writes between the markers of id.
func replace(page, id, title string, write func(io.Writer) error) (string, error) {
	var text strings.Builder
	if err := write(&text); err != nil {
		return "", err
	}
	before, rest, found := strings.Cut(page, begin(id))
	if !found {
		return fmt.Sprintf("%s\n## %s\n\n%s%s%s", page, title, begin(id), text.String(), end(id)), nil
	}
	_, after, found := strings.Cut(rest, end(id))
	if !found {
		return "", fmt.Errorf("the line %q is missing", strings.TrimSpace(end(id)))
	}
	return before + begin(id) + text.String() + end(id) + after, nil
}
