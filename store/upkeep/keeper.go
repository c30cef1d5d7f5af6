// Package upkeep keeps the streams and buckets of a Millrace as they are to be,
// whoever made them and however they were configured then: each log carries the
// record of its container, each stream and bucket has the replicas that the stores
// are configured to keep, and what stands in one bucket alone has a second copy.
// Deletions of containers that were cut off are finished, and logs that were made for a
// container while it was deleted are removed.
//
//	catalog ──records──▶ labels of the logs' streams
//	                     replicas of all streams and buckets ◀── durability
//	pipelines, databases ──records──▶ bucket of copies
//
// Every store runs a Keeper. Each change is made where it is missing only and says
// the same whoever makes it, so keepers need no agreement. Replicas are added and
// never taken away: a process with an older configuration must not lower what
// others rely on. Of two stores that are configured differently the greater number
// holds; it is remembered with the catalog's bucket, so that commands and stores
// that start later keep to it.
//
// Nothing here decides a write or is waited for by one: a stream that lacks a
// replica is told of, in the log, by a metric and by Report, and goes on.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/spare"
)

const (
	// intervalDefault is the time between two passes while nothing changes.
	leftMinDefault  = time.Minute
	intervalDefault = 10 * time.Second
	// shortInterval is that while replicas are missing.
	shortInterval = 2 * time.Second
	// passTimeout bounds a pass, which may have to change every stream.
	passTimeout = 5 * time.Minute
)

// Config tunes a Keeper. Zero fields take their defaults.
type Config struct {
	// Wish says how many replicas to keep.
	Wish Wish
	// Copies are the records that have a second copy.
	Copies []spare.Source
	// Interval is the time between two passes while nothing changes. Default 10s.
	Interval time.Duration
	// DeletionMax is how long a container may be about to be deleted before that is taken over
	// from whoever began it. Default 1m.
	DeletionMax time.Duration
	// LeftMin is for how long a log must have been of no use to anybody before it is removed: one that is being restored
	// looks like that until its second commit is there. Default 1m; less than 0: it is removed when it is seen.
	LeftMin time.Duration
	// Logger takes what is not as it is to be, once. Default slog.Default().
	Logger *slog.Logger
}

// Keeper keeps streams and buckets as they are to be. Run and Pass may be called
// concurrently.
type Keeper struct {
	js      jetstream.JetStream
	catalog *store.Catalog
	copies  *spare.Copies
	cfg     Config

	told map[string]string // what was logged, by subject; owned by Run

	mu   sync.Mutex                   // guards left
	left map[feed.Partition]time.Time // since when logs have had no record, as this process has seen it
}

// NewKeeper returns a Keeper of the NATS system that the catalog is in.
func NewKeeper(js jetstream.JetStream, catalog *store.Catalog, cfg Config) *Keeper {
	cfg.Wish.Replicas = max(cfg.Wish.Replicas, 1)
	if cfg.LeftMin == 0 {
		cfg.LeftMin = leftMinDefault
	}
	if cfg.Interval == 0 {
		cfg.Interval = intervalDefault
	}
	if cfg.DeletionMax == 0 {
		cfg.DeletionMax = time.Minute
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Keeper{
		js: js, catalog: catalog, copies: spare.New(js, cfg.Wish.Replicas), cfg: cfg, told: map[string]string{},
	}
}

// Run makes a pass now, after every change of the catalog, and every Interval,
// until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		k.watch(watching, changed)
	}()
	defer func() { stop(); <-watched }()
	tick := time.NewTicker(k.cfg.Interval)
	defer tick.Stop()
	for {
		pass, cancel := context.WithTimeout(ctx, passTimeout)
		report, err := k.Pass(pass)
		cancel()
		if ctx.Err() != nil {
			return
		}
		k.logChanges(report, err)
		var soon <-chan time.Time
		if report != nil && len(report.Short()) > 0 {
			soon = time.After(min(shortInterval, k.cfg.Interval)) // servers are being chosen
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-soon:
		case <-tick.C:
		}
	}
}

