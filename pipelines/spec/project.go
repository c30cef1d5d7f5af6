package spec

import (
	"slices"
	"time"

	"github.com/millrace/millrace/feed/document"
)

// Project writes source items, or elements in them, as rows of tables.
type Project struct {
	// Sink is where the tables are: exactly one of container, parquet and postgres.
	Sink Sink `json:"sink" yaml:"sink"`
	// OnExpire is what becomes of the rows of items that their time to live has
	// removed: keep or delete. Default keep: analytics keep what the store forgets.
	OnExpire OnExpire `json:"onExpire,omitempty" yaml:"onExpire,omitempty"`
	// Tables are the tables by name. Those of a container sink are named like the
	// containers that hold their rows, which must be there. At most 64.
	Tables Tables `json:"tables" yaml:"tables"`
}

// OnExpire is what becomes of the rows of items that their time to live has
// removed.
type OnExpire string

// What becomes of the rows of expired items. The zero value is KeepRows.
const (
	KeepRows   OnExpire = "keep"   // they stay as they were
	DeleteRows OnExpire = "delete" // they go, as after a delete
)

// Sink is where a projection writes: exactly one of container, parquet and postgres.
type Sink struct {
	// Container keeps the rows as items of other containers of the database; each
	// table is the container of its name. Without settings it is written
	// container: {}.
	Container *ContainerSink `json:"container,omitempty" yaml:"container,omitempty"`
	// Parquet keeps each table as Parquet files in a directory or bucket.
	Parquet *ParquetSink `json:"parquet,omitempty" yaml:"parquet,omitempty"`
	// Postgres keeps the tables in a PostgreSQL database.
	Postgres *PostgresSink `json:"postgres,omitempty" yaml:"postgres,omitempty"`
}

// ContainerSink keeps rows as items of containers. The partition key of a
// container must be columns of the key of its table; the item's id is made of the
// other columns of the key, or is the column id.
type ContainerSink struct {
	// Rejects is the container that keeps rows which cannot be, with the reason; its
	// partition key is of id, pipeline, table and column. Default: they are counted,
	// and status shows the last.
	Rejects string `json:"rejects,omitempty" yaml:"rejects,omitempty"`
}

// ParquetSink keeps tables as Parquet files: in the directory path or in the
// bucket s3, exactly one of them.
type ParquetSink struct {
	// Path is a directory, made if it is missing. It lies below one of the workers'
	// roots (sinks.roots in their configuration, by default their directory dir); one
	// that is not absolute is below the first root of each worker. It may be written
	// file:///analytics. All workers must see the same files there, and no other
	// pipeline may write there. A place with ~, a $variable or .. before all else is
	// refused, and so is the URL of a bucket.
	Path string `json:"path,omitempty" yaml:"path,omitempty"`
	// S3 is a bucket of Amazon S3 or of a store that speaks its protocol.
	S3 *S3 `json:"s3,omitempty" yaml:"s3,omitempty"`
	// CommitInterval is how long rows are gathered for one set of files, 100ms to
	// 1h: longer makes larger files and staler tables. The end of a burst, of a hundredth of
	// project.flushRowsMax (2,000 rows) or more, waits for a twentieth of it. Default 5s.
	CommitInterval Duration `json:"commitInterval,omitempty" yaml:"commitInterval,omitempty"`
}

// CommitIntervalDefault is a Parquet sink's interval where none is declared.
const CommitIntervalDefault = 5 * time.Second

// S3 is a bucket. Its credentials are never written down: the fields name the
// environment variables of the workers that hold them, both or neither. Without
// them the usual places are asked: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
// the shared credentials file, the machine's role; of Amazon's servers alone, and
// where sinks.variables of the workers is set, if it has those two names.
type S3 struct {
	// Endpoint is host:port of the store, without a scheme. Default
	// s3.amazonaws.com.
	Endpoint string `json:"endpoint,omitempty" yaml:"endpoint,omitempty"`
	// Bucket is its name: 3 to 63 small letters, digits, - and dots. It must exist.
	Bucket string `json:"bucket" yaml:"bucket"`
	// Prefix is the folder of the tables in the bucket. Default the bucket's root.
	Prefix string `json:"prefix,omitempty" yaml:"prefix,omitempty"`
	// Region of the bucket, such as eu-central-1. Default: the store is asked.
	Region string `json:"region,omitempty" yaml:"region,omitempty"`
	// AccessKeyEnv names the variable with the access key, such as REPORTS_ACCESS_KEY. The
	// key itself is refused, and so are variables of Millrace (MILLRACE_...) and those that
	// the workers do not allow (sinks.variables in their configuration).
	AccessKeyEnv string `json:"accessKeyEnv,omitempty" yaml:"accessKeyEnv,omitempty"`
	// SecretKeyEnv names the variable with the secret key, such as REPORTS_SECRET_KEY. The
	// key itself is refused, and so are the same variables.
	SecretKeyEnv string `json:"secretKeyEnv,omitempty" yaml:"secretKeyEnv,omitempty"`
	// Secure is whether the store is reached by TLS. Default true; false is refused for
	// servers of Amazon.
	Secure *bool `json:"secure,omitempty" yaml:"secure,omitempty"`
}

// S3EndpointDefault is where a bucket is if nothing is declared.
const S3EndpointDefault = "s3.amazonaws.com"

