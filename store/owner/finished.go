package owner

import (
	"container/heap"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// finishedFanOuts are the records of fan-outs that are done and not yet forgotten, as of
// the last commit. Without it, forgetting them would scan the engine, which still holds
// the marks of all that were forgotten before.
type finishedFanOuts struct {
	producers map[string]*producerFanOuts
	notes     []finishedNote // of the commit that is being applied
}

// producerFanOuts are the records of one producer, by their versions: one fan-out that stands still
// keeps the records of all that are done behind it, as many as the source has items, and each that
// begins asks which may go.
type producerFanOuts struct {
	records map[string]*doneFanOut // by record key
	oldest  doneFanOuts
}

// doneFanOut is the record of a fan-out that is done.
type doneFanOut struct {
	key      string
	position feed.Position
	place    int // in oldest
}

// finishedNote is a record that a commit writes or drops.
type finishedNote struct {
	producer, key string
	position      feed.Position
	done          bool // false: it goes on, or is dropped
}

// loadFinished reads what the engine has.
func loadFinished(p *engine.Partition) (*finishedFanOuts, error) {
	f := &finishedFanOuts{producers: map[string]*producerFanOuts{}}
	snap := p.Snapshot()
	defer snap.Close()
	for r, err := range snap.Records(recordFanOut, nil) {
		if err != nil {
			return nil, err
		}
		record, err := decodeFanOut(r.Value)
		if err != nil {
			return nil, err
		}
		producer, _, _ := strings.Cut(string(r.Key), "\x00")
		f.note(producer, string(r.Key), record.Position, record.Done)
	}
	f.applyNotes()
	return f, nil
}

// note keeps what a commit says of a record until the commit is applied. A commit that asks
// what is finished below a position gets the answer as of the commit before it.
func (f *finishedFanOuts) note(producer, key string, position feed.Position, done bool) {
	f.notes = append(f.notes, finishedNote{producer, key, position, done})
}

// applyNotes takes over what was noted.
func (f *finishedFanOuts) applyNotes() {
	for i := range f.notes {
		if n := &f.notes[i]; n.done {
			f.put(n)
		} else {
			f.drop(n)
		}
	}
	f.notes = f.notes[:0]
}

func (f *finishedFanOuts) put(n *finishedNote) {
	of := f.producers[n.producer]
	if of == nil {
		of = &producerFanOuts{records: map[string]*doneFanOut{}}
		f.producers[n.producer] = of
	}
	r := of.records[n.key]
	if r == nil {
		r = &doneFanOut{key: n.key, position: n.position}
		of.records[n.key] = r
		heap.Push(&of.oldest, r)
		return
	}
	r.position = n.position
	heap.Fix(&of.oldest, r.place)
}

func (f *finishedFanOuts) drop(n *finishedNote) {
	of := f.producers[n.producer]
	if of == nil || of.records[n.key] == nil {
		return
	}
	heap.Remove(&of.oldest, of.records[n.key].place)
	if delete(of.records, n.key); len(of.records) == 0 {
		delete(f.producers, n.producer)
	}
}

// below returns the keys of a producer's records of versions below a position. It takes as long as
// there are such keys.
func (f *finishedFanOuts) below(producer string, position feed.Position) []string {
	if of := f.producers[producer]; of != nil {
		return of.oldest.below(nil, 0, position)
	}
	return nil
}

// doneFanOuts is a heap with the oldest version on top.
type doneFanOuts []*doneFanOut

// below appends the keys of the records of versions below a position, from a place downwards.
func (d doneFanOuts) below(keys []string, place int, position feed.Position) []string {
	if place >= len(d) || !d[place].position.Before(position) {
		return keys // and nothing under it is older
	}
	keys = append(keys, d[place].key)
	return d.below(d.below(keys, 2*place+1, position), 2*place+2, position)
}

func (d doneFanOuts) Len() int           { return len(d) }
func (d doneFanOuts) Less(i, j int) bool { return d[i].position.Before(d[j].position) }

func (d doneFanOuts) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// Push and Pop are heap's: they add and take away the last one.
func (d *doneFanOuts) Push(x any) {
	r := x.(*doneFanOut)
	r.place = len(*d)
	*d = append(*d, r)
}

func (d *doneFanOuts) Pop() any {
	last := len(*d) - 1
	r := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return r
}
