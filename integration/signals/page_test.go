// Package signals holds what is told of telemetry equal to what the product does:
// docs/telemetry.md, the alert rules and the dashboard in deploy.
package signals_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/storetest"
)

const pageFile = "../../docs/telemetry.md"

// metricAttributes are the attributes of metrics, by the beginning of their names; the
// longest counts, and what is not named has none. The SDK does not know them before
// something is recorded, so they are written here, and held against a run.
var metricAttributes = map[string]string{
	"millrace.aggregate.":               "pipeline",
	"millrace.cascade.":                 "pipeline, cause",
	"millrace.changes":                  "cause",
	"millrace.gateway.request.duration": "operation, status",
	"millrace.lease.":                   "group",
	"millrace.lease.ended":              "group, cause",
	"millrace.lease.handovers":          "group, how",
	"millrace.lease.renewal.duration":   "group, outcome",
	"millrace.partition.":               "database, container, partition, operation",
	"millrace.pipeline.":                "database, pipeline",
	"millrace.processor.":               "pipeline, role, partition",
	"millrace.project.":                 "pipeline",
	"millrace.project.rejects":          "pipeline, cause",
	"millrace.project.rows":             "pipeline, cause",
	"millrace.standby.compared":         "outcome",
	"millrace.standby.partitions":       "state",
	"millrace.verify.":                  "database, pipeline",
	"millrace.verify.copies":            "pipeline",
	"millrace.verify.differences":       "pipeline, kind",
	"millrace.verify.position":          "database, pipeline, partition",
	"millrace.verify.position_age":      "database, pipeline",
}

func attributesOf(name string) string {
	best := ""
	for prefix := range metricAttributes {
		if strings.HasPrefix(name, prefix) && len(prefix) > len(best) {
			best = prefix
		}
	}
	return metricAttributes[best]
}

// span is one that the product begins.
type span struct{ name, kind, attributes, meaning string }

// spans are all of them, in the order of a write and of a change.
var spans = []span{
	{"millrace.gateway <operation>", "server", "db.system.name, db.operation.name, db.namespace, db.collection.name, http.request.method, http.response.status_code, millrace.activity", "A request of the Cosmos DB protocol. It goes on with the caller's `traceparent`. `millrace.gateway refused` is one that did not come as far as an operation, such as one without a good signature: it has the status (401) and names nothing of what was asked for."},
	{"millrace.request <operation>", "client", "db.system.name, db.operation.name, db.namespace, db.collection.name, db.response.status_code, millrace.partition, millrace.lsn", "A request to the owner of a partition, with all attempts: `create`, `query`, `patch many` and so on. The status code is that of a refusal, the LSN that of the commit on which the answer to a write rests."},
	{"millrace.commit", "server", "db.system.name, db.operation.name, db.namespace, db.collection.name, db.response.status_code, millrace.partition, millrace.lsn, millrace.changes", "From a request's arrival at its owner to the answer: waiting, deciding, the append to the log, applying. `millrace.changes` is how many changes it makes."},
	{"millrace.process", "consumer", "messaging.system, messaging.operation.type, messaging.batch.message_count, millrace.pipeline, millrace.role, millrace.partition, millrace.lsn", "A batch of changes in a processor, up to an LSN. It belongs to the trace of the write that it follows, or is linked to those of several, 32 at most."},
	{"millrace.fan-out", "internal", "db.system.name, db.namespace, db.collection.name, millrace.pipeline, millrace.partition, millrace.copies, millrace.scanned, millrace.position", "Pages of a fan-out into a container, in the trace of the change that began it. Copies, scanned items and position are those of one that has finished."},
	{"millrace.fold", "internal", "db.system.name, db.namespace, db.collection.name, millrace.pipeline, millrace.partition, millrace.changes, millrace.groups, millrace.position", "An interval of changes that is folded into the groups of an aggregate, in a container."},
	{"millrace.project.write", "internal", "millrace.pipeline, millrace.container, millrace.partition, millrace.sink, millrace.tables, millrace.rows, millrace.position", "A batch of rows of a source container that is given to a sink: `container`, `parquet` or `postgres`."},
	{"millrace.project.flush", "internal", "millrace.pipeline, millrace.container, millrace.partition, millrace.sink, millrace.rows", "A sink that buffers makes its rows durable."},
	{"millrace.parquet.commit", "internal", "millrace.parquet.writers", "A commit of Parquet files, of so many writers together."},
	{"millrace.checkpoint", "consumer", "millrace.pipeline, millrace.role, millrace.partition", "A processor's position is saved in its lease."},
}

// TestPage_TellsWhatIsRegistered holds the page equal to the instruments that are
// registered, the spans that are seen and the template; -update writes it anew.
func TestPage_TellsWhatIsRegistered(t *testing.T) {
	o := observe()
	runShop(t, func() error { return poll.Reason(o.missing(t)) })
	o.checkMetrics(t)
	o.checkSpans(t)
	var out bytes.Buffer
	page, err := template.New("telemetry.md.tmpl").Funcs(template.FuncMap{"metrics": o.metricsTable, "spans": spansTable}).ParseFiles("testdata/telemetry.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	if err := page.Execute(&out, nil); err != nil {
		t.Fatal(err)
	}
	storetest.Golden(t, pageFile, out.String())
}

