package doctor_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd/natstest"
	"github.com/millrace/millrace/leases"
	"github.com/millrace/millrace/pipelines/doctor"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/spare"
	"github.com/millrace/millrace/store/upkeep"
)

const declared = `
apiVersion: millrace/v1
kind: Container
metadata: {name: meta}
spec: {partitionKey: [/type]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: product}
spec: {partitionKey: [/categoryId], partitions: 2, indexes: [/sku], uniqueKeys: [[/sku]], ttl: on}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: names}
spec:
  source: {container: meta, where: type = "category"}
  cascade:
    into: product
    match: {categoryId: id}
    set: {categoryName: name}
`

// ward is a Millrace whose buckets and logs are there and where nobody runs.
type ward struct {
	t        *testing.T
	nc       *nats.Conn
	js       jetstream.JetStream
	catalog  *store.Catalog
	registry *registry.Registry
	doctor   *doctor.Doctor
}

func newWard(t *testing.T) *ward {
	t.Helper()
	server := natstest.Start(t)
	w := &ward{t: t, nc: server.NC, js: server.JS}
	w.open()
	w.doctor = doctor.New(w.js, doctor.Config{Wish: upkeep.Wish{Replicas: 1, Leases: leases.DefaultBucket}, Configured: true})
	return w
}

// newSoundWard has containers, pipelines and an empty database, and copies and labels of their records, as
// the stores make them after each change of the catalog.
func newSoundWard(t *testing.T) *ward {
	t.Helper()
	w := newWard(t)
	if _, err := w.catalog.CreateDatabase(t.Context(), "empty"); err != nil {
		t.Fatal(err)
	}
	w.apply()
	if _, err := upkeep.NewKeeper(w.js, w.catalog, upkeep.Config{}).Pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w
}

