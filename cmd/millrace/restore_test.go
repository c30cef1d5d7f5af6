package main

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/pipelines/registry"
)

func TestPipelineLine_SaysWhatBecomesOfIt(t *testing.T) {
	for _, c := range []struct {
		is   registry.Restored
		want string
		not  string
	}{
		{registry.Restored{}, "begins generation 3 when a worker runs", "resume"},
		{registry.Restored{Paused: true}, "when a worker runs; it is paused until millrace resume", "apply"},
		{registry.Restored{Lacks: true, Paused: true}, "does not begin: a container of it was not restored", "generation"},
		{registry.Restored{KeepsExpired: true}, "begins generation 3 with millrace apply --discard-expired", "worker"},
	} {
		c.is.Database, c.is.Name, c.is.Generation = "shop", "rows", 3
		if line := pipelineLine(&c.is); !strings.HasPrefix(line, "pipeline shop/rows ") || !strings.Contains(line, c.want) || strings.Contains(line, c.not) {
			t.Errorf("%+v: %s", c.is, line)
		}
	}
}
