package parquetsink

import (
	"fmt"

	"github.com/millrace/millrace/processors/project"
)

// Check refuses partition columns whose values make bad names of folders.
func (s *Sink) Check(schema *project.Schema) []project.Problem {
	var problems []project.Problem
	for i := range schema.Tables {
		t := &schema.Tables[i]
		if t.PartitionBy < 0 {
			continue
		}
		c := &t.Columns[t.PartitionBy]
		switch c.Type.Kind {
		case project.KindDouble, project.KindJSON, project.KindTimestamp:
			problems = append(problems, project.Problem{
				Field: "project.tables." + t.Name + ".partitionBy",
				Message: fmt.Sprintf("names column %s of type %s: files are kept apart by values of which there are few, "+
					"such as a string, a date, an int64 or a bool", c.Name, c.Type),
			})
		default:
		}
	}
	return problems
}

// CannotHold refuses rows whose value of the column of partitions is too long for
// the name of a folder. It decides by nothing but the row, as if no name were
// mapped.
func (s *Sink) CannotHold(schema *project.Schema, r *project.Row) (column, reason string) {
	t := &schema.Tables[r.Table]
	if t.PartitionBy < 0 || t.PartitionBy >= len(r.Values) {
		return "", ""
	}
	if len(partitionText(r.Values[t.PartitionBy])) <= partitionBytesMax {
		return "", ""
	}
	return t.Columns[t.PartitionBy].Name, tooLong
}