// missing says what a run must still tell before it can be judged: every span of the page,
// and the gauges of pipelines, which are set now and then.
func (o *telemetry) missing(t *testing.T) string {
	t.Helper()
	seen := o.traces()
	for i := range spans {
		if seen[spans[i].name] == nil {
			return "no span " + spans[i].name
		}
		for _, key := range list(spans[i].attributes) {
			if !seen[spans[i].name][key] && key != "db.response.status_code" { // only of what is refused
				return "no attribute " + key + " of " + spans[i].name
			}
		}
	}
	told := o.metrics(t)
	for _, name := range []string{
		"millrace.pipeline.lag", "millrace.processor.lag", "millrace.lease.held", "millrace.cascade.copies", "millrace.aggregate.folds",
		"millrace.project.rows", "millrace.parquet.rows", "millrace.gateway.request.duration", "millrace.verify.coverage",
	} {
		if told[name] == nil {
			return "no metric " + name
		}
	}
	return ""
}

func (o *telemetry) checkMetrics(t *testing.T) {
	t.Helper()
	registered := map[string]bool{}
	for _, i := range o.book.registered() {
		registered[i.name] = true
		if i.description == "" || !strings.HasSuffix(i.description, ".") {
			t.Errorf("%s says %q of itself", i.name, i.description)
		}
	}
	told := o.metrics(t)
	o.checkPrometheus(t, told)
	for name, keys := range told {
		if !registered[name] {
			t.Errorf("%s was told, and is not registered", name)
		}
		want := list(attributesOf(name))
		for key := range keys {
			if !slices.Contains(want, key) {
				t.Errorf("%s has the attribute %s, which the page does not name", name, key)
			}
		}
		for _, key := range want {
			if !keys[key] {
				t.Errorf("the page gives %s the attribute %s, which it does not have", name, key)
			}
		}
	}
	for prefix := range metricAttributes {
		if !slices.ContainsFunc(o.book.registered(), func(i instrument) bool { return strings.HasPrefix(i.name, prefix) }) {
			t.Errorf("no metric begins with %s", prefix)
		}
	}
}

// checkPrometheus sees that what was told is at /metrics under the name that the page gives.
func (o *telemetry) checkPrometheus(t *testing.T, told attributes) {
	t.Helper()
	families, err := o.prom.Gather()
	if err != nil {
		t.Fatal(err)
	}
	scraped := map[string]bool{}
	for _, f := range families {
		scraped[f.GetName()] = true
		for _, m := range f.GetMetric() {
			if f.GetName() != "target_info" && !strings.Contains(m.String(), `"otel_scope_name"`) {
				t.Errorf("%s has no otel_scope_name", f.GetName())
			}
		}
	}
	for _, i := range o.book.registered() {
		if told[i.name] != nil && !scraped[i.prometheus()] {
			t.Errorf("%s is not %s at /metrics", i.name, i.prometheus())
		}
	}
}

func (o *telemetry) checkSpans(t *testing.T) {
	t.Helper()
	for name, keys := range o.traces() {
		at := slices.IndexFunc(spans, func(s span) bool { return s.name == name })
		if at < 0 {
			t.Errorf("the span %s is not on the page", name)
			continue
		}
		for key := range keys {
			if !slices.Contains(list(spans[at].attributes), key) {
				t.Errorf("%s has the attribute %s, which the page does not name", name, key)
			}
		}
	}
	for _, stub := range o.spans.GetSpans() {
		first, _, _ := strings.Cut(stub.Name, " ")
		for _, s := range spans {
			if name, _, _ := strings.Cut(s.name, " "); name == first && stub.SpanKind.String() != s.kind {
				t.Errorf("%s is of kind %s, not %s", stub.Name, stub.SpanKind, s.kind)
			}
		}
	}
}

// list divides a, b.
func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ", ")
}

func code(words string) string {
	if words == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(words, ", ", "`, `") + "`"
}

func (o *telemetry) metricsTable() string {
	var b strings.Builder
	b.WriteString("| metric | at `/metrics` | kind | unit | attributes | meaning |\n|---|---|---|---|---|---|\n")
	for _, i := range o.book.registered() {
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s | %s |\n", i.name, i.prometheus(), i.kind, code(i.unit), code(attributesOf(i.name)), i.description)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func spansTable() string {
	var b strings.Builder
	b.WriteString("| span | kind | attributes | meaning |\n|---|---|---|---|\n")
	for _, s := range spans {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.name, s.kind, code(s.attributes), s.meaning)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// TestPage_VariablesAreRead sees that every variable on the page is one: of Millrace, a key
// of the configuration; of OpenTelemetry, one that the modules which are linked name.
func TestPage_VariablesAreRead(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	known := configVariables(t)
	for _, name := range regexp.MustCompile(`MILLRACE_[A-Z_]+[A-Z]`).FindAllString(string(page), -1) {
		if !known[name] {
			t.Errorf("%s is no key of the configuration", name)
		}
	}
	sdk := sdkSource(t)
	var all []string
	for _, name := range regexp.MustCompile("`(OTEL_[A-Z_]+)`").FindAllStringSubmatch(string(page), -1) {
		all = append(all, name[1])
		if !bytes.Contains(sdk, []byte(name[1])) {
			t.Errorf("nothing in the modules of OpenTelemetry names %s", name[1])
		}
	}
	if len(all) < 15 {
		t.Errorf("the page names only %v", all)
	}
}

// configVariables are the variables of all keys of the configuration.
func configVariables(t *testing.T) map[string]bool {
	t.Helper()
	data, err := os.ReadFile("../../configs/millrace.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"MILLRACE_CONFIG": true}
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			at := strings.TrimPrefix(path+"."+n.Content[i].Value, ".")
			known[configs.EnvName(at)] = true
			walk(n.Content[i+1], at)
		}
	}
	walk(root.Content[0], "")
	return known
}

// sdkSource is the text of the packages of OpenTelemetry that the binary links.
func sdkSource(t *testing.T) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{.ImportPath}} {{.Dir}}", "./cmd/millrace")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for line := range strings.Lines(string(out)) {
		path, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(path, "go.opentelemetry.io/") {
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.Bytes()
}