// PostgresSink keeps tables in a PostgreSQL database.
type PostgresSink struct {
	// DSNEnv names the environment variable of the workers with the connection
	// string, such as postgres://user:password@host/database. The connection string
	// itself is refused, and so are variables of Millrace (MILLRACE_...) that do not end
	// in _DSN and those that the workers do not allow (sinks.variables in their
	// configuration).
	DSNEnv string `json:"dsnEnv" yaml:"dsnEnv"`
	// Schema is the namespace of the tables, made if it is missing: 1 to 63 letters,
	// digits, _ and $, not beginning with pg_. Default public.
	Schema string `json:"schema,omitempty" yaml:"schema,omitempty"`
}

// PostgresSchemaDefault is the namespace of tables where none is declared.
const PostgresSchemaDefault = "public"

// Table says which rows a source item has in one table.
type Table struct {
	// Where restricts the rows: an expression of the SQL dialect. Bare names read
	// the item, with each too; there element, parent, item, index and parentIndex are
	// as in columns. Default: all.
	Where Expression `json:"where,omitzero" yaml:"where,omitempty"`
	// Each is the path of an array in the source items whose elements are the rows,
	// such as details; arrays in arrays are written details[*].options. The columns
	// read the element then: bare names and element are the element, parent what
	// holds its array, item the whole item, index and parentIndex the places in the
	// arrays, from 0. Default: a row for each item.
	Each document.Field `json:"each,omitzero" yaml:"each,omitempty"`
	// Key are the columns that tell the rows of the table apart, 1 to 16 of them.
	Key []string `json:"key" yaml:"key"`
	// Columns are what a row holds, by name: an expression of the SQL dialect, or
	// an expression and a type. At most 1,000.
	Columns Columns `json:"columns" yaml:"columns"`
	// Index are lists of columns that a PostgreSQL sink keeps an index on, beyond
	// the key: at most 16, each of at most 16 columns. Only with postgres.
	Index [][]string `json:"index,omitempty" yaml:"index,omitempty"`
	// PartitionBy is the column by which a Parquet sink divides the files of the
	// table. Default: they are not divided. Only with parquet.
	PartitionBy string `json:"partitionBy,omitempty" yaml:"partitionBy,omitempty"`
}

// NamedTable is a table and its name.
type NamedTable struct {
	Name string
	Table
}

// Column says what a row holds under one name. Without a type it is written as
// the expression alone.
type Column struct {
	// Expr is an expression of the SQL dialect.
	Expr Expression `json:"expr" yaml:"expr"`
	// Type is string, int64, double, decimal(precision,scale), bool, timestamp, date
	// or json. A value that is not of it puts the row among the rejects. Default: text
	// of anything; in a sink of containers json, which keeps values as they are, but
	// for the columns of key.
	Type string `json:"type,omitempty" yaml:"type,omitempty"`
}

// NamedColumn is a column and its name.
type NamedColumn struct {
	Name string
	Column
}

// Tables are the tables of a projection in the order of the document, where they
// are a mapping.
type Tables []NamedTable

// Columns are the columns of a table in the order of the document, where they are
// a mapping.
type Columns []NamedColumn

// Column returns the column of that name, nil if there is none.
func (c Columns) Column(name string) *NamedColumn {
	for i := range c {
		if c[i].Name == name {
			return &c[i]
		}
	}
	return nil
}

func (p *Project) clone() *Project {
	c := *p
	if p.Sink.Container != nil {
		sink := *p.Sink.Container
		c.Sink.Container = &sink
	}
	if p.Sink.Parquet != nil {
		sink := *p.Sink.Parquet
		if sink.S3 != nil {
			s3 := *sink.S3
			sink.S3 = &s3
		}
		c.Sink.Parquet = &sink
	}
	if p.Sink.Postgres != nil {
		sink := *p.Sink.Postgres
		c.Sink.Postgres = &sink
	}
	c.Tables = slices.Clone(p.Tables)
	for i := range c.Tables {
		t := &c.Tables[i]
		t.Key, t.Columns, t.Index = slices.Clone(t.Key), slices.Clone(t.Columns), slices.Clone(t.Index)
		for j := range t.Index {
			t.Index[j] = slices.Clone(t.Index[j])
		}
	}
	return &c
}

// normalize fills the defaults of fields left out.
func (p *Project) normalize() {
	if p.OnExpire == "" {
		p.OnExpire = KeepRows
	}
	if sink := p.Sink.Parquet; sink != nil {
		if sink.CommitInterval == 0 {
			sink.CommitInterval = Duration(CommitIntervalDefault)
		}
		if sink.S3 != nil {
			sink.S3.normalize()
		}
	}
	if sink := p.Sink.Postgres; sink != nil && sink.Schema == "" {
		sink.Schema = PostgresSchemaDefault
	}
}

// keepTypes declares that columns without a type hold the value as it is: an item of a
// container can, where a table's column holds text. Keys are text all the same, because
// an id is. The type is written down, so that a pipeline which was registered when such
// columns held text goes on so until it is applied again.
func (p *Project) keepTypes() {
	for i := range p.Tables {
		t := &p.Tables[i]
		for j := range t.Columns {
			if c := &t.Columns[j]; c.Type == "" && c.Name != "id" && !slices.Contains(t.Key, c.Name) {
				c.Type = "json"
			}
		}
	}
}

func (s *S3) normalize() {
	if s.Endpoint == "" {
		s.Endpoint = S3EndpointDefault
	}
	if s.Secure == nil {
		secure := true
		s.Secure = &secure
	}
}
