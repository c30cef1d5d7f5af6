package registry

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/pipelines/spec"
)

// change is what a declaration means for the record that is there.
type change uint8

// What a declaration can mean for a record.
const (
	ChangeNew         change = iota // there is no record
	ChangeNone                      // it says the same in the same words
	changeCosmetic                  // it says the same in other words
	changeOnline                    // the generation goes on in another way
	changeContainers                // a container was made again
	changeMeaning                   // what was written does not hold any more
	changeExpressions               // it says the same, and expressions mean something else
)

// Change tells what a declaration, and the containers that it finds, mean for r.
func (r *Record) Change(spec *spec.PipelineSpec, b *Bound, opts *ApplyOptions) change {
	if r.ID == "" {
		return ChangeNew
	}
	// From the least to the most that follows. Take a projection with the column
	// n: qty, whose declaration now says
	//
	//	n: qty, spaces added           cosmetic    the record alone
	//	n: qty, and m: price too       online      m is backfilled beside changes
	//	n: qty * 2                     meaning     a new generation, if asked for
	//	n: qty, container made again   containers  a new generation, always
	//
	// An older meaning of expressions comes first: such a record may look the
	// same and still has to be computed anew.
	same := r.sameContainers(b)
	switch {
	case r.turned() && r.Spec.GoesOnAs(spec, opts.Backfill):
		return changeExpressions
	case same && r.Spec.SameText(spec):
		return ChangeNone
	case same && r.Spec.SameMeaning(spec):
		return changeCosmetic
	case r.Spec.GoesOnAs(spec, opts.Backfill):
		if same {
			return changeOnline
		}
		return changeContainers
	}
	return changeMeaning
}

// RefusedError says that declarations are right, and that to apply them would
// surprise: nothing was changed. Its text says which options make them welcome.
type RefusedError struct{ Findings spec.Findings }

func (e *RefusedError) Error() string { return e.Findings.Error() }

// Refuse returns what of the declarations may not be done without being asked for,
// nil if all may.
func (o *ApplyOptions) Refuse(declared *spec.Resources, w World) error {
	if o.Backfill && o.FromNow {
		return errors.New("a backfill begins with what is there, --from-now leaves it out: choose one")
	}
	var findings spec.Findings
	for i := range declared.Pipelines {
		d := &declared.Pipelines[i]
		var there Record
		if at := slices.IndexFunc(w.Pipelines, func(r Record) bool { return r.Metadata() == d.Metadata }); at >= 0 {
			there = w.Pipelines[at]
		}
		// The refusal is looked for before anything is made, so containers that are
		// declared beside the pipeline are not there yet.
		what := changeContainers // those that are not there are made
		if b, gone := BoundBy(d, w.Containers); gone == "" || there.ID == "" {
			what = there.Change(&d.Spec, &b, o)
		}
		if reason := o.Refusal(&there, d, what); reason != "" {
			findings.Add(d.At("spec"), "%s", reason)
		}
	}
	if len(findings) == 0 {
		return nil
	}
	return &RefusedError{findings.Sorted()}
}

// reshapes tells whether rows among which a generation from now on would write have no place among those of s. It
// writes among those that readers see, whichever they are.
func (r *Record) reshapes(s *spec.PipelineSpec) bool {
	seen := r.Seen()
	if len(seen) == 0 {
		return r.Spec.Reshapes(s)
	}
	return slices.ContainsFunc(seen, func(g *Record) bool { return g.Spec.Reshapes(s) })
}

// Refusal says why a pipeline may not be registered as declared, "" if it may.
func (o *ApplyOptions) Refusal(there *Record, d *spec.Pipeline, what change) string {
	switch {
	case what == ChangeNone || what == changeCosmetic || what == changeOnline:
		return ""
	case o.FromNow && d.Spec.Kind() == spec.AggregateKind:
		return fmt.Sprintf("pipeline %s: an aggregate cannot begin now: it would not know the items that are there, and its fields would be wrong from the first of them that changes; apply it with --backfill", d.Metadata)
	case o.FromNow && what == changeMeaning && there.reshapes(&d.Spec):
		return fmt.Sprintf("pipeline %s: the rows that are there do not fit into the tables as declared: another key, or columns that are gone or of another type; apply it with --backfill to build them anew", d.Metadata)
	case what == changeMeaning && !o.Backfill && !o.FromNow:
		return fmt.Sprintf("pipeline %s: what it has written as generation %d does not hold under this declaration%s; %s",
			d.Metadata, there.Generation, there.Spec.Reasons(&d.Spec), d.Spec.Choices())
	}
	return ""
}
