//go:build linux

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/bench/chart"
	"github.com/millrace/millrace/integration/bench/dataset"
)

// acked returns acks of two partitions, a and b, at so many milliseconds after the beginning.
func acked(a, b []int) *acks {
	all := newAcks()
	all.began = all.began.Add(-time.Minute)
	for partition, at := range map[string][]int{"a": a, "b": b} {
		for _, ms := range at {
			all.at[partition] = append(all.at[partition], time.Duration(ms)*time.Millisecond)
		}
	}
	return all
}

func TestLongestGap(t *testing.T) {
	all := acked([]int{100, 110, 900, 910, 59_990}, []int{100, 105, 400, 1500, 59_995})
	both := []string{"a", "b"}
	const ms = time.Millisecond
	for _, c := range []struct {
		of       []string
		from, to time.Duration
		want     gap
	}{
		{[]string{"a"}, 112 * ms, 800 * ms, gap{"a", 110 * ms, 900 * ms}}, // counts from the last one before
		{both, 112 * ms, 800 * ms, gap{"b", 400 * ms, 1500 * ms}},
		{both, 112 * ms, 300 * ms, gap{"a", 110 * ms, 900 * ms}}, // what begins later is of the next event
		{[]string{"b"}, 0, 50 * ms, gap{"b", 0, 100 * ms}},
	} {
		if got := all.longest(c.of, c.from, c.to); got != c.want {
			t.Errorf("%v from %s to %s: %+v, want %+v", c.of, c.from, c.to, got, c.want)
		}
	}
	if got := acked(nil, nil).longest([]string{"a"}, time.Second, 2*time.Second).length(); got < 50*time.Second {
		t.Errorf("a gap that lasts still is %s long", got)
	}
}

func TestCountsAndErrors(t *testing.T) {
	all := acked([]int{90, 100, 150, 310, 400}, []int{200, 399})
	of, others := all.counts([]string{"a"}, 100*time.Millisecond, 100*time.Millisecond, 3)
	if !slices.Equal(of, []int{2, 0, 1}) || !slices.Equal(others, []int{0, 1, 1}) {
		t.Errorf("counts %v and %v", of, others)
	}
	all.note("a", 0, errors.New("no"))
	if got := all.failed(0, all.now()+1); len(got) != 1 || len(all.at["a"]) != 5 {
		t.Errorf("%d errors, %d acknowledgements", len(got), len(all.at["a"]))
	}
}

func TestLatenciesAreOfThoseAnswered(t *testing.T) {
	all := newAcks()
	all.began = all.began.Add(-time.Second)
	all.note("a", 0, nil)
	all.note("b", 0, errors.New("no"))
	all.note("b", all.now(), nil)
	end := all.now() + 1
	if got := all.latencies(0, end); len(got) != 2 || got[0] < time.Second || got[1] >= time.Second {
		t.Errorf("latencies %v", got)
	}
	if got := all.latencies(end, end+time.Second); len(got) != 0 {
		t.Errorf("latencies of nobody: %v", got)
	}
}

func TestPictureIsXML(t *testing.T) {
	o := &takeovers{outages: outages{b: &bench{cfg: &config{}}, fleet: &fleet{}, after: takeoverAfter}}
	kinds := o.kinds()
	steps := make([]int, o.picture(takeoverLabel, kinds).Steps())
	for i := range kinds {
		o.done = append(o.done, happened{event: kinds[i].event, of: steps, others: steps, returnAfter: 3 * time.Second})
	}
	if n := linesOf(t, o.picture(takeoverLabel, kinds)); n != 6 {
		t.Errorf("%d lines, want two for each event", n)
	}
	set, err := dataset.New(dataset.Config{Products: 1000})
	if err != nil {
		t.Fatal(err)
	}
	s := &splits{set: set}
	steps = make([]int, s.picture().Steps())
	s.done = []splitSeen{{counts: steps}, {counts: steps}}
	if n := linesOf(t, s.picture()); n != 1 {
		t.Errorf("%d lines, want that of one split", n)
	}
}

// linesOf counts the lines of a picture, which must be XML.
func linesOf(t *testing.T, c *chart.Chart) (lines int) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(c.SVG()))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
}
