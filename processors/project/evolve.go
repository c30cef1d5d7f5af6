package project

import (
	"fmt"
	"slices"
	"strings"
)

// Rebuild returns why the rows of a former declaration do not hold under the
// present one, so that they have to be made anew; nothing if what was added is
// only added: tables, and columns outside of keys, whose values in the rows that
// are there still have to be filled in. Indexes may change in every way. Pipeline,
// generation, containers and the sink are not looked at.
func Rebuild(former, present *Config) []string {
	var reasons []string
	because := func(format string, args ...any) { reasons = append(reasons, fmt.Sprintf(format, args...)) }
	if !sameText(former.SourceWhere, present.SourceWhere) {
		because("source.where selects other items")
	}
	if keeps(former) != keeps(present) {
		because("project.onExpire has changed")
	}
	for i := range former.Tables {
		old := &former.Tables[i]
		at := slices.IndexFunc(present.Tables, func(t Table) bool { return t.Name == old.Name })
		if at < 0 {
			because("table %s is gone", old.Name)
			continue
		}
		rebuildTable(old, &present.Tables[at], because)
	}
	return reasons
}

func keeps(c *Config) bool { return c.OnExpire != Delete }

func sameText(a, b string) bool { return strings.TrimSpace(a) == strings.TrimSpace(b) }

func rebuildTable(old, now *Table, because func(string, ...any)) {
	at := "project.tables." + now.Name
	if !sameText(old.Where, now.Where) {
		because("%s.where selects other rows", at)
	}
	if !sameText(old.Each, now.Each) {
		because("%s.each has changed", at)
	}
	if !slices.Equal(old.Key, now.Key) {
		because("%s.key has changed", at)
	}
	if old.PartitionBy != now.PartitionBy {
		because("%s.partitionBy has changed", at)
	}
	for _, c := range old.Columns {
		i := slices.IndexFunc(now.Columns, func(n Column) bool { return n.Name == c.Name })
		switch {
		case i < 0:
			because("column %s.%s is gone", now.Name, c.Name)
		case now.Columns[i].Type != c.Type:
			because("column %s.%s has another type", now.Name, c.Name)
		case !sameText(now.Columns[i].Expr, c.Expr):
			because("column %s.%s has another expression", now.Name, c.Name)
		}
	}
}
