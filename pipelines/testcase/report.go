package testcase

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/pipelines/plan"
	"github.com/millrace/millrace/pipelines/spec"
)

// Report is the outcome of a run of tests.
type Report struct {
	Passed   int           `json:"passed"`
	Failed   int           `json:"failed"`
	Duration time.Duration `json:"-"`
	Seconds  float64       `json:"seconds"` // Duration in seconds
	Tests    []Result      `json:"tests"`
}

// Result is the outcome of one test.
type Result struct {
	Database string `json:"database"`
	Name     string `json:"name"`
	// Place is where the test stands, as file:line:column.
	Place   string  `json:"place"`
	Passed  bool    `json:"passed"`
	Steps   int     `json:"steps"` // that it has
	Seconds float64 `json:"seconds"`
	// Failures are what was not as expected, of one step.
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is an item, row or pipeline that is not as expected.
type Failure struct {
	// Step counts from 1; 0 is what happens before the first.
	Step     int    `json:"step"`
	StepName string `json:"stepName,omitempty"`
	// Place is where it is expected, as file:line:column.
	Place string `json:"place"`
	// What is the item, such as product ["c1"]/p1, the row or the pipeline.
	What string `json:"what"`
	// Message says what is wrong, unless that is Differences.
	Message string `json:"message,omitempty"`
	// Item is an item or row that should not be there.
	Item        json.RawMessage `json:"item,omitempty"`
	Differences []Difference    `json:"differences,omitempty"`
}

// Difference is a field that is not as expected. A side that has no such field is
// empty.
type Difference struct {
	Path  string          `json:"path"`
	Place string          `json:"place"`
	Want  json.RawMessage `json:"want,omitempty"`
	Is    json.RawMessage `json:"is,omitempty"`
}

func (r *Report) add(one *Result) {
	if one.Passed {
		r.Passed++
	} else {
		r.Failed++
	}
	r.Tests = append(r.Tests, *one)
}

// PrintSum writes how many tests have passed.
func (r *Report) PrintSum(w io.Writer) error {
	text := format.Plural(int64(r.Passed), "test", "tests") + " passed"
	if r.Failed > 0 {
		text = fmt.Sprintf("%d of %s failed", r.Failed, format.Plural(int64(r.Passed+r.Failed), "test", "tests"))
	}
	_, err := fmt.Fprintf(w, "%s in %s\n", text, r.Duration.Round(10*time.Millisecond))
	return err
}

// Print writes how the test has ended.
func (r *Result) Print(w io.Writer) error {
	var b strings.Builder
	name := spec.Metadata{Name: r.Name, Database: r.Database}
	verdict, took := "ok  ", time.Duration(r.Seconds*float64(time.Second)).Round(time.Millisecond)
	if !r.Passed {
		verdict = "FAIL"
	}
	fmt.Fprintf(&b, "%s  %s  (%s, %s)\n", verdict, name.Title(), format.Plural(int64(r.Steps), "step", "steps"), took)
	step := -1
	for i := range r.Failures {
		f := &r.Failures[i]
		if f.Step != step {
			step = f.Step
			fmt.Fprintf(&b, "      %s\n", f.step())
		}
		f.print(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// step names the step of a failure.
func (f *Failure) step() string {
	switch {
	case f.Step == 0:
		return "what is given"
	case f.StepName == "":
		return fmt.Sprintf("step %d", f.Step)
	}
	return fmt.Sprintf("step %d: %s", f.Step, f.StepName)
}

func (f *Failure) print(b *strings.Builder) {
	fmt.Fprintf(b, "      %s: %s", f.Place, f.What)
	if f.Message != "" {
		fmt.Fprintf(b, ": %s", f.Message)
	}
	b.WriteByte('\n')
	if f.Item != nil {
		fmt.Fprintf(b, "          %s\n", plan.Short(f.Item))
	}
	for i := range f.Differences {
		d := &f.Differences[i]
		fmt.Fprintf(b, "        %s: %s\n          want %s\n          is   %s\n", d.Place, d.Path, plan.Short(d.Want), plan.Short(d.Is))
	}
}
