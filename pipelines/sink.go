package pipelines

import (
	"fmt"

	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/pgsink"
	"github.com/millrace/millrace/store"
)

// newSink returns the sink that a projection declares. Callers close it.
func newSink(client *store.Client, rec *Record, b *bound) (project.Sink, error) {
	switch sink := &rec.Spec.Project.Sink; {
	case sink.Container != nil:
		return newContainerSink(client, rec, b)
	case sink.Parquet != nil:
		return newParquetSink(sink.Parquet)
	case sink.Postgres != nil:
		return pgsink.New(pgsink.Config{DSNEnv: sink.Postgres.DSNEnv, Schema: sink.Postgres.Schema})
	}
	return nil, fmt.Errorf("pipeline %s has no sink that this release knows", rec.Metadata())
}

// newContainerSink returns a sink of the containers that a record was registered
// for.
func newContainerSink(client *store.Client, rec *Record, b *bound) (project.Sink, error) {
	tables := map[string]*store.Container{}
	for i, name := range rec.Spec.tables() {
		c, err := client.Open(*b.tables[i])
		if err != nil {
			return nil, err
		}
		tables[name] = c
	}
	rejects := rec.Spec.Project.Sink.Container.Rejects
	return project.NewContainerSink(tables, tables[rejects]), nil
}
