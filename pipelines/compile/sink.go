package compile

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/processors/project"
	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/pgsink"
	"github.com/millrace/millrace/store"
)

// SinkLimits tunes the sinks of projections. Zero fields take their defaults.
type SinkLimits struct {
	// Roots are the directories below which pipelines may have Parquet files written,
	// as this process sees them: everything else is refused, and so are the folders
	// of Millrace itself. A path that is not absolute is below the first one of each
	// worker, where all are to see the same files. Without any it is the directory dir.
	Roots []string `yaml:"roots"`

	// Variables are the environment variables of this process that sinks may name
	// (accessKeyEnv, secretKeyEnv, dsnEnv): names, or beginnings with * behind them, such
	// as REPORTS_*. MILLRACE_... is never among them, but for MILLRACE_..._DSN in dsnEnv.
	// Who declares a sink chooses the server that gets the values. Without any: an access
	// key whose name ends in ACCESS_KEY, ACCESS_KEY_ID or ACCESS_ID, a secret key whose
	// name ends in SECRET_KEY, SECRET_ACCESS_KEY or SECRET, any connection string, and of
	// AWS_... only AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, of AZURE_... nothing.
	// With some, a bucket without accessKeyEnv and secretKeyEnv, for which the AWS
	// identity of this process would be used, needs those two among them.
	Variables []string `yaml:"variables"`

	// Own are the folders of the process itself, which no sink may touch.
	Own []string `yaml:"-"`

	// Parquet tunes what writes files.
	Parquet parquetsink.Config `yaml:"parquet"`

	// Postgres tunes what writes to PostgreSQL.
	Postgres PostgresLimits `yaml:"postgres"`
}

// PostgresLimits bound what a projection asks of a PostgreSQL server. Zero fields
// take their defaults.
type PostgresLimits struct {
	// ConnectionsMax bounds the connections with which one pipeline writes in this
	// process at a time; readers have their own. Default 8.
	ConnectionsMax int `yaml:"connectionsMax"`
}

// Check returns what is wrong with the limits, nil if nothing is.
func (l *SinkLimits) Check() error {
	var errs []error
	p := &l.Parquet
	for _, one := range []struct {
		key   string
		value int64
	}{
		{"parquet.bufferRowsMax", int64(p.BufferRowsMax)},
		{"parquet.bufferBytesMax", int64(p.BufferBytesMax)},
		{"parquet.commitInterval", int64(p.CommitInterval)},
		{"parquet.fileRowsMax", int64(p.FileRowsMax)},
		{"parquet.fileBytesMax", int64(p.FileBytesMax)},
		{"parquet.grace", int64(p.Grace)},
		{"parquet.indexBytesMax", int64(p.IndexBytesMax)},
		{"postgres.connectionsMax", int64(l.Postgres.ConnectionsMax)},
	} {
		if one.value < 0 {
			errs = append(errs, fmt.Errorf("sinks.%s is negative", one.key))
		}
	}
	for _, pattern := range l.Variables {
		if problem := spec.CheckAllowed(pattern); problem != "" {
			errs = append(errs, fmt.Errorf("sinks.variables: %s", problem))
		}
	}
	return errors.Join(errs...)
}

// newSink returns the sink that a projection declares. Callers close it.
func newSink(client *store.Client, rec *registry.Record, b *registry.Bound, limits *SinkLimits) (project.Sink, error) {
	switch sink := &rec.Spec.Project.Sink; {
	case sink.Container != nil:
		return newContainerSink(client, rec, b)
	case sink.Parquet != nil:
		return newParquetSink(rec, limits)
	case sink.Postgres != nil:
		if err := spec.AdmitVariable(spec.DSNField, sink.Postgres.DSNEnv, limits.Variables); err != nil {
			return nil, fmt.Errorf("spec.project.sink.postgres.%w", err)
		}
		return pgsink.New(pgsink.Config{
			DSNEnv: sink.Postgres.DSNEnv, Schema: sink.Postgres.Schema, ConnectionsMax: limits.Postgres.ConnectionsMax,
		})
	}
	return nil, fmt.Errorf("pipeline %s has no sink that this release knows", rec.Metadata())
}

// newContainerSink returns a sink of the containers that a record was registered
// for.
func newContainerSink(client *store.Client, rec *registry.Record, b *registry.Bound) (project.Sink, error) {
	tables := map[string]*store.Container{}
	for i, name := range rec.Spec.Tables() {
		c, err := client.Open(*b.Tables[i])
		if err != nil {
			return nil, err
		}
		tables[name] = c
	}
	rejects := rec.Spec.Project.Sink.Container.Rejects
	return project.NewContainerSink(tables, tables[rejects]), nil
}