// watch wakes Run when the catalog has changed.
func (k *Keeper) watch(ctx context.Context, changed chan<- struct{}) {
	for ctx.Err() == nil {
		// A watch that broke begins anew; meanwhile the interval counts.
		_ = k.catalog.Watch(ctx, func([]store.ContainerInfo) {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
		select {
		case <-ctx.Done():
		case <-time.After(k.cfg.Interval):
		}
	}
}

// finishDeletions deletes containers whose deletion was begun and not ended, because its process was
// killed or its client has gone, and returns them. Their names could not be used again.
func (k *Keeper) finishDeletions(ctx context.Context, records []store.Record) (deleted []string, err error) {
	var errs []error
	for i := range records {
		r := &records[i]
		if r.Info.State != store.ContainerDeleting || time.Since(r.Written) < k.cfg.DeletionMax {
			continue
		}
		name := r.Info.Database + "/" + r.Info.Name
		step, cancel := context.WithTimeout(ctx, stepTimeout)
		removed, err := k.catalog.FinishDelete(step, &r.Info)
		cancel()
		switch {
		case err != nil: // one that has changed is looked at again
			errs = append(errs, fmt.Errorf("finish the deletion of container %s: %w", name, err))
		case removed:
			k.cfg.Logger.Info("a container is deleted whose deletion was cut off", "container", name, "id", string(r.Info.ID))
			deleted = append(deleted, name)
		}
	}
	return deleted, errors.Join(errs...)
}

// removeLeft removes the logs of containers that were deleted, and of splits that were given up, which somebody who was late
// has made since, and returns those that it has removed.
func (k *Keeper) removeLeft(ctx context.Context, all []listed, records []store.Record) (removed []feed.Partition, err error) {
	named := map[feed.Partition]bool{}
	for i := range records {
		for _, p := range records[i].Info.Named() {
			named[feed.Partition{Container: records[i].Info.ID, Number: p.Number}] = true
		}
	}
	unnamed := map[feed.Partition][]*jetstream.StreamInfo{}
	for i := range all {
		if p, isLog := feed.ParseStream(all[i].name); isLog && !named[p] {
			unnamed[p] = append(unnamed[p], all[i].info)
		}
	}
	if !k.longUnnamed(unnamed, time.Now()) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	removed, err = k.catalog.RemoveLeft(ctx, unnamed)
	for _, p := range removed {
		k.cfg.Logger.Info("a log is removed that was made late, for a container that was deleted or a split that was given up", "partition", p.String())
	}
	if err != nil {
		return removed, fmt.Errorf("remove what is left of a deleted container: %w", err)
	}
	return removed, nil
}

// longUnnamed notes which logs have no record, and tells whether that is so for long of all of them.
func (k *Keeper) longUnnamed(unnamed map[feed.Partition][]*jetstream.StreamInfo, now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	left, long := make(map[feed.Partition]time.Time, len(unnamed)), len(unnamed) > 0
	for p := range unnamed {
		since, seen := k.left[p]
		if !seen {
			since = now
		}
		left[p] = since
		long = long && now.Sub(since) >= k.cfg.LeftMin
	}
	k.left = left
	return long
}

// Pass brings everything to what it is to be and tells what is short of it even
// so. An error says what could not be done; the rest was.
func (k *Keeper) Pass(ctx context.Context) (*Report, error) {
	var errs []error
	wish, err := k.replicasWish(ctx)
	if err != nil {
		return nil, err
	}
	// The records are read after the streams: a stream that is there has one then.
	all, err := list(ctx, k.js)
	if err != nil {
		return nil, err
	}
	step, cancel := context.WithTimeout(ctx, stepTimeout)
	records, err := k.catalog.Records(step)
	cancel()
	var removed []feed.Partition
	if errs = append(errs, err); err == nil {
		removed, err = k.removeLeft(ctx, all, records)
		errs = append(errs, err)
	}
	deleted, err := k.finishDeletions(ctx, records)
	errs = append(errs, err)
	labelled, err := labelsOf(records)
	if err != nil {
		errs = append(errs, err)
	}
	failed, err := k.updateStreams(ctx, all, &wish, labelled)
	errs = append(errs, err)
	for _, source := range k.cfg.Copies {
		step, cancel := context.WithTimeout(ctx, stepTimeout)
		err := k.copies.Reconcile(step, source)
		cancel()
		if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
			errs = append(errs, err)
		}
	}
	report := wish.report(all)
	report.Deleted, report.Removed = deleted, removed
	for i := range report.Streams {
		s := &report.Streams[i]
		if text, ok := failed[s.Name]; ok {
			s.Error = text
		}
	}
	meters.record(ctx, report)
	return report, errors.Join(errs...)
}

// replicasWish returns how many replicas to keep: what this process is configured with, or
// what another was that asked for more. It is remembered with the catalog.
func (k *Keeper) replicasWish(ctx context.Context) (Wish, error) {
	w := k.cfg.Wish
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	stream, err := k.js.Stream(ctx, catalogStream)
	if err != nil {
		return w, fmt.Errorf("look at the catalog's bucket: %w", err)
	}
	cfg := stream.CachedInfo().Config
	w.Replicas = max(w.Replicas, wanted(&cfg))
	if cfg.Metadata[wishLabel] == strconv.Itoa(w.Replicas) {
		return w, nil
	}
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	cfg.Metadata[wishLabel] = strconv.Itoa(w.Replicas)
	if _, err := k.js.UpdateStream(ctx, cfg); err != nil {
		return w, fmt.Errorf("note at the catalog's bucket that %d replicas are kept: %w", w.Replicas, err)
	}
	return w, nil
}

// labels are what the stream of a log is to carry: the record, and the texts that
// say it.
type labels struct {
	record []byte
	texts  map[string]string
}

// labelsOf returns the labels that the streams of all containers are to have.
func labelsOf(records []store.Record) (map[string]labels, error) {
	all := map[string]labels{}
	var errs []error
	for i := range records {
		r := &records[i]
		if r.Info.State == store.ContainerDeleting {
			continue
		}
		for _, p := range r.Info.Named() {
			l, err := store.Labels(r.Data, r.Written, p)
			if err != nil {
				errs = append(errs, fmt.Errorf("container %s/%s: %w", r.Info.Database, r.Info.Name, err))
				break
			}
			all[feed.Partition{Container: r.Info.ID, Number: p.Number}.Stream()] = labels{r.Data, l}
		}
	}
	return all, errors.Join(errs...)
}

// logName returns the name that labelsOf has for the log of a stream, which may be the
// second one that it is in.
func logName(stream string) string {
	if p, isLog := feed.ParseStream(stream); isLog {
		return p.Stream()
	}
	return stream
}

// isCopy says whether a stream is to hold a log and does not yet. Its owner labels it when
// it does; to write its configuration meanwhile could take that away again.
func isCopy(stream *jetstream.StreamInfo) bool {
	_, isLog := feed.ParseStream(stream.Config.Name)
	_, holds := feed.LogOf(stream)
	return isLog && !holds
}

func lacks(cfg *jetstream.StreamConfig, replicas int, l labels) bool {
	return cfg.Replicas < replicas || !l.on(cfg)
}

// on reports whether a stream carries the labels. A label with the same record, written at
// another time, counts as the same.
func (l *labels) on(cfg *jetstream.StreamConfig) bool {
	for name, text := range l.texts {
		is := cfg.Metadata[name]
		if is != text && (name != store.LabelContainer || !store.LabelHolds(is, l.record)) {
			return false
		}
	}
	return true
}

// updateStreams changes the streams that lack something, several at once for the reason of askedMax.
// It returns why those could not be changed that could not, by name.
func (k *Keeper) updateStreams(ctx context.Context, all []listed, wish *Wish, labelled map[string]labels) (failed map[string]string, err error) {
	found := make([]error, len(all))
	var g errgroup.Group
	g.SetLimit(askedMax)
	for i := range all {
		l := &all[i]
		n, texts := wish.replicasOf(l.name), labelled[logName(l.name)]
		// By what the list says, which may be old: update looks again before it writes.
		if n == 0 || l.err != nil || isCopy(l.info) || !lacks(&l.info.Config, n, texts) {
			continue
		}
		g.Go(func() error {
			found[i] = k.updateStream(ctx, l, n, texts)
			return nil
		})
	}
	_ = g.Wait() // each has its own error
	failed = map[string]string{}
	var errs []error
	for i, err := range found {
		if err == nil {
			continue
		}
		l := &all[i]
		failed[l.name] = err.Error()
		if l.info.Config.Replicas >= wish.replicasOf(l.name) { // a shortage is told by the report
			errs = append(errs, fmt.Errorf("label stream %s: %w", l.name, err))
		}
	}
	return failed, errors.Join(errs...)
}

// updateStream changes a stream that lacks something, from what it is now and not from
// what it was when it was listed. What it is then stands in l.
func (k *Keeper) updateStream(ctx context.Context, l *listed, replicas int, is labels) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	stream, err := k.js.Stream(ctx, l.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return err
	}
	l.info = stream.CachedInfo()
	cfg := l.info.Config
	if isCopy(l.info) || !lacks(&cfg, replicas, is) {
		return nil
	}
	relabelled := cfg
	relabelled.Metadata = maps.Clone(cfg.Metadata)
	if relabelled.Metadata == nil {
		relabelled.Metadata = map[string]string{}
	}
	maps.Copy(relabelled.Metadata, is.texts)
	enough := relabelled
	enough.Replicas = max(cfg.Replicas, replicas)
	updated, err := k.js.UpdateStream(ctx, enough)
	if err == nil {
		l.info = updated.CachedInfo()
		return nil
	}
	if enough.Replicas > cfg.Replicas && !is.on(&cfg) {
		// One update asks for both. Where it is refused for want of servers, the log still gets
		// its labels, by which a lost record is found again.
		if updated, again := k.js.UpdateStream(ctx, relabelled); again == nil {
			l.info = updated.CachedInfo()
		}
	}
	return k.explainRefusal(err)
}

