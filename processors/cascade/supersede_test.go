package cascade

import (
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/processors"
)

// A check that was given up is made up for by one of a later change, and by the item's going,
// but not by a change that is passed over.
func TestSupersedesOfAChecker(t *testing.T) {
	k := compile(t, nil).Check(feed.Partition{}).(*Checker)
	k.fanOuts = feed.Producer{Pipeline: "category-names", Generation: 1}
	const body = `{"id":"p","categoryId":"1","categoryName":"A","price":1}`
	undo := func(pointer string) []document.Splice {
		return []document.Splice{{Path: pointer, Offset: 3, Len: 1, Old: []byte("A")}}
	}
	page := func(pipeline string, paths ...string) feed.Transaction {
		return feed.Transaction{Effect: &feed.Effect{Producer: feed.Producer{Pipeline: pipeline, Generation: 1}}, Page: &feed.Page{Paths: paths}}
	}
	// What an aggregate makes of a page is in the page's transaction.
	folded := page("category-names", "/categoryName")
	folded.Folds = []feed.Fold{{Pipeline: "totals", Generation: 1}}
	for name, c := range map[string]struct {
		t    feed.Transaction
		ch   feed.Change
		want bool
	}{
		"it is made again":                 {feed.Transaction{}, feed.Change{Op: feed.OpCreate, After: []byte(body)}, true},
		"it is replaced":                   {feed.Transaction{}, feed.Change{Op: feed.OpReplace, Before: []byte(body), After: []byte(body)}, true},
		"a copy is patched":                {feed.Transaction{}, feed.Change{Op: feed.OpReplace, Undo: undo("/categoryName"), After: []byte(body)}, true},
		"another field is patched":         {feed.Transaction{}, feed.Change{Op: feed.OpReplace, Undo: undo("/price"), After: []byte(body)}, false},
		"it goes":                          {feed.Transaction{}, feed.Change{Op: feed.OpDelete, Before: []byte(body)}, true},
		"a page of its own cascade":        {page("category-names", "/categoryName"), feed.Change{Op: feed.OpReplace, Undo: undo("/categoryName"), After: []byte(body)}, false},
		"a page of another pipeline":       {page("x", "/price"), feed.Change{Op: feed.OpReplace, Undo: undo("/price"), After: []byte(body)}, false},
		"what an aggregate makes of it":    {folded, feed.Change{Op: feed.OpCreate, After: []byte(body)}, true},
		"and of a page of another":         {page("x", "/price"), feed.Change{Op: feed.OpCreate, After: []byte(body)}, true},
		"a field that it sets there":       {page("x", "/price"), feed.Change{Op: feed.OpReplace, Undo: undo("/categoryId"), After: []byte(body)}, true},
		"a field that means nothing there": {folded, feed.Change{Op: feed.OpReplace, Undo: undo("/count"), After: []byte(body)}, false},
	} {
		c.t.Changes = []feed.Change{c.ch}
		if got := k.Supersedes(&processors.Part{Commit: &feed.Commit{LSN: 7}, Transaction: &c.t, Changes: c.t.Changes}, 0); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A fan-out that was given up is made up for by the next one of its source.
func TestSupersedesOfAFanOut(t *testing.T) {
	f := compile(t, nil).FanOut(feed.Partition{}).(*FanOut)
	const a, b = `{"id":"1","type":"category","name":"A"}`, `{"id":"1","type":"category","name":"B"}`
	for name, c := range map[string]struct {
		ch   feed.Change
		want bool
	}{
		"a rename":                {feed.Change{Op: feed.OpReplace, Before: []byte(a), After: []byte(b)}, true},
		"another field":           {feed.Change{Op: feed.OpReplace, Before: []byte(a), After: []byte(`{"id":"1","type":"category","name":"A","x":1}`)}, false},
		"with keep it goes":       {feed.Change{Op: feed.OpDelete, Before: []byte(a)}, false},
		"one that cannot be read": {feed.Change{Op: feed.OpReplace, After: []byte(`{}`), Undo: []document.Splice{{Path: "/name", Offset: 9, Len: 9}}}, false},
	} {
		if got := f.Supersedes(&processors.Part{Commit: &feed.Commit{LSN: 7}, Changes: []feed.Change{c.ch}}, 0); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