// open opens the catalog and the registry as every process does.
func (w *ward) open() {
	w.t.Helper()
	var err error
	if w.catalog, err = store.OpenCatalog(w.t.Context(), w.js, store.CatalogConfig{}); err != nil {
		w.t.Fatal(err)
	}
	client := store.NewClient(w.nc, w.catalog, store.ClientConfig{})
	if w.registry, err = registry.Open(w.t.Context(), w.js, client, registry.Config{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *ward) apply() string {
	w.t.Helper()
	resources, err := spec.Decode("ward.yaml", []byte(declared))
	if err != nil {
		w.t.Fatal(err)
	}
	done, err := w.registry.Apply(w.t.Context(), resources)
	if err != nil {
		w.t.Fatal(err)
	}
	return fmt.Sprint(done)
}

// container is what the catalog says of a container of the default database.
func (w *ward) container(name string) store.ContainerInfo {
	w.t.Helper()
	info, err := w.catalog.Get(w.t.Context(), "default", name)
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

// stream is one of the server, with its configuration.
func (w *ward) stream(name string) (jetstream.Stream, jetstream.StreamConfig) {
	w.t.Helper()
	stream, err := w.js.Stream(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.Metadata = maps.Clone(cfg.Metadata)
	return stream, cfg
}

func (w *ward) update(cfg jetstream.StreamConfig) {
	w.t.Helper()
	if _, err := w.js.UpdateStream(w.t.Context(), cfg); err != nil {
		w.t.Fatal(err)
	}
}

// remake deletes a stream and makes another one with a configuration.
func (w *ward) remake(name string, cfg jetstream.StreamConfig) jetstream.Stream {
	w.t.Helper()
	if err := w.js.DeleteStream(w.t.Context(), name); err != nil {
		w.t.Fatal(err)
	}
	stream, err := w.js.CreateStream(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return stream
}

func (w *ward) bucket(name string) jetstream.KeyValue {
	w.t.Helper()
	kv, err := w.js.KeyValue(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return kv
}

// lose removes what a bucket knows of a key, and that it knew it.
func (w *ward) lose(bucket, key string) {
	w.t.Helper()
	stream, _ := w.stream("KV_" + bucket)
	if err := stream.Purge(w.t.Context(), jetstream.WithPurgeSubject("$KV."+bucket+"."+key)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *ward) put(bucket, key, value string) {
	w.t.Helper()
	if _, err := w.bucket(bucket).Put(w.t.Context(), key, []byte(value)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *ward) drop(bucket string) {
	w.t.Helper()
	if err := w.js.DeleteKeyValue(w.t.Context(), bucket); err != nil {
		w.t.Fatal(err)
	}
}

func (w *ward) unlabel() {
	w.t.Helper()
	exam, err := store.Examine(w.t.Context(), w.js)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, p := range exam.Logs {
		_, cfg := w.stream(p.Stream())
		delete(cfg.Metadata, store.LabelContainer)
		w.update(cfg)
	}
}

// state is what the buckets say, without times and revisions.
func (w *ward) state() string {
	w.t.Helper()
	infos, err := w.catalog.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	databases, err := w.catalog.Databases(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	records, err := w.registry.List(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var b strings.Builder
	for _, i := range infos {
		i.Revision = 0
		fmt.Fprintf(&b, "%+v\n", i)
	}
	for _, d := range databases {
		fmt.Fprintln(&b, d.Name)
	}
	for i := range records {
		fmt.Fprintln(&b, records[i].ID, records[i].Generation, records[i].Heads, records[i].Spec.Source)
	}
	return b.String()
}

func (w *ward) examine() *doctor.Report {
	w.t.Helper()
	r, err := w.doctor.Examine(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *ward) fix(names map[feed.ResourceID]doctor.Name) *doctor.Report {
	w.t.Helper()
	r, err := w.doctor.Fix(w.t.Context(), names)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// TestFix_MakesTheBucketsAsTheyWere loses in each way what stands in the buckets.
func TestFix_MakesTheBucketsAsTheyWere(t *testing.T) {
	t.Parallel()
	const product, names = "container.default.product", "pipeline.default.names"
	catalog, registry := store.CatalogBucket, registry.Bucket
	for name, c := range map[string]struct {
		lose  func(w *ward)
		finds []string
	}{
		"both buckets": {
			func(w *ward) { w.drop(catalog); w.drop(registry) },
			[]string{"missing bucket millrace_catalog", "missing bucket millrace_pipelines", "missing pipeline record " + names, "unnamed container "},
		},
		"the catalog, and another was made": {func(w *ward) {
			w.drop(catalog)
			if _, err := w.js.CreateKeyValue(w.t.Context(), store.CatalogBucketConfig(1)); err != nil {
				w.t.Fatal(err)
			}
		}, []string{"missing database empty", "unnamed container "}},
		"a container":            {func(w *ward) { w.lose(catalog, product) }, []string{"unnamed container "}},
		"a container by delete":  {func(w *ward) { _ = w.bucket(catalog).Delete(w.t.Context(), product) }, []string{"unnamed container "}},
		"a container's record":   {func(w *ward) { w.put(catalog, product, "{") }, []string{"damaged catalog record " + product, "unnamed container "}},
		"a database":             {func(w *ward) { w.lose(catalog, "database.empty") }, []string{"missing database empty"}},
		"a database's record":    {func(w *ward) { w.put(catalog, "database.empty", "?") }, []string{"damaged catalog record database.empty"}},
		"a pipeline":             {func(w *ward) { w.lose(registry, names) }, []string{"missing pipeline record " + names}},
		"a pipeline's record":    {func(w *ward) { w.put(registry, names, `{"version":2,"id":`) }, []string{"damaged pipeline record " + names}},
		"its copy with it":       {func(w *ward) { w.put(registry, names, `[]`); w.drop(spare.Bucket) }, []string{"damaged pipeline record " + names}},
		"a record of no log":     {func(w *ward) { w.put(catalog, "container.default.nothing", `{}`) }, []string{"damaged catalog record container.default.nothing"}},
		"labels, of the release": {func(w *ward) { w.unlabel() }, []string{"warning labels"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSoundWard(t)
			before := w.state()
			if r := w.examine(); !r.Well() || slices.ContainsFunc(r.Findings, func(f doctor.Finding) bool { return f.What != "leases" }) {
				t.Fatalf("of a sound system: %+v", r.Findings)
			}
			c.lose(w)
			r := w.examine()
			var found []string
			for _, f := range r.Findings {
				found = append(found, string(f.Kind)+" "+f.What)
				if f.Problem == "" || f.Remedy == "" {
					t.Errorf("%+v tells too little", f)
				}
			}
			for _, want := range c.finds {
				if !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, want) }) {
					t.Errorf("found %q, want %q too", found, want)
				}
			}
			if r = w.fix(nil); !r.Well() {
				t.Fatalf("after --fix: %+v", r)
			}
			w.open()
			if after := w.state(); after != before {
				t.Errorf("it is\n%s\nand was\n%s\ndone: %q", after, before, r.Done)
			}
			if done := w.apply(); strings.Count(done, " unchanged") != 3 {
				t.Errorf("apply of the same did %s", done)
			}
		})
	}
}

// TestFix_NeverTakesANameThatIsGiven has the container that the release before this
// one made beside the old log.
func TestFix_NeverTakesANameThatIsGiven(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.apply()
	old := w.container("product")
	kv := w.bucket(store.CatalogBucket)
	other := old
	other.ID, other.State = feed.NewResourceID(), store.ContainerCreating
	w.put(store.CatalogBucket, store.CatalogKey("default", "product"), fmt.Sprintf(
		`{"database":"default","name":"product","id":%q,"state":"creating","spec":{"partitionKey":["/id"]},"partitions":[{"number":0,"range":{"min":"","max":"FF"},"log":%q}]}`, other.ID, feed.NewLogID()))
	entry, err := kv.Get(t.Context(), store.CatalogKey("default", "product"))
	if err != nil {
		t.Fatal(err)
	}
	if r := w.fix(nil); r.Well() {
		t.Fatalf("%+v", r)
	}
	if is, err := kv.Get(t.Context(), entry.Key()); err != nil || is.Revision() != entry.Revision() {
		t.Fatalf("the record of the other container was changed: %v", err)
	}
	r := w.fix(map[feed.ResourceID]doctor.Name{old.ID: {Database: "default", Container: "productOld"}})
	if !r.Well() {
		t.Fatalf("%+v", r)
	}
	w.open()
	is, err := w.catalog.Get(t.Context(), "default", "productOld")
	if err != nil || is.ID != old.ID || is.Partitions[1] != old.Partitions[1] {
		t.Errorf("%+v, %v", is, err)
	}
}

// TestFix_ReadsTheLogsOfOldContainers has nothing but the logs and a name.
func TestFix_ReadsTheLogsOfOldContainers(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.apply()
	old := w.container("product")
	meta := w.container("meta")
	w.unlabel()
	w.drop(store.CatalogBucket)
	name := doctor.Name{Database: "shop", Container: "goods"}
	r := w.fix(map[feed.ResourceID]doctor.Name{old.ID: name})
	if r.Well() || !strings.Contains(fmt.Sprint(r.Findings), "--name "+string(meta.ID)+"=DATABASE/CONTAINER") {
		t.Fatalf("one of two was named: %+v", r)
	}
	if !strings.Contains(fmt.Sprint(r.Done), "changeFeed.retention, which is forever now") {
		t.Errorf("it does not tell what the logs do not: %q", r.Done)
	}
	if r = w.fix(map[feed.ResourceID]doctor.Name{meta.ID: {Database: "default", Container: "meta"}}); !r.Well() {
		t.Fatalf("%+v", r)
	}
	w.open()
	is, err := w.catalog.Get(t.Context(), "shop", "goods")
	if err != nil {
		t.Fatal(err)
	}
	if kept := is.Spec.ChangeFeed.Kept(); kept != store.RetentionForever {
		t.Errorf("changes are kept for %s, and nobody knows for how long they should be", kept)
	}
	is.Database, is.Name, is.Revision = old.Database, old.Name, old.Revision
	is.Created = old.Created // the log's time has milliseconds
	if got, want := fmt.Sprintf("%+v", is.Spec.PartitionKey), fmt.Sprintf("%+v", old.Spec.PartitionKey); got != want {
		t.Errorf("partition key %s, want %s", got, want)
	}
	if fmt.Sprint(is.Spec.UniqueKeys, is.Spec.TTL, is.Partitions) != fmt.Sprint(old.Spec.UniqueKeys, old.Spec.TTL, old.Partitions) {
		t.Errorf("it is\n%+v, and was\n%+v", is, old)
	}
	if !slices.Contains(is.Spec.Indexes, "/sku") {
		t.Errorf("indexes %q", is.Spec.Indexes)
	}
}

// TestExamine_TellsOfHolesInLogs loses the first commit of a log that went on.
func TestExamine_TellsOfHolesInLogs(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.apply()
	info := w.container("product")
	p := feed.Partition{Container: info.ID}
	stream, cfg := w.stream(p.Stream())
	first, err := stream.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	cfg.DenyDelete = false
	stream = w.remake(cfg.Name, cfg)
	for range 3 {
		if _, err := w.js.Publish(t.Context(), p.Subject(), first.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.DeleteMsg(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if r := w.examine(); r.Well() || !strings.Contains(fmt.Sprint(r.Findings), "the log lacks LSN 1 (1 of 3 commits)") {
		t.Errorf("%+v", r)
	}
}

// TestExamine_NamesTheStreamThatHoldsALog which has gone on in another than it began in.
func TestExamine_NamesTheStreamThatHoldsALog(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.apply()
	info := w.container("product")
	log := feed.Partition{Container: info.ID, Number: 1}
	_, cfg := w.stream(log.Stream())
	cfg.Name, cfg.Subjects = cfg.Name+"_2", []string{cfg.Subjects[0] + ".2"}
	cfg.Metadata["millrace.log"] = feed.NewLogID().String()
	w.remake(log.Stream(), cfg)
	if r := w.examine(); !strings.Contains(fmt.Sprint(r.Findings), "stream "+cfg.Name+" holds another log") {
		t.Errorf("%+v", r)
	}
}

// TestExamine_TellsOfLogsThatAreGone has what no doctor repairs.
func TestExamine_TellsOfLogsThatAreGone(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.apply()
	info := w.container("product")
	gone := feed.Partition{Container: info.ID, Number: 1}
	if err := w.js.DeleteStream(t.Context(), gone.Stream()); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*doctor.Report{w.examine(), w.fix(nil)} {
		if r.Well() || !strings.Contains(fmt.Sprint(r.Findings), "stream "+gone.Stream()+" is not there") {
			t.Errorf("%+v", r)
		}
	}
}

// TestExamine_SaysThatReplicasAreNeverLowered where a configuration asks for fewer than
// are kept.
func TestExamine_SaysThatReplicasAreNeverLowered(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	warned := func() bool {
		return slices.ContainsFunc(w.examine().Findings, func(f doctor.Finding) bool {
			return f.Kind == doctor.Warning && strings.Contains(f.Problem, "3 of every log and bucket are kept, and this configuration asks for 1") &&
				strings.Contains(f.Remedy, "never lowered by themselves")
		})
	}
	if warned() {
		t.Error("it warns though nobody has asked for more")
	}
	_, cfg := w.stream("KV_millrace_catalog")
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	cfg.Metadata["millrace.replicas"] = "3"
	w.update(cfg)
	if !warned() {
		t.Errorf("it does not warn: %+v", w.examine().Findings)
	}
}

// TestDoctor_SaysWhatCannotBeTrimmed: the stream of an earlier release denies purges for ever,
// and how far its log has gone on in a new one.
func TestDoctor_SaysWhatCannotBeTrimmed(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.apply()
	info := w.container("meta")
	_, cfg := w.stream((feed.Partition{Container: info.ID}).Stream())
	cfg.DenyPurge = true
	w.update(cfg)
	says := func() int {
		t.Helper()
		n := 0
		for _, f := range w.examine().Findings {
			if strings.Contains(f.Problem, "denies purges") {
				n++
			}
		}
		return n
	}
	spec := info.Spec
	spec.ChangeFeed.Retention = new(store.RetentionForever)
	if _, err := w.catalog.Update(t.Context(), "default", "meta", spec); err != nil {
		t.Fatal(err)
	}
	if n := says(); n != 0 {
		t.Errorf("%d findings, and nothing is to be trimmed", n)
	}
	spec.ChangeFeed.Retention = new(store.Retention(0))
	if _, err := w.catalog.Update(t.Context(), "default", "meta", spec); err != nil {
		t.Fatal(err)
	}
	if n := says(); n != 1 {
		t.Errorf("%d findings, want 1", n)
	}
	log, err := feed.OpenLog(t.Context(), w.js, feed.Partition{Container: info.ID}, feed.LogConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	m, err := log.BeginMove(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.Step(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	report := w.examine()
	if !report.Well() || !slices.ContainsFunc(report.Findings, func(f doctor.Finding) bool {
		return strings.Contains(f.Problem, "_2, which has LSN 1 to 1 of it")
	}) {
		t.Errorf("%+v", report)
	}
}

// TestFix_LeavesWhatANewerReleaseHasWritten: it cannot be read here, and what it was before is no repair of it.
func TestFix_LeavesWhatANewerReleaseHasWritten(t *testing.T) {
	t.Parallel()
	w := newWard(t)
	w.apply()
	kv, key := w.bucket(registry.Bucket), "pipeline.default.names"
	entry, err := kv.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	newer := regexp.MustCompile(`"expressions":\d+`).ReplaceAllString(string(entry.Value()), `"expressions":99`)
	if newer == string(entry.Value()) {
		t.Fatalf("the record is %s", newer)
	}
	w.put(registry.Bucket, key, newer)
	if r, err := w.doctor.Fix(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Errorf("%+v, %v", r, err)
	}
	if is, err := kv.Get(t.Context(), key); err != nil || string(is.Value()) != newer {
		t.Errorf("the record is %s, %v", is.Value(), err)
	}
}
