package spec

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/store"
)

// document reads one document into r.
func (d *Decoder) document(r *Resources, n *yaml.Node) {
	if IsNull(n) {
		return // between two --- there may be nothing
	}
	// Places of fields are kept for findings that come later, when the whole of all files is
	// checked.
	d.places = places{"": d.at(n)}
	var version, kind string
	var meta Metadata
	var spec *yaml.Node
	if !d.mapping(n, "",
		field{"apiVersion", "write apiVersion: " + APIVersion, d.text(&version)},
		field{"kind", "write kind: Container or kind: Pipeline", d.text(&kind)},
		field{"metadata", "write metadata: {name: ...}", func(n *yaml.Node, path string) { d.metadata(n, path, kind, &meta) }},
		field{"spec", "it says what is declared", func(n *yaml.Node, _ string) { spec = n }},
	) {
		return
	}
	if version != "" && version != APIVersion {
		d.findings.Add(d.places.at("apiVersion"), "apiVersion %q is not known to this release; %s is expected", version, APIVersion)
	}
	switch kind {
	case KindContainer:
		c := Container{APIVersion: version, Kind: kind, Metadata: meta, places: d.places}
		if spec != nil {
			d.container(spec, &c.Spec)
		}
		r.Containers = append(r.Containers, c)
	case KindPipeline:
		p := Pipeline{APIVersion: version, Kind: kind, Metadata: meta, places: d.places}
		if spec != nil {
			d.pipeline(spec, &p.Spec)
		}
		r.Pipelines = append(r.Pipelines, p)
	case KindTest:
		d.test(r, Test{APIVersion: version, Kind: kind, Metadata: meta, places: d.places}, spec)
	case "": // told already, as a missing field
	default:
		kinds := []string{KindContainer, KindPipeline, KindTest}
		hint := didYouMean(kind, kinds)
		if hint == "" {
			hint = "; " + oneOf(kinds) + " is expected"
		}
		d.findings.Add(d.places.at("kind"), "kind %q is not known%s", kind, hint)
	}
}

// metadata reads name and database. The kind is for messages.
func (d *Decoder) metadata(n *yaml.Node, path, kind string, m *Metadata) {
	name := func(into *string, check func(string) error) func(*yaml.Node, string) {
		return func(n *yaml.Node, path string) {
			d.text(into)(n, path)
			if *into == "" {
				return
			}
			if err, ok := errors.AsType[*store.Error](check(*into)); ok {
				d.bad(n, "%s: %s", path, err.Message)
			}
		}
	}
	if kind == "" {
		kind = "resource"
	}
	check := func(name string) error { return store.CheckPlainName(strings.ToLower(kind), name) }
	if kind == KindContainer {
		check = store.CheckContainerName
	}
	d.mapping(n, path,
		field{"name", "the name of the " + strings.ToLower(kind) + " is expected", name(&m.Name, check)},
		field{"database", "", name(&m.Database, store.CheckDatabaseName)},
	)
	if m.Database == "" {
		m.Database = DatabaseDefault
	}
}

// container reads the spec of a container.
func (d *Decoder) container(n *yaml.Node, s *store.ContainerSpec) {
	// Values are checked only if all could be read: a value that was not read is zero, and
	// would be found a second time, as a wrong value.
	before := len(d.findings)
	ok := d.mapping(n, "spec",
		field{"partitionKey", "1 to 3 paths are expected, such as [/categoryId]", d.texts(&s.PartitionKey, "[/categoryId]")},
		field{"partitions", "", d.number(&s.Partitions)},
		field{"indexes", "", d.texts(&s.Indexes, "[/tags/*/id]")},
		field{"uniqueKeys", "", func(n *yaml.Node, path string) {
			d.list(n, path, "[[/sku]]", func(e *yaml.Node, path string) {
				var paths []string
				d.texts(&paths, "[/sku]")(e, path)
				s.UniqueKeys = append(s.UniqueKeys, paths)
			})
		}},
		field{"ttl", "", func(n *yaml.Node, path string) { d.ttl(n, path, &s.TTL) }},
		field{"changeFeed", "", func(n *yaml.Node, path string) {
			d.mapping(n, path,
				field{"retention", "", func(n *yaml.Node, path string) { d.retention(n, path, &s.ChangeFeed.Retention) }},
				field{"retentionMax", "", func(n *yaml.Node, path string) { d.duration(n, path, &s.ChangeFeed.RetentionMax) }},
				field{"tombstones", "", func(n *yaml.Node, path string) { d.duration(n, path, &s.ChangeFeed.Tombstones) }},
			)
		}},
		field{"standbys", "", d.number(&s.Standbys)},
	)
	// Normalize makes 1 of a missing number. A 0 that somebody wrote is a mistake.
	if n := d.places.at("spec.partitions"); ok && s.Partitions == 0 && n != d.places.at("spec") && before == len(d.findings) {
		d.findings.Add(n, "spec.partitions is 0; 1 to %d are allowed", store.PartitionsMax)
	}
	s.Normalize()
	if before != len(d.findings) {
		return
	}
	for _, err := range s.Check() {
		if fe, ok := errors.AsType[*store.FieldError](err); ok {
			d.findings.Add(d.places.at("spec."+fe.Field), "spec.%s", fe)
		} else {
			d.findings.Add(d.places.at("spec"), "spec: %s", err)
		}
	}
}

func (d *Decoder) ttl(n *yaml.Node, path string, into *store.TTL) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" && n.Tag != "!!int" {
		d.bad(n, "%s is %s; off, on or a duration such as 36h is expected", path, describe(n))
		return
	}
	if err := into.UnmarshalText([]byte(n.Value)); err != nil {
		d.bad(n, "%s is %s; off, on or a duration of whole seconds such as 36h is expected%s", path, describe(n), durationHint(n.Value))
	}
}

// retention reads a duration or forever.
func (d *Decoder) retention(n *yaml.Node, path string, into **store.Retention) {
	kept := store.RetentionForever
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" || n.Value != kept.String() {
		d.duration(n, path, (*time.Duration)(&kept))
	}
	*into = &kept
}

// duration reads a duration with a unit. A number alone is refused, with the units to choose from.
func (d *Decoder) duration(n *yaml.Node, path string, into *time.Duration) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		hint := ""
		if n.Tag == "!!int" {
			hint = fmt.Sprintf("; name the unit: %sh, %sm or %ss", n.Value, n.Value, n.Value)
		}
		d.bad(n, "%s is %s; a duration such as 168h is expected%s", path, describe(n), hint)
		return
	}
	v, err := time.ParseDuration(n.Value)
	switch {
	case err != nil:
		d.bad(n, "%s is %s; a duration such as 168h, 30m or 1h30m is expected%s", path, describe(n), durationHint(n.Value))
	case v < 0:
		d.bad(n, "%s is %s; a duration cannot be negative", path, n.Value)
	default:
		*into = v
	}
}

var days = regexp.MustCompile(`^\s*(\d{1,6})\s*(d|days?|w|weeks?|hours?|minutes?|seconds?)\s*$`)

// durationHint returns how to write what people write for a duration, such as "7 days" or "1w";
// "" if it does not know.
func durationHint(text string) string {
	m := days.FindStringSubmatch(strings.ToLower(text))
	if m == nil {
		return ""
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return ""
	}
	unit := "h"
	switch m[2][0] {
	case 'd':
		n *= 24
	case 'w':
		n *= 7 * 24
	case 'm':
		unit = "m"
	case 's':
		unit = "s"
	}
	return fmt.Sprintf(": write %d%s", n, unit)
}
