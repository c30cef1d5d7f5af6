package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestImport_TheBarEndsAtTheWhole, in bytes as people write them, also where the last
// bytes of the file are no item's; and not if the import has failed.
func TestImport_TheBarEndsAtTheWhole(t *testing.T) {
	for name, c := range map[string]struct {
		all        bool
		want, none string
	}{
		"done":   {true, "(20/20 MB", "99%"},
		"failed": {false, "/20 MB", "100%"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			p := &progress{w: &out, what: "importing orders.json", unit: unitBytes, began: time.Now()}
			p.bar = newBar(&out, p.what, p.unit, 80)
			p.set(19_900_000, 20_000_000, "1,000 items")
			p.end(c.all, 20_000_000, "1,005 items")
			frames := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\r' || r == '\n' })
			last := ""
			for _, f := range frames {
				if strings.TrimSpace(f) != "" {
					last = f
				}
			}
			if !strings.Contains(last, c.want) || strings.Contains(last, c.none) || strings.Contains(last, "bytes/s") {
				t.Errorf("it ends with %q of %q", last, frames)
			}
			if c.all && !strings.Contains(last, "100%") {
				t.Errorf("it ends with %q", last)
			}
		})
	}
	t.Run("without a terminal", func(t *testing.T) {
		var out bytes.Buffer
		p := &progress{w: &out, what: "importing orders.json", unit: unitBytes} // told long ago
		p.set(19_900_000, 20_000_000, "1,000 items")
		p.end(true, 20_000_000, "1,005 items")
		want := "importing orders.json: 99% 19.9 MB, 1,000 items\nimporting orders.json: 100% 20.0 MB, 1,005 items\n"
		if out.String() != want {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	})
}
