package registry

import (
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// World is what is registered: all containers and all pipelines.
type World struct {
	Containers []store.ContainerInfo
	Pipelines  []Record
}

// Existing returns what declarations are checked against.
func (w *World) Existing() spec.Existing {
	e := spec.Existing{Containers: w.Containers, Pipelines: make([]spec.Pipeline, len(w.Pipelines))}
	for i := range w.Pipelines {
		e.Pipelines[i] = spec.Pipeline{Metadata: w.Pipelines[i].Metadata(), Spec: w.Pipelines[i].Spec}
	}
	return e
}
