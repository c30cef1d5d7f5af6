package parquetsink

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/millrace/millrace/processors/project"
)

// What a Delta log of this package says; see
// https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
const (
	deltaReader = 1 // minReaderVersion
	deltaWriter = 2 // minWriterVersion
	// deltaApp marks the commits that were made here.
	deltaApp = "millrace"
)

// deltaAction is one line of a commit in a Delta log, or one row of a checkpoint: one of
// its members is set.
type deltaAction struct {
	CommitInfo *deltaInfo     `json:"commitInfo,omitempty" parquet:"-"`
	Protocol   *deltaProtocol `json:"protocol,omitempty" parquet:"protocol,optional"`
	MetaData   *deltaMetaData `json:"metaData,omitempty" parquet:"metaData,optional"`
	Txn        *deltaTxn      `json:"txn,omitempty" parquet:"txn,optional"`
	Add        *deltaAdd      `json:"add,omitempty" parquet:"add,optional"`
	Remove     *deltaRemove   `json:"remove,omitempty" parquet:"remove,optional"`
}

// deltaInfo is for people: readers need none of it.
type deltaInfo struct {
	Timestamp  int64          `json:"timestamp"`
	Operation  string         `json:"operation"`
	Parameters map[string]any `json:"operationParameters,omitempty"` // other programs have more than texts
	Engine     string         `json:"engineInfo,omitempty"`
}

type deltaProtocol struct {
	Reader int32 `json:"minReaderVersion" parquet:"minReaderVersion"`
	Writer int32 `json:"minWriterVersion" parquet:"minWriterVersion"`
}

type deltaMetaData struct {
	ID               string            `json:"id" parquet:"id"`
	Format           deltaFormat       `json:"format" parquet:"format"`
	SchemaString     string            `json:"schemaString" parquet:"schemaString"`
	PartitionColumns []string          `json:"partitionColumns" parquet:"partitionColumns,list"`
	Configuration    map[string]string `json:"configuration" parquet:"configuration"`
	CreatedTime      int64             `json:"createdTime" parquet:"createdTime"`
}

type deltaFormat struct {
	Provider string            `json:"provider" parquet:"provider"`
	Options  map[string]string `json:"options" parquet:"options"`
}

// deltaTxn says which manifest a commit shows.
type deltaTxn struct {
	AppID       string `json:"appId" parquet:"appId"`
	Version     int64  `json:"version" parquet:"version"`
	LastUpdated int64  `json:"lastUpdated" parquet:"lastUpdated"`
}

// deltaAdd and deltaRemove name files by paths below the folder of the table, as parts
// of a URI.
type deltaAdd struct {
	Path             string            `json:"path" parquet:"path"`
	PartitionValues  map[string]string `json:"partitionValues" parquet:"partitionValues"`
	Size             int64             `json:"size" parquet:"size"`
	ModificationTime int64             `json:"modificationTime" parquet:"modificationTime"`
	DataChange       bool              `json:"dataChange" parquet:"dataChange"`
	Stats            string            `json:"stats,omitempty" parquet:"stats"`
}

type deltaRemove struct {
	Path              string `json:"path" parquet:"path"`
	DeletionTimestamp int64  `json:"deletionTimestamp" parquet:"deletionTimestamp"`
	DataChange        bool   `json:"dataChange" parquet:"dataChange"`
}

// deltaConfiguration are the properties of every table. VACUUM of another engine would
// delete what the log does not name, files among them that a commit under way or a
// generation that is being built will name. It spares what is younger than this.
func deltaConfiguration() map[string]string {
	return map[string]string{"delta.deletedFileRetentionDuration": "interval 1000 weeks"}
}

// encodeDelta returns the content of a commit.
func encodeDelta(actions []deltaAction) ([]byte, error) {
	var all bytes.Buffer
	lines := json.NewEncoder(&all)
	lines.SetEscapeHTML(false)
	for i := range actions {
		if err := lines.Encode(&actions[i]); err != nil {
			return nil, err
		}
	}
	return all.Bytes(), nil
}

// decodeDelta reads a commit, one that somebody else has made too: members and actions
// that it does not know are passed over.
func decodeDelta(data []byte) (actions []deltaAction, err error) {
	for line := range bytes.Lines(data) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var a deltaAction
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, err
		}
		actions = append(actions, a)
	}
	return actions, nil
}

// deltaPath returns the path of a file as a Delta log names it. The folder of a partition
// may have any character; a % in it stands there as %25.
func deltaPath(as, name string) string {
	return (&url.URL{Path: strings.TrimPrefix(name, as+"/")}).EscapedPath()
}

// deltaName returns the name in the store of a file that a Delta log names.
func deltaName(as, path string) (string, error) {
	rest, err := url.PathUnescape(path)
	return as + "/" + rest, err
}

// deltaSchema is the schema of a layout in the form of a Delta log.
func deltaSchema(l *layout) (string, error) {
	type field struct {
		Name     string         `json:"name"`
		Type     string         `json:"type"`
		Nullable bool           `json:"nullable"`
		Metadata map[string]any `json:"metadata"`
	}
	schema := struct {
		Type   string  `json:"type"`
		Fields []field `json:"fields"`
	}{Type: "struct"}
	for _, c := range l.columns {
		schema.Fields = append(schema.Fields, field{Name: c.as, Type: deltaType(c.typ), Nullable: !c.required, Metadata: map[string]any{}})
	}
	data, err := json.Marshal(schema)
	return string(data), err
}

func deltaType(t project.Type) string {
	switch t.Kind {
	case project.KindInt64:
		return "long"
	case project.KindDouble:
		return "double"
	case project.KindDecimal:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case project.KindBool:
		return "boolean"
	case project.KindTimestamp:
		return "timestamp"
	case project.KindDate:
		return "date"
	default: // JSON too: Delta has no type for it
		return "string"
	}
}

// deltaStats tells readers how many rows a file has and, of a partitioned table, the one
// value of the column of partitions, so that they leave out files of others.
func deltaStats(l *layout, f *file) (string, error) {
	stats := struct {
		Rows  int64          `json:"numRecords"`
		Min   map[string]any `json:"minValues,omitempty"`
		Max   map[string]any `json:"maxValues,omitempty"`
		Nulls map[string]int `json:"nullCount,omitempty"`
	}{Rows: f.Rows}
	if value := partitionValue(l, f); value != nil {
		as := l.columns[l.partition].as
		stats.Min = map[string]any{as: value}
		stats.Max, stats.Nulls = stats.Min, map[string]int{as: 0}
	}
	data, err := json.Marshal(stats)
	return string(data), err
}

// partitionValue returns the value of the column of partitions that all rows of a file
// have, nil where the name of its folder does not tell, because it stands for null and
// for empty text, or where statistics have no form for its type.
func partitionValue(l *layout, f *file) any {
	if l.partition < 0 || f.Folder == "" || f.Rows == 0 {
		return nil
	}
	text, err := url.PathUnescape(strings.TrimPrefix(f.Folder, l.partitionAs+"="))
	if err != nil || text == nullPartition {
		return nil
	}
	switch l.columns[l.partition].typ.Kind {
	case project.KindInt64:
		return json.Number(text)
	case project.KindAny, project.KindString, project.KindDate:
		return text
	default:
		return nil
	}
}

// newDeltaID returns a random UUID, by which engines know a table again.
func newDeltaID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
