package pipelines

import "github.com/millrace/millrace/store"

// World is what is registered: all containers and all pipelines.
type World struct {
	Containers []store.ContainerInfo
	Pipelines  []Record
}

// Existing returns what declarations are checked against.
func (w *World) Existing() Existing {
	e := Existing{Containers: w.Containers, Pipelines: make([]Pipeline, len(w.Pipelines))}
	for i := range w.Pipelines {
		e.Pipelines[i] = Pipeline{Metadata: w.Pipelines[i].Metadata(), Spec: w.Pipelines[i].Spec}
	}
	return e
}