// Codes of JetStream's API errors.
const (
	codeReplicasNotSupported = 10074
	codeNoSuitablePeers      = 10005
)

// explainRefusal says what an operator can do about a refused update.
func (k *Keeper) explainRefusal(err error) error {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return err
	}
	if api.ErrorCode == codeReplicasNotSupported {
		return fmt.Errorf("the NATS server is alone, and replicas need a cluster of three: join it to one, or set durability to disk (%w)", err)
	}
	if api.ErrorCode == codeNoSuitablePeers {
		return fmt.Errorf("the NATS cluster has too few servers that can be reached (%w)", err)
	}
	return err
}

// logChanges logs what has changed since the last pass.
func (k *Keeper) logChanges(report *Report, err error) {
	k.ifChanged("upkeep", errText(err), func(text string) {
		if text == "" {
			k.cfg.Logger.Info("logs and buckets could be brought to what they are to be again")
			return
		}
		k.cfg.Logger.Warn("logs and buckets could not all be brought to what they are to be; trying again", slog.String("error", text))
	})
	if report == nil {
		return
	}
	k.ifChanged("replicas", strings.Join(report.Warnings(), "; "), func(text string) {
		if text == "" {
			k.cfg.Logger.Info("every log and bucket has its replicas", slog.Int("replicas", report.Wanted))
			return
		}
		k.cfg.Logger.Warn("replicas", slog.String("warning", text))
	})
}

// ifChanged calls say when text is another than it was; "" is how everything begins.
func (k *Keeper) ifChanged(what, text string, say func(text string)) {
	if k.told[what] != text {
		k.told[what] = text
		say(text)
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	lines := slices.Compact(strings.Split(err.Error(), "\n"))
	return strings.Join(lines, "; ")
}
