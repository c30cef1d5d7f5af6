package spec

import (
	"encoding/json"
	"slices"
)

// Test is a document that says what pipelines are to make of changes: given these
// items, after these changes, those items and rows are expected. millrace test runs
// it, without a server.
type Test struct {
	// APIVersion is millrace/v1.
	APIVersion string `json:"apiVersion" yaml:"apiVersion"`
	// Kind is Test.
	Kind string `json:"kind" yaml:"kind"`
	// Metadata names the test. Its database is that of the containers and pipelines
	// that it names.
	Metadata Metadata `json:"metadata" yaml:"metadata"`
	// Spec tells what happens and what is expected.
	Spec TestSpec `json:"spec" yaml:"spec"`

	places places
}

// TestSpec tells what happens in a test and what is expected.
type TestSpec struct {
	// Pipelines are the names of those that run. Default: all that are declared beside
	// the test, in its database.
	Pipelines []string `json:"pipelines,omitempty" yaml:"pipelines,omitempty"`
	// Given are the items that are there before the pipelines are registered, by
	// container.
	Given TestItems `json:"given,omitempty" yaml:"given,omitempty"`
	// Steps are done one after the other. The first that fails ends the test.
	Steps []TestStep `json:"steps" yaml:"steps"`
}

// TestStep is a change and what is expected of it, once every pipeline has come to
// rest.
type TestStep struct {
	// Name says what the step shows.
	Name string `json:"name,omitempty" yaml:"name,omitempty"`
	// Change is what clients write: operations on items, or a list of such, one after
	// the other in their order. The pipelines come to rest before another operation, or
	// the same one on another container, so that the outcome does not depend on who is
	// faster. Default: nothing is written.
	Change TestChanges `json:"change,omitempty" yaml:"change,omitempty"`
	// Expect are items that must be there, by container. Fields that are written must
	// be equal, also those in objects and in the elements of arrays, of which there must
	// be as many; others may be there too, unless exact is true. null means that the
	// field is not there, or null.
	Expect TestItems `json:"expect,omitempty" yaml:"expect,omitempty"`
	// Absent are items that must not be there, by container: their ids and partition
	// keys.
	Absent TestItems `json:"absent,omitempty" yaml:"absent,omitempty"`
	// ExpectRows are all rows of tables, by pipeline and table, in any order; [] means
	// that there are none. Columns that are written must be equal, those of the key
	// among them.
	ExpectRows TestRows `json:"expectRows,omitempty" yaml:"expectRows,omitempty"`
	// Exact says that the items that are expected have no other fields, but for those
	// whose names begin with _, and rows no other columns. Default false.
	Exact bool `json:"exact,omitempty" yaml:"exact,omitempty"`
}

// TestChange is what clients write, by container. Its operations are carried out in
// the order in which they are written.
type TestChange struct {
	// Create are items that are made; it is a failure if one is there.
	Create TestItems `json:"create,omitempty" yaml:"create,omitempty"`
	// Replace are items that take the place of those with their ids and partition
	// keys; it is a failure if one is not there.
	Replace TestItems `json:"replace,omitempty" yaml:"replace,omitempty"`
	// Upsert are items that are made, or take the place of those that are there.
	Upsert TestItems `json:"upsert,omitempty" yaml:"upsert,omitempty"`
	// Patch are ids and partition keys of items, and the fields that they get, by
	// path, such as tags[0].name; null removes a field.
	Patch TestItems `json:"patch,omitempty" yaml:"patch,omitempty"`
	// Delete are ids and partition keys of items that go.
	Delete TestItems `json:"delete,omitempty" yaml:"delete,omitempty"`

	// Operations are all of them, in the order of the document.
	Operations []TestOperation `json:"-" yaml:"-"`
}

// TestChanges are done one after the other. One alone is written without a list.
type TestChanges []TestChange

// TestItems are items, or parts of them, by container, in the order of the document.
type TestItems []TestContainer

// TestContainer are items of one container.
type TestContainer struct {
	Container string
	Items     []TestItem
}

// TestItem is an item, or a part of one, as JSON.
type TestItem struct {
	Body json.RawMessage

	// Path of it in the document.
	Path string `json:"-" yaml:"-"`
}

// TestRows are rows by pipeline and table, in the order of the document.
type TestRows []TestTable

// TestTable are the rows of one table.
type TestTable struct {
	Pipeline, Table string
	Rows            []TestItem

	// Path of the table in the document.
	Path string `json:"-" yaml:"-"`
}

// TestOperation is what a client does to one item.
type TestOperation struct {
	Kind      string // create, replace, upsert, patch or delete
	Container string
	Item      TestItem
}

// Containers are the names of all containers that a test names, in order.
func (s *TestSpec) Containers() []string {
	var names []string
	add := func(items TestItems) {
		for i := range items {
			names = append(names, items[i].Container)
		}
	}
	add(s.Given)
	for i := range s.Steps {
		step := &s.Steps[i]
		add(step.Expect)
		add(step.Absent)
		for j := range step.Change {
			for _, o := range step.Change[j].Operations {
				names = append(names, o.Container)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// At returns the place of a field in its file, or that of the nearest field around it.
func (t *Test) At(field string) Place { return t.places.at(field) }
