// Package doctor finds what is damaged, missing, unnamed or short of replicas among
// the streams and buckets of a Millrace, and makes the buckets again from what else
// is known.
//
// What is there, and what tells of it when it is lost:
//
//	log of a partition      nothing: it is the data. It is restored, or its engine tells
//	record of a container   the label of each of its logs' streams (store.Label), else
//	                        the settings in the log itself, with a name that is given
//	record of a database    its second copy, or the containers in it
//	record of a pipeline    its second copy, else the revision of it before
//	leases                  nothing is lost but time: partitions and pipelines are taken
//	                        anew, and pipelines read again from where they began
//	dead letters            are items of a container, like all others
//
// Nothing that can be read is ever overwritten, and no log is changed but for its
// label and its replicas.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/spare"
	"github.com/millrace/millrace/store/upkeep"
)

// Kind is what is wrong with something.
type Kind string

// The kinds of findings, the worst first. A warning is nothing wrong: it heals by
// itself, or costs nothing yet.
const (
	Missing  Kind = "missing"
	Damaged  Kind = "damaged"
	Unnamed  Kind = "unnamed"
	Replicas Kind = "replicas"
	Warning  Kind = "warning"
)

// kinds are in the order in which findings are told.
var kinds = []Kind{Missing, Damaged, Unnamed, Replicas, Warning}

// Finding is one thing that is not as it is to be.
type Finding struct {
	Kind Kind `json:"kind"`
	// What it is about: a bucket, a container, a log, a pipeline.
	What string `json:"what"`
	// Problem says what is wrong, Remedy what to do.
	Problem string `json:"problem"`
	Remedy  string `json:"remedy"`
}

// Report is what was found, and what was done about it.
type Report struct {
	Logs       int `json:"logs"`
	Containers int `json:"containers"`
	Pipelines  int `json:"pipelines"`
	// Done is what Fix has done, line by line.
	Done     []string  `json:"done,omitempty"`
	Findings []Finding `json:"findings"`
}

// Well says whether nothing is wrong.
func (r *Report) Well() bool {
	return !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Kind != Warning })
}

func (r *Report) add(kind Kind, what, problem, remedy string) {
	r.Findings = append(r.Findings, Finding{kind, what, problem, remedy})
}

// Config says what a Doctor looks at.
type Config struct {
	// Wish says how many replicas there are to be.
	Wish upkeep.Wish
	// Configured says that somebody has asked for Wish: it is not what a command
	// assumes that knows nothing of the stores' configuration.
	Configured bool
	// Log is the configuration with which logs are opened.
	Log feed.LogConfig
}

// Doctor looks at one NATS system.
type Doctor struct {
	js  jetstream.JetStream
	cfg Config
}

// New returns a Doctor. It needs neither stores nor workers.
func New(js jetstream.JetStream, cfg Config) *Doctor { return &Doctor{js, cfg} }

// patient is all that a look has seen. look makes it; Fix changes exam and registry as it
// repairs, and nothing else does.
type patient struct {
	exam     *store.Exam
	registry *registry.Exam
	streams  map[feed.Partition]*jetstream.StreamInfo // those that answer
	shapes   map[feed.Partition]*feed.Shape           // of those that lack something
	oldest   map[feed.Partition]feed.LSN              // what some replica still has of those that were trimmed
	moves    map[feed.Partition]feed.Stretch          // what is copied of those that go on in a new stream
	silent   map[feed.Partition]error
	leases   bool
}

// Examine tells what is wrong. It changes nothing.
func (d *Doctor) Examine(ctx context.Context) (*Report, error) {
	p, err := d.look(ctx)
	if err != nil {
		return nil, err
	}
	r := &Report{Logs: len(p.exam.Logs), Containers: len(p.exam.Containers), Pipelines: len(p.registry.Records), Findings: []Finding{}}
	p.catalog(r)
	p.logs(r)
	p.pipelines(r)
	if err := d.replicas(ctx, r); err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind))
	})
	return r, nil
}

// lookMax bounds the streams that are looked at at a time.
const lookMax = 16

