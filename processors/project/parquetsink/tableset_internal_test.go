package parquetsink

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/processors/project"
)

// Earlier releases left the table set of a shadow that was given up beside that of the next one.
// It is neither swapped in nor opened, and goes with the shadow after them.
func TestTableSets_OfShadowsThatWereGivenUp(t *testing.T) {
	m := &manifest{Pipeline: "p", Sets: []*tableSet{
		{Current: true, Generations: []uint32{1}}, {Generations: []uint32{2}}, {Generations: []uint32{3}},
	}}
	producer := feed.Producer{Pipeline: "p"}
	join := func(m *manifest, generation uint32) error {
		_, _, err := m.joinSet(&project.Schema{Pipeline: "p", Generation: generation, Shadow: true}, producer)
		return err
	}
	if changed, err := m.clone().swap(2); changed || !errors.Is(err, project.ErrGivenUp) {
		t.Errorf("2 is swapped in: %t, %v", changed, err)
	}
	if err := join(m.clone(), 2); !errors.Is(err, processors.ErrFenced) {
		t.Errorf("2 is opened: %v", err)
	}
	if err := join(m.clone(), 3); err != nil {
		t.Errorf("3 is opened: %v", err)
	}
	swapped := m.clone()
	if changed, err := swapped.swap(3); !changed || err != nil || len(swapped.Sets) != 1 {
		t.Errorf("3 is swapped in: %t, %v; there are %+v", changed, err, swapped.Sets)
	}
	next := m.clone()
	if err := join(next, 4); err != nil {
		t.Errorf("4 is opened: %v", err)
	}
	var left []uint32
	for _, ts := range next.Sets {
		left = append(left, ts.Generations...)
	}
	if !slices.Equal(left, []uint32{1, 4}) {
		t.Errorf("with 4 there are %d", left)
	}
	// One that nobody has opened may still come.
	if _, err := m.clone().swap(5); err == nil || errors.Is(err, project.ErrGivenUp) {
		t.Errorf("5 is swapped in: %v", err)
	}
}
