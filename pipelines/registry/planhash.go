package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors"
	"github.com/millrace/millrace/store"
)

// planHashBytes is how much of the hash is printed: nobody forges it, so it must
// only tell plans apart.
const planHashBytes = 8

// PlanError says that to apply declarations would not do what a plan said,
// because another definition, generation or index came between.
type PlanError struct{ Plan, Now string }

func (e *PlanError) Error() string {
	return fmt.Sprintf("the plan %s is not what would be done now, which is plan %s: a definition, generation or index has changed since; look at the plan again", e.Plan, e.Now)
}

// PlanHash identifies what applying declared in the world w would do: what is
// declared, and the definitions, generations and indexes that are there. How many
// items there are, and how far pipelines have come, is no part of it.
func PlanHash(declared *spec.Resources, w World) string {
	type container struct {
		Database, Name string
		ID             feed.ResourceID
		State          store.ContainerState
		Spec           store.ContainerSpec
		Indexes        []string
	}
	type pipeline struct {
		Database, Name, ID string
		Generation         uint32
		Spec               *spec.PipelineSpec
		Source, Target     feed.ResourceID
		Tables             []feed.ResourceID
	}
	var all struct {
		Declared  []container
		Pipelines []pipeline
		There     []container
		Running   []pipeline
	}
	for i := range declared.Containers {
		d := &declared.Containers[i]
		all.Declared = append(all.Declared, container{Database: d.Metadata.Database, Name: d.Metadata.Name, Spec: d.Spec})
	}
	for i := range declared.Pipelines {
		d := &declared.Pipelines[i]
		all.Pipelines = append(all.Pipelines, pipeline{Database: d.Metadata.Database, Name: d.Metadata.Name, Spec: &d.Spec})
	}
	for i := range w.Containers {
		c := &w.Containers[i]
		if c.Database == processors.DeadLetterDatabase {
			continue // it comes by itself
		}
		all.There = append(all.There, container{c.Database, c.Name, c.ID, c.State, c.Spec, slices.Sorted(slices.Values(c.IndexesWanted))})
	}
	for i := range w.Pipelines {
		r := &w.Pipelines[i]
		all.Running = append(all.Running, pipeline{r.Database, r.Name, r.ID, r.Generation, &r.Spec, r.Source, r.Target, r.Tables})
	}
	// In which order they are declared makes no difference.
	slices.SortFunc(all.Declared, func(a, b container) int { return strings.Compare(a.Database+"/"+a.Name, b.Database+"/"+b.Name) })
	slices.SortFunc(all.Pipelines, func(a, b pipeline) int { return strings.Compare(a.Database+"/"+a.Name, b.Database+"/"+b.Name) })
	data, err := json.Marshal(all)
	if err != nil {
		panic(fmt.Sprintf("registry: the plan of %+v cannot be encoded: %v", declared, err))
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:planHashBytes])
}

// CheckPlan compares with the plan that was looked at.
func (o *ApplyOptions) CheckPlan(declared *spec.Resources, w World) error {
	if o.Plan == "" {
		return nil
	}
	if now := PlanHash(declared, w); now != o.Plan {
		return &PlanError{o.Plan, now}
	}
	return nil
}
