package registry

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
)

// filesAt is a projection into files in a directory.
func filesAt(dir string) spec.PipelineSpec {
	return spec.PipelineSpec{Project: &spec.Project{Sink: spec.Sink{Parquet: &spec.ParquetSink{Path: dir}}}}
}

// What a record knows of the rows that readers see is handed on to the next generation,
// whatever may have happened to a swap that was begun.
func TestSucceed_WhoseRowsMayBeRead(t *testing.T) {
	rows := func(generation uint32) *Former { return &Former{Generation: generation, Spec: filesAt("rows")} }
	rec := func(generation uint32, shadow, swapping bool, former, between *Former) Record {
		return Record{
			ID: "x", Database: "default", Name: "rows", Generation: generation, Spec: filesAt("rows"), Source: "s",
			Shadow: shadow, Swapping: swapping, Former: former, Between: between,
		}
	}
	elsewhere := filesAt("elsewhere")
	containers := spec.PipelineSpec{Project: &spec.Project{Sink: spec.Sink{Container: &spec.ContainerSink{}}}}
	for name, tc := range map[string]struct {
		was             Record
		next            spec.PipelineSpec
		source          feed.ResourceID
		opts            ApplyOptions
		shadow          bool
		former, between *Former
	}{
		"one that is in force":                          {was: rec(1, false, false, nil, nil), shadow: true, former: rows(1)},
		"one that is being built":                       {was: rec(2, true, false, rows(1), nil), shadow: true, former: rows(1)},
		"one that may have taken the place":             {was: rec(2, true, true, rows(1), nil), shadow: true, former: rows(1), between: rows(2)},
		"one before it may have taken the place":        {was: rec(3, true, false, rows(1), rows(2)), shadow: true, former: rows(1), between: rows(2)},
		"one that is being built in a new place":        {was: rec(2, true, false, nil, nil), shadow: true},
		"one that may be there, in a new place":         {was: rec(2, true, true, nil, nil), shadow: true, between: rows(2)},
		"one that has taken the place":                  {was: rec(2, false, false, nil, nil), shadow: true, former: rows(2)},
		"in another place":                              {was: rec(2, true, true, rows(1), nil), next: elsewhere, shadow: true},
		"of another source":                             {was: rec(2, true, true, rows(1), nil), source: "other", shadow: true},
		"from now on":                                   {was: rec(2, true, true, rows(1), nil), opts: ApplyOptions{FromNow: true}},
		"from now on, and one before it may be there":   {was: rec(3, true, false, rows(1), rows(2)), opts: ApplyOptions{FromNow: true}},
		"into containers, which have no place beside":   {was: rec(2, true, true, rows(1), nil), next: containers},
		"into another place, one before it may be here": {was: rec(3, true, false, rows(1), rows(2)), next: elsewhere, shadow: true},
	} {
		next := tc.was
		next.Spec, next.Source = filesAt("rows"), "s"
		if tc.next.Project != nil {
			next.Spec = tc.next
		}
		if tc.source != "" {
			next.Source = tc.source
		}
		next.succeed(&tc.was, &tc.opts)
		if next.Swapping || next.Shadow != tc.shadow {
			t.Errorf("%s: shadow %t, swapping %t", name, next.Shadow, next.Swapping)
		}
		if diff := cmp.Diff([]*Former{tc.former, tc.between}, []*Former{next.Former, next.Between}); diff != "" {
			t.Errorf("%s: former and between (-want +got):\n%s", name, diff)
		}
	}
}

