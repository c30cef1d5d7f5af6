package project_test

import (
	"bufio"
	"compress/gzip"
	"os"
	"testing"

	"github.com/millrace/millrace/feed"
)

// BenchmarkRowsOf makes the rows of an order with five lines.
func BenchmarkRowsOf(b *testing.B) {
	p := compile(b, analytics(b))
	k, body := key(b, "c1"), []byte(orderItem("o1", day, "BK-T79Y-46", "BK-R50B-62", "HL-U509", "SJ-0194-M", "CA-1098"))
	rows := 0
	b.ReportAllocs()
	for b.Loop() {
		made, rejects := p.RowsOf(k, "o1", body)
		if len(rejects) > 0 {
			b.Fatal(rejects[0].Reason)
		}
		rows += len(made)
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}

func webstore(b *testing.B) [][]byte {
	b.Helper()
	path := os.Getenv("MILLRACE_WEBSTORE")
	if path == "" {
		b.Skip("MILLRACE_WEBSTORE names no file")
	}
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		b.Fatal(err)
	}
	var items [][]byte
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		items = append(items, append([]byte{}, lines.Bytes()...))
	}
	return items
}

// BenchmarkWebStore makes the rows of all customers and orders.
func BenchmarkWebStore(b *testing.B) {
	items := webstore(b)
	p := compile(b, analytics(b))
	rows := 0
	b.ReportAllocs()
	for b.Loop() {
		for _, body := range items {
			made, rejects := p.RowsOf(feed.PartitionKey{}, "x", body)
			if len(rejects) > 0 {
				b.Fatal(rejects[0].Column, rejects[0].Reason, string(body))
			}
			rows += len(made)
		}
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(rows)/float64(b.N), "rows/op")
}