func (d *Doctor) look(ctx context.Context) (*patient, error) {
	p := &patient{streams: map[feed.Partition]*jetstream.StreamInfo{}, shapes: map[feed.Partition]*feed.Shape{}, oldest: map[feed.Partition]feed.LSN{}, moves: map[feed.Partition]feed.Stretch{}, silent: map[feed.Partition]error{}}
	var err error
	if p.exam, err = store.Examine(ctx, d.js); err != nil {
		return nil, err
	}
	if p.registry, err = registry.Examine(ctx, d.js); err != nil {
		return nil, err
	}
	_, err = d.js.KeyValue(ctx, d.cfg.Wish.Leases)
	if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("look at the leases: %w", err)
	}
	p.leases = err == nil
	type answer struct {
		info   *jetstream.StreamInfo
		shape  *feed.Shape
		oldest feed.LSN
		move   feed.Stretch
		err    error
	}
	// Each goroutine writes to its own answer. A stream that does not answer is a finding, and
	// not an error: the doctor is needed most where something is down.
	answers := make([]answer, len(p.exam.Logs))
	var g errgroup.Group
	g.SetLimit(lookMax)
	for i, log := range p.exam.Logs {
		g.Go(func() error {
			stream, err := feed.StreamOf(ctx, d.js, log)
			if err == nil {
				answers[i].info = stream.CachedInfo()
				answers[i].shape, answers[i].oldest = d.shape(ctx, log, stream.CachedInfo())
				answers[i].move = d.move(ctx, log, stream.CachedInfo())
			}
			answers[i].err = err
			return ctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i, log := range p.exam.Logs {
		switch a := answers[i]; {
		case a.err == nil:
			p.streams[log], p.shapes[log], p.oldest[log], p.moves[log] = a.info, a.shape, a.oldest, a.move
		case !errors.Is(a.err, jetstream.ErrStreamNotFound):
			p.silent[log] = a.err
		}
	}
	return p, nil
}

// shape asks what a log lacks, if its stream does not hold all that it should; nil if
// it does, or if that cannot be told. Of one that was trimmed it asks the replicas too what
// they still hold; 0 if that is not known.
func (d *Doctor) shape(ctx context.Context, p feed.Partition, stream *jetstream.StreamInfo) (shape *feed.Shape, oldest feed.LSN) {
	// A stream that begins at 1 and has as many messages as its last one's number lacks none.
	// That spares a question for most logs.
	if s := &stream.State; s.LastSeq == 0 || s.FirstSeq <= 1 && s.Msgs == s.LastSeq {
		return nil, 0
	}
	log, err := feed.OpenLog(ctx, d.js, p, d.cfg.Log)
	if err != nil {
		return nil, 0 // that it holds no log is told elsewhere
	}
	defer log.Close()
	if stream.Cluster != nil && len(stream.Cluster.Replicas) > 0 {
		oldest, _ = log.Oldest(ctx) // 0 after an error
	}
	shape, _ = log.Shape(ctx) // nil after an error
	return shape, oldest
}

// move asks how far a log is that goes on in a new stream; zero if it does not, or if that
// cannot be told.
func (d *Doctor) move(ctx context.Context, p feed.Partition, stream *jetstream.StreamInfo) feed.Stretch {
	if !stream.Config.DenyPurge {
		return feed.Stretch{}
	}
	log, err := feed.OpenLog(ctx, d.js, p, d.cfg.Log)
	if err != nil {
		return feed.Stretch{}
	}
	defer log.Close()
	m, err := log.Moving(ctx)
	if err != nil || m == nil {
		return feed.Stretch{}
	}
	defer m.Close()
	return feed.Stretch{From: m.First(), To: m.Copied()}
}

// fixes is the remedy of what Fix repairs.
const fixes = "millrace doctor --fix"

// catalog tells what is wrong with the catalog.
func (p *patient) catalog(r *Report) {
	if p.exam.Missing && !p.exam.Fresh {
		r.add(Missing, "bucket "+store.CatalogBucket, fmt.Sprintf("the catalog is not there, and %d logs are", len(p.exam.Logs)),
			fixes+" makes it again from what the logs tell")
	}
	for _, bad := range p.exam.Bad {
		r.add(Damaged, "catalog record "+bad.Key, "it cannot be read: "+bad.Reason, fixes+" puts in its place what its logs tell, or the copy of it")
	}
	if p.exam.Unasked != nil {
		r.add(Warning, "bucket "+spare.Bucket, "the second copies of records cannot be asked: "+p.exam.Unasked.Error(),
			"start the NATS server that has them; what they alone know cannot be judged until then")
	}
	for _, name := range p.exam.Databases {
		r.add(Missing, "database "+name, "its record is lost", fixes+" takes it from its copy")
	}
	for _, lost := range p.unnamed() {
		what := "container " + string(lost.id)
		problem := "no record of the catalog names its " + logsText(lost.logs)
		switch {
		case lost.err != nil:
			r.add(Unnamed, what, fmt.Sprintf("%s, and what they tell cannot be read: %v", problem, lost.err), lost.nameIt())
		case lost.info == nil:
			r.add(Unnamed, what, problem+", and they do not tell whose they are: an earlier release made them", lost.nameIt())
		case p.holder(lost.info.Database, lost.info.Name) != "":
			r.add(Unnamed, what, fmt.Sprintf("%s; they tell that it is %s/%s, and container %s has that name", problem, lost.info.Database, lost.info.Name,
				p.holder(lost.info.Database, lost.info.Name)), lost.nameIt()+" with a name that is free")
		default:
			r.add(Unnamed, what, fmt.Sprintf("%s; they tell that it is %s/%s", problem, lost.info.Database, lost.info.Name), fixes+" enters it")
		}
	}
	for _, log := range p.exam.Left {
		r.add(Warning, "log "+log.String(), fmt.Sprintf("stream %s was made for a container while that was deleted, and is of no use", p.exam.Streams[log]),
			"a store that runs removes it, or "+fixes)
	}
}

// lost is a container that the catalog does not name.
type lost struct {
	id   feed.ResourceID
	logs []feed.Partition
	// info is what the labels tell, those that were written last; nil if there are
	// none. err says that none can be read.
	info  *store.ContainerInfo
	label store.Label
	err   error
}

func (l *lost) nameIt() string {
	return fmt.Sprintf("%s --name %s=DATABASE/CONTAINER", fixes, l.id)
}

// unnamed returns the containers of the logs that no record names, in order.
func (p *patient) unnamed() []*lost {
	all := map[feed.ResourceID]*lost{}
	for _, log := range p.exam.Unnamed {
		l := all[log.Container]
		if l == nil {
			l = &lost{id: log.Container}
			all[log.Container] = l
		}
		l.logs = append(l.logs, log)
		stream := p.streams[log]
		if stream == nil {
			continue
		}
		// The labels of a container's logs may differ, where a store died between two of them:
		// the one that was written last counts.
		label, info, ok, err := store.ReadLabel(stream)
		switch {
		case !ok:
		case err == nil && info.ID != log.Container:
			l.err = cmp.Or(l.err, fmt.Errorf("the label of stream %s is that of container %s", stream.Config.Name, info.ID))
		case err != nil:
			l.err = cmp.Or(l.err, err)
		case l.info == nil || label.Written.After(l.label.Written):
			l.info, l.label = &info, label
		}
	}
	ordered := make([]*lost, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		l := all[id]
		slices.SortFunc(l.logs, func(a, b feed.Partition) int { return cmp.Compare(a.Number, b.Number) })
		if l.info != nil {
			l.err = nil
		}
		ordered = append(ordered, l)
	}
	return ordered
}

// holder returns the id of the container that has a name; "" if none has.
func (p *patient) holder(database, name string) feed.ResourceID {
	at := slices.IndexFunc(p.exam.Containers, func(i store.ContainerInfo) bool { return i.Database == database && i.Name == name })
	if at < 0 {
		return ""
	}
	return p.exam.Containers[at].ID
}

// logs tells what is wrong with the logs of the containers that the catalog names.
func (p *patient) logs(r *Report) {
	unlabelled := 0
	for i := range p.exam.Containers {
		info := &p.exam.Containers[i]
		if info.State != store.ContainerReady {
			continue // what is being made or deleted lacks logs, and is finished by doing it again
		}
		for _, part := range info.Partitions {
			log := feed.Partition{Container: info.ID, Number: part.Number}
			what := fmt.Sprintf("log %s of %s/%s", log, info.Database, info.Name)
			stream := p.streams[log]
			if stream == nil {
				p.noLog(r, what, log)
				continue
			}
			if id, ok := feed.LogOf(stream); !ok || id != part.Log {
				r.add(Damaged, what, fmt.Sprintf("stream %s holds another log than the catalog names", stream.Config.Name),
					"restore the stream from a backup; it was deleted and made anew, or written by something else")
			}
			whole(r, what, stream, p.shapes[log])
			trimmed(r, what, p.shapes[log], p.oldest[log])
			moving(r, what, info, stream, p.moves[log])
			if _, _, ok, err := store.ReadLabel(stream); !ok || err != nil {
				unlabelled++
			}
		}
		p.formers(r, info)
	}
	if unlabelled > 0 {
		r.add(Warning, "labels", fmt.Sprintf("%d logs do not carry the record of their container yet", unlabelled),
			"a store that runs sees to it, or "+fixes)
	}
	if !p.leases && len(p.exam.Logs) > 0 {
		r.add(Warning, "leases", "their bucket is not there", "the next process makes it; pipelines then read again from where they began, which changes no copy that is right")
	}
}

func (p *patient) noLog(r *Report, what string, log feed.Partition) {
	if err := p.silent[log]; err != nil {
		r.add(Missing, what, fmt.Sprintf("stream %s does not answer: %v", p.exam.Streams[log], err), "see to it that a majority of the NATS servers that hold it run")
		return
	}
	r.add(Missing, what, fmt.Sprintf("stream %s is not there, and none that the log may have gone on in", log.Stream()),
		"restore it from a backup. Reads go on where a store's engine is whole: export what is there with millrace export, delete the container and import it again")
}

// whole tells of commits that the stream lacks.
func whole(r *Report, what string, stream *jetstream.StreamInfo, shape *feed.Shape) {
	switch {
	case stream.State.LastSeq == 0:
		r.add(Damaged, what, "it is empty, and even a new log holds a commit", "restore the stream from a backup")
	case shape != nil && shape.Lacks() != "":
		r.add(Damaged, what, "the log lacks "+shape.Lacks(), "see docs/operations.md, Damaged logs and engines")
	}
}

// moving tells of a log whose stream cannot be trimmed, and how far it has gone on in a new one.
func moving(r *Report, what string, info *store.ContainerInfo, stream *jetstream.StreamInfo, copied feed.Stretch) {
	kept := info.Spec.ChangeFeed.Kept()
	switch {
	case !stream.Config.DenyPurge || kept == store.RetentionForever && copied.From == 0:
	case copied.From > 0:
		r.add(Warning, what, fmt.Sprintf("an earlier release made its stream, which denies purges for ever: the log goes on in stream %s_2, which has LSN %d to %d of it; it ends at %d",
			stream.Config.Name, copied.From, copied.To, stream.State.LastSeq), "nothing, its owner goes on with it, whoever that is; describe container says what it waits for")
	default:
		r.add(Warning, what, fmt.Sprintf("an earlier release made its stream, which denies purges for ever: it goes on in a new one when at least half of it may go by changeFeed.retention, which is %s", kept),
			"millrace upgrade --finish, if that was not done; else nothing, describe container says what it waits for")
	}
}

// trimmed tells where a trim did not arrive.
func trimmed(r *Report, what string, shape *feed.Shape, oldest feed.LSN) {
	if shape != nil && oldest > 0 && oldest < shape.First {
		r.add(Warning, what, fmt.Sprintf("a replica of its stream still holds LSN %d, and the log was trimmed and begins at %d: a purge has not arrived there", oldest, shape.First),
			"ask again; if it stays, look at the logs of the NATS servers, and remove and add that replica")
	}
}

// pipelines tells what is wrong with the registry.
func (p *patient) pipelines(r *Report) {
	e := p.registry
	if e.Missing && !e.Fresh {
		problem, remedy := "the registry of pipelines is not there", fixes+" makes it again from the copies of its records"
		if len(e.Lost) == 0 {
			problem += ", and there are no copies of its records"
			remedy = fixes + " makes an empty one; then millrace apply -f with the declarations of all pipelines, which begin anew"
		}
		r.add(Missing, "bucket "+registry.Bucket, problem, remedy)
	}
	for _, bad := range e.Bad {
		r.add(Damaged, "pipeline record "+bad.Key, "it cannot be read: "+bad.Reason, fixes+" puts its copy in its place, or what it was before")
	}
	for _, key := range e.Lost {
		r.add(Missing, "pipeline record "+key, "it is lost", fixes+" takes it from its copy")
	}
}

// replicas tells which streams lack some.
func (d *Doctor) replicas(ctx context.Context, r *Report) error {
	wish := d.cfg.Wish
	n, err := upkeep.Wanted(ctx, d.js)
	if err != nil {
		return err
	}
	if asked := max(wish.Replicas, 1); asked < n && d.cfg.Configured {
		r.add(Warning, "replicas", fmt.Sprintf("%d of every log and bucket are kept, and this configuration asks for %d", n, asked),
			"nothing, if the stores are to keep as many; they are never lowered by themselves, and docs/operations.md, Replicas, says how to")
	}
	wish.Replicas = max(wish.Replicas, n, 1)
	report, err := upkeep.Look(ctx, d.js, wish)
	if err != nil {
		return err
	}
	tellReplicas(r, report)
	return nil
}

// tellReplicas tells of streams that lack replicas, or have ones that do not count.
func tellReplicas(r *Report, report *upkeep.Report) {
	away := false
	for _, s := range report.Streams {
		if s.Short() {
			r.add(Replicas, "stream "+s.Name, fmt.Sprintf("it has %d of %d replicas", s.Actual, s.Wanted),
				"a store that runs adds them when the NATS cluster has as many servers; its log and millrace status say what keeps it from that")
		}
		if len(s.Behind) > 0 {
			r.add(Warning, "stream "+s.Name, "replicas that are not up to date: those on "+strings.Join(s.Behind, ", "),
				"nothing, if they catch up: ask again; else see what the logs of these servers say. Until then the loss of another server can cost the stream its majority")
		}
		away = away || len(s.Offline) > 0
	}
	if away {
		for _, text := range report.Warnings() {
			if strings.Contains(text, "cannot be reached") {
				r.add(Warning, "replicas", text, "start the server again")
			}
		}
	}
}

func logsText(logs []feed.Partition) string {
	if len(logs) == 1 {
		return "log " + logs[0].String()
	}
	return fmt.Sprintf("%d logs %s to %s", len(logs), logs[0], logs[len(logs)-1])
}
