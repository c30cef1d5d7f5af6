package owner

import (
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/engine"
)

// finishedFanOuts are the records of fan-outs that are done and not yet forgotten, as of
// the last commit. Without it, forgetting them would scan the engine, which still holds
// the marks of all that were forgotten before.
type finishedFanOuts struct {
	positions map[string]map[string]feed.Position // by producer and record key
	notes     []finishedNote                      // of the commit that is being applied
}

// finishedNote is a record that a commit writes or drops.
type finishedNote struct {
	producer, key string
	position      feed.Position
	done          bool // false: it goes on, or is dropped
}

// loadFinished reads what the engine has.
func loadFinished(p *engine.Partition) (*finishedFanOuts, error) {
	f := &finishedFanOuts{positions: map[string]map[string]feed.Position{}}
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

// applyNotes adds to positions what was noted.
func (f *finishedFanOuts) applyNotes() {
	for _, n := range f.notes {
		of := f.positions[n.producer]
		switch {
		case n.done && of == nil:
			f.positions[n.producer] = map[string]feed.Position{n.key: n.position}
		case n.done:
			of[n.key] = n.position
		default:
			delete(of, n.key)
			if len(of) == 0 {
				delete(f.positions, n.producer)
			}
		}
	}
	f.notes = f.notes[:0]
}

// below returns the keys of a producer's records of versions below a position.
func (f *finishedFanOuts) below(producer string, position feed.Position) []string {
	var keys []string
	for key, at := range f.positions[producer] {
		if at.Before(position) {
			keys = append(keys, key)
		}
	}
	return keys
}