// A generation that may have taken the place runs beside the former one and the next, as it was.
func TestBetweenRecord(t *testing.T) {
	of := func(partition uint32, lsn feed.LSN) []Start {
		return []Start{{Partition: partition, After: feed.Position{LSN: lsn}}}
	}
	was := Record{
		ID: "x", Database: "default", Name: "rows", Generation: 2, Spec: filesAt("rows"), Source: "s", From: of(0, 5), Heads: of(0, 9),
		Walks: []Walk{{Partition: 1, LSN: 7}}, Backfills: 1, BackfillScope: BackfillScope{Where: "size > 5"},
		Shadow: true, Swapping: true, Former: &Former{Generation: 1, Spec: filesAt("rows")},
	}
	next := was
	next.succeed(&was, &ApplyOptions{Backfill: true})
	next.Generation, next.From, next.Heads, next.Walks = 3, nil, of(0, 20), nil
	read, err := decodeRecord(registryKey(next.Metadata()), next.encode(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var numbers []uint32
	for _, g := range read.Generations() {
		numbers = append(numbers, g.Generation)
	}
	if diff := cmp.Diff([]uint32{3, 1, 2}, numbers); diff != "" {
		t.Errorf("generations that run (-want +got):\n%s", diff)
	}
	// Its processors are not made anew, and whether it is in its place is not known.
	between := read.GenerationRecord(2)
	want := was
	want.Former, want.Revision = nil, 1
	if diff := cmp.Diff(&want, between); diff != "" {
		t.Errorf("its record (-want +got):\n%s", diff)
	}
	if former := read.GenerationRecord(1); former.Shadow || former.Swapping || former.Between != nil {
		t.Errorf("the former one: %+v", former)
	}
}

// Whose rows readers may see: those with which a plan compares, and among which a generation
// from now on would write.
func TestSeen(t *testing.T) {
	of := func(typ string) spec.PipelineSpec {
		s := filesAt("rows")
		s.Project.Tables = spec.Tables{{Name: "sales", Table: spec.Table{
			Key: []string{"id"}, Columns: spec.Columns{{Name: "id"}, {Name: "n", Column: spec.Column{Type: typ}}},
		}}}
		return s
	}
	text, double := of("string"), of("double")
	first := &Former{Generation: 1, Spec: double}
	for name, tc := range map[string]struct {
		was  Record
		want []uint32
		fits bool // whether rows as in double find a place among all of them
	}{
		"in force":                          {Record{Generation: 1, Spec: double}, []uint32{1}, true},
		"being built":                       {Record{Generation: 2, Spec: text, Shadow: true, Former: first}, []uint32{1}, true},
		"may have taken the place":          {Record{Generation: 2, Spec: text, Shadow: true, Swapping: true, Former: first}, []uint32{1, 2}, false},
		"one before it may have":            {Record{Generation: 3, Spec: double, Shadow: true, Former: first, Between: &Former{Generation: 2, Spec: text}}, []uint32{1, 2}, false},
		"one before it may have, and fits":  {Record{Generation: 3, Spec: text, Shadow: true, Former: first, Between: &Former{Generation: 2, Spec: double}}, []uint32{1, 2}, true},
		"being built in a new place":        {Record{Generation: 2, Spec: double, Shadow: true}, nil, true},
		"may have taken the place in a new": {Record{Generation: 2, Spec: text, Shadow: true, Swapping: true}, []uint32{2}, false},
	} {
		tc.was.ID = "x"
		var seen []uint32
		for _, g := range tc.was.Seen() {
			seen = append(seen, g.Generation)
		}
		if diff := cmp.Diff(tc.want, seen); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		opts := ApplyOptions{FromNow: true}
		if reason := opts.Refusal(&tc.was, &spec.Pipeline{Spec: double}, changeMeaning); (reason == "") != tc.fits {
			t.Errorf("%s: from now on: %q", name, reason)
		}
	}
}

// Rows that may have taken the place of others may have readers: they are not thrown away unasked.
func TestUnread(t *testing.T) {
	walks := []Walk{{Partition: 0, LSN: 30}}
	for name, tc := range map[string]struct {
		rec  Record
		want bool
	}{
		"built beside":                      {Record{Walks: walks, Shadow: true}, true},
		"about to take the place":           {Record{Walks: walks, Shadow: true, Swapping: true}, false},
		"in its place":                      {Record{Walks: walks}, false},
		"built beside, of the log's begin":  {Record{Shadow: true}, false},
		"of which it is not known any more": {*(&Record{Generation: 3, Between: &Former{Generation: 2, Walks: walks}}).BetweenRecord(), false},
	} {
		if got := tc.rec.unread(); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
