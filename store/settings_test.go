package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store"
)

// An index on what no item holds would have no entries, so it is refused where it is declared. A container that
// has one goes on.
func TestContainerSpec_SystemPropertiesHaveNoIndex(t *testing.T) {
	spec := store.ContainerSpec{
		PartitionKey: []string{"/shop"},
		Indexes:      []string{"/_ts", "/price", "/_attachments/x", "/_tsx", "/a/_ts", "/_self/*"},
	}
	spec.Normalize()
	var fields []string
	for _, err := range spec.Check() {
		if f, ok := errors.AsType[*store.FieldError](err); ok {
			fields = append(fields, f.Field)
		}
	}
	if diff := cmp.Diff([]string{"indexes[0]", "indexes[2]", "indexes[5]"}, fields); diff != "" {
		t.Error(diff)
	}
	info := &store.ContainerInfo{Spec: spec}
	var settings store.Settings
	if settings, _ = settings.Wish(info); len(settings.Indexes) != len(spec.Indexes) {
		t.Errorf("a container that has such indexes gets %v", settings.Indexes)
	}
}
