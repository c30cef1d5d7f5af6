package parquetsink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"
)

// deltaFolder holds the Delta log of a table, in the folder of the table.
const deltaFolder = "/_delta_log/"

// deltaLookEvery is how long a process believes at most what it knows of a log's end.
const deltaLookEvery = time.Minute

// errDelta says that a Delta log is not as this package leaves it.
var errDelta = errors.New("parquet sink: a Delta log is not as it was made")

// deltaTable is a table, or its rejects, as a manifest has it for readers.
type deltaTable struct {
	as    string
	l     *layout
	files []file
}

// deltaLog is the Delta Lake log of one table: numbered commits, by which readers of
// all engines find its live files. It decides nothing. It is derived from the manifests,
// and says of each commit which manifest that shows:
//
//	manifests      log of orders             log of lines
//	41             7: adds a, shows 41       3: adds k, shows 41
//	42: a to b     8: a to b, shows 42       42 changes nothing here
//	43: k to l                               not yet: a crash; whoever comes next makes it
//
// It is used by one goroutine at a time.
type deltaLog struct {
	store ObjectStore
	as    string

	// known is set once the log has been read; looked is when that was last. others is how
	// many manifests of other processes had been seen until then.
	known  bool
	looked time.Time
	others uint64
	// What follows is the state at version, -1 before the first commit.
	version  int64
	modified time.Time // of the commit; zero if it is not known
	sum      uint64    // of its bytes, if summed is set
	summed   bool
	shows    uint64 // the manifest
	meta     *deltaMetaData
	files    map[string]*deltaAdd // live, by name in the store
	removed  map[string]time.Time // those that went within the grace, and when
	// checkpointed is the version of the last checkpoint that is known, -1 for none.
	checkpointed int64
	// checked are the checkpoints and the hint at the last one, by name, that are known to be
	// of this package, and of when they are; the zero time is of one that was just made.
	checked map[string]time.Time
}

func newDeltaLog(store ObjectStore, as string) *deltaLog {
	return &deltaLog{
		store: store, as: as, version: -1, meta: &deltaMetaData{}, files: map[string]*deltaAdd{},
		removed: map[string]time.Time{}, checkpointed: -1, checked: map[string]time.Time{},
	}
}

func (d *deltaLog) name(version int64) string {
	return fmt.Sprintf("%s%s%020d.json", d.as, deltaFolder, version)
}

// reset forgets what is known.
func (d *deltaLog) reset() { *d = *newDeltaLog(d.store, d.as) }

// knowsEnd says whether no other program can have made a commit after the one at
// d.version, but a foreign one: nobody else has committed a manifest, whose commit in
// the log would be theirs to make, since this process has looked, and that is no longer ago than
// every. A foreign commit has the number of the next one of ours, which is then refused by
// the store; that is when derive looks. All else that others may do to a log, such as removing
// it, is found by add, or when every is over.
func (d *deltaLog) knowsEnd(others uint64, every time.Duration) bool {
	return d.known && d.summed && d.others == others && time.Since(d.looked) < every
}

// refresh reads the commits that have come since the last one that is known.
func (d *deltaLog) refresh(ctx context.Context) error {
	there, err := d.list(ctx)
	if err != nil {
		return err
	}
	looked := time.Now()
	// The last one that is known must be there still, and be the same: an operator may
	// have removed the log, and another process may have made it again, or have removed
	// commits that a checkpoint holds.
	if d.version >= 0 {
		same, err := d.goesOn(ctx, &there)
		if err != nil {
			return err
		}
		if !same {
			d.reset()
		}
	}
	if err := d.checkCheckpoints(ctx, &there); err != nil {
		return err
	}
	if n := len(there.checkpoints); d.version < 0 && n > 0 {
		if err := d.readCheckpoint(ctx, there.checkpoints[n-1].number); err != nil {
			return err
		}
	}
	for _, v := range there.commits {
		if v.number > d.version {
			if err := d.read(ctx, v.number); err != nil {
				return err
			}
		}
		if v.number == d.version {
			d.modified = v.modified
		}
	}
	d.known, d.looked = true, looked
	return nil
}

// goesOn says whether the log, of which there are the commits there, still has the one at
// d.version.
func (d *deltaLog) goesOn(ctx context.Context, there *deltaVersions) (bool, error) {
	if !there.begin() || !there.followOn(d.version, d.modified) {
		return false, nil
	}
	if d.modified.IsZero() {
		// This process made the commit and has not seen it in a list. If the log was removed
		// and made again since, another commit may have its number.
		_, same, err := d.readEnd(ctx)
		return same, err
	}
	return true, nil
}

// readEnd says whether the commit at d.version is there, and the same.
func (d *deltaLog) readEnd(ctx context.Context) (there, same bool, err error) {
	name := d.name(d.version)
	data, err := d.store.Get(ctx, name)
	if missing(err) {
		return false, false, nil
	}
	return true, d.summed && xxhash.Sum64(data) == d.sum, unreachable("read "+name, err)
}

// deltaVersion is a commit or a checkpoint in a list.
type deltaVersion struct {
	number   int64
	name     string
	modified time.Time
}

// deltaVersions are the commits and checkpoints of a log, in the order of numbers, and what
// else readers go by: the hint at the last checkpoint, and what only other programs make.
type deltaVersions struct {
	commits, checkpoints []deltaVersion
	hint                 *Object
	foreign              []string
}

// begin says whether readers can read the log from its first commit or from a checkpoint.
// They cannot if a commit was made while somebody was removing the log.
func (v *deltaVersions) begin() bool {
	return len(v.checkpoints) > 0 || len(v.commits) > 0 && v.commits[0].number == 0
}

// followOn says whether there is a version, as it was when it was modified, and those after
// it without a gap. The time is zero if it is not known.
func (v *deltaVersions) followOn(version int64, modified time.Time) bool {
	from := slices.IndexFunc(v.commits, func(c deltaVersion) bool { return c.number >= version })
	if from < 0 {
		return false
	}
	for i, c := range v.commits[from:] {
		if c.number != version+int64(i) {
			return false
		}
	}
	return modified.IsZero() || modified.Equal(v.commits[from].modified)
}

// list lists the log. It is short, see deltaLog.shorten: mostly one request.
func (d *deltaLog) list(ctx context.Context) (there deltaVersions, err error) {
	for o, err := range d.store.List(ctx, d.as+deltaFolder, "") {
		if err != nil {
			return there, unreachable("list the Delta log of "+d.as, err)
		}
		v, checkpoint, ok := d.parse(o)
		switch {
		case checkpoint:
			there.checkpoints = append(there.checkpoints, v)
		case ok:
			there.commits = append(there.commits, v)
		case o.Name == d.hintName():
			there.hint = &o
		case deltaForeign(strings.TrimPrefix(o.Name, d.as+deltaFolder)):
			there.foreign = append(there.foreign, o.Name)
		default: // readers pass it over, as they do a checksum of a version
		}
	}
	return there, nil
}

// parse returns which version an object is; ok is false for anything else.
func (d *deltaLog) parse(o Object) (v deltaVersion, checkpoint, ok bool) {
	digits, ok := strings.CutSuffix(strings.TrimPrefix(o.Name, d.as+deltaFolder), ".json")
	if !ok {
		digits, checkpoint = strings.CutSuffix(digits, checkpointSuffix)
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if !ok && !checkpoint || len(digits) != 20 || err != nil {
		return v, false, false
	}
	return deltaVersion{number, o.Name, o.Modified}, checkpoint, true
}

// read reads the next commit, which has the number version.
func (d *deltaLog) read(ctx context.Context, version int64) error {
	name := d.name(version)
	if version != d.version+1 {
		return unreachable(name, fmt.Errorf("%w: the commit before is missing: %s", errDelta, d.wayOut()))
	}
	data, err := d.store.Get(ctx, name)
	if err != nil {
		return unreachable("read "+name, err)
	}
	actions, err := decodeDelta(data)
	if err != nil {
		return unreachable(name, fmt.Errorf("%w: %w: %s", errDelta, err, d.wayOut()))
	}
	if err := d.checkOurs(actions); err != nil {
		return unreachable(name, err)
	}
	d.sum, d.summed = xxhash.Sum64(data), true
	return unreachable(name, d.apply(version, actions))
}

// checkOurs refuses a commit that another program has made. What it did to the table is
// in no manifest, so the next commit of ours could not be right for its readers. One that
// did nothing to it passes: Spark notes a VACUUM so.
func (d *deltaLog) checkOurs(actions []deltaAction) error {
	if len(actions) > 0 && !slices.ContainsFunc(actions, func(a deltaAction) bool { return a.CommitInfo == nil }) {
		return nil
	}
	by := "another program"
	for i := range actions {
		if txn := actions[i].Txn; txn != nil && txn.AppID == deltaApp {
			return nil
		}
		if info := actions[i].CommitInfo; info != nil {
			by = fmt.Sprintf("%q (operation %q)", info.Engine, info.Operation)
		}
	}
	return fmt.Errorf("%w: this commit was made by %s, and only the pipeline may write the table: %s", errDelta, by, d.wayOut())
}

func (d *deltaLog) wayOut() string {
	folder := strings.TrimSuffix(d.as+deltaFolder, "/")
	command := ""
	switch at := d.store.(type) {
	case *Dir:
		command = fmt.Sprintf(" (rm -r '%s')", at.path(folder))
	case bucket:
		command = fmt.Sprintf(" (aws s3 rm --recursive '%s%s/')", at, folder)
	}
	return "pause the pipeline, then remove the folder " + folder + " with all that is in it" + command +
		", and resume; it is made again from the manifest"
}

// apply takes a commit into the state.
func (d *deltaLog) apply(version int64, actions []deltaAction) error {
	for i := range actions {
		a := &actions[i]
		switch {
		case a.MetaData != nil:
			d.meta = a.MetaData
		case a.Txn != nil && a.Txn.AppID == deltaApp:
			d.shows = uint64(max(a.Txn.Version, 0))
		case a.Add != nil:
			name, err := deltaName(d.as, a.Add.Path)
			if err != nil {
				return fmt.Errorf("%w: %w", errDelta, err)
			}
			d.files[name] = a.Add
			delete(d.removed, name)
		case a.Remove != nil:
			name, err := deltaName(d.as, a.Remove.Path)
			if err != nil {
				return fmt.Errorf("%w: %w", errDelta, err)
			}
			delete(d.files, name)
			d.removed[name] = time.UnixMilli(a.Remove.DeletionTimestamp)
		default:
		}
	}
	d.version, d.modified = version, time.Time{}
	return nil
}

// derive makes the next commit, unless the log shows a table as manifest m has it.
//
// The commit is made exclusively. Whoever loses reads the winner's, and then either has
// nothing left to do or makes the one after it. So a derivation that a crash has
// interrupted, or that two processes begin at once, is carried out once.
//
// If the log shows a later manifest than m, and one that is later than restored, nothing
// is made, and ahead is its number.
//
// Without look the first attempt rests on what is known of the log, which saves the
// list of it.
func (d *deltaLog) derive(ctx context.Context, m *manifest, t *deltaTable, look bool, restored uint64) (ahead uint64, err error) {
	for attempt := range commitAttemptsMax {
		look = look || attempt > 0
		if look {
			if err := d.refresh(ctx); err != nil {
				return 0, err
			}
		}
		if d.shows > max(m.Changed, restored) {
			return d.shows, nil
		}
		actions, err := d.changes(m, t)
		if err != nil || len(actions) == 0 {
			return 0, err
		}
		data, err := encodeDelta(actions)
		if err != nil {
			return 0, err
		}
		made, err := d.add(ctx, data, look)
		if err != nil {
			return 0, err
		}
		if made {
			d.sum, d.summed = xxhash.Sum64(data), true
			return 0, d.apply(d.version+1, actions)
		}
	}
	return 0, unreachable("write the Delta log of "+d.as, fmt.Errorf("others were faster %d times in a row", commitAttemptsMax))
}

// add makes the commit after the one at d.version, unless there is one: by another process, or by
// us, who did not hear the answer. Unless the caller has looked, add reads the end of the log
// meanwhile. If that is not what it was, an operator has removed the log beside this process:
//
//	we know up to 7     somebody removes the log        8 is made, and 7 is not there: 8 goes again
//	we know up to 7     … and it is made again up to 7  8 is made, and is wrong: the next commit puts it right
func (d *deltaLog) add(ctx context.Context, data []byte, looked bool) (made bool, err error) {
	there, same, endErr := true, true, error(nil)
	var group errgroup.Group
	if !looked {
		group.Go(func() error {
			there, same, endErr = d.readEnd(ctx)
			return nil
		})
	}
	name := d.name(d.version + 1)
	err = d.store.PutExclusive(ctx, name, data)
	_ = group.Wait() // there is none
	switch {
	case exists(err):
		return false, nil
	case err != nil:
		return false, unreachable("write "+name, err)
	case endErr != nil:
		d.looked = time.Time{} // the commit is there, which the next attempt finds
		return false, endErr
	case same:
		return true, nil
	}
	d.reset()
	if !there {
		return false, unreachable("remove "+name, d.store.Delete(ctx, name))
	}
	return false, nil
}

// changes returns the actions that bring the log from its state to a table of m, none if
// it is there.
func (d *deltaLog) changes(m *manifest, t *deltaTable) ([]deltaAction, error) {
	schema, same := d.meta.SchemaString, true
	if t.l != nil { // a table that a swap has removed keeps its columns and loses its rows
		var err error
		if schema, err = deltaSchema(t.l); err != nil {
			return nil, err
		}
		same = schema == d.meta.SchemaString && maps.Equal(d.meta.Configuration, deltaConfiguration())
	}
	now := time.Now().UnixMilli()
	files, err := d.changedFiles(m, t, now)
	if err != nil || len(files) == 0 && same && !d.missed(m) {
		return nil, err
	}
	operation := "WRITE"
	if d.version < 0 {
		operation = "CREATE TABLE AS SELECT"
	}
	actions := []deltaAction{
		{CommitInfo: &deltaInfo{Timestamp: now, Operation: operation, Engine: deltaApp, Parameters: map[string]any{
			"manifest": strconv.FormatUint(m.Number, 10), "pipeline": m.Pipeline,
		}}},
		{Txn: &deltaTxn{AppID: deltaApp, Version: int64(m.Changed), LastUpdated: now}},
	}
	if d.version < 0 {
		actions = append(actions, deltaAction{Protocol: &deltaProtocol{Reader: deltaReader, Writer: deltaWriter}})
	}
	if !same {
		id := d.meta.ID
		if id == "" {
			id = newDeltaID()
		}
		actions = append(actions, deltaAction{MetaData: &deltaMetaData{
			ID: id, Format: deltaFormat{Provider: "parquet", Options: map[string]string{}}, SchemaString: schema,
			PartitionColumns: []string{}, Configuration: deltaConfiguration(), CreatedTime: now,
		}})
	}
	return append(actions, files...), nil
}

// missed says whether a file of the table has gone by a manifest that the log does not show
// yet. Then a commit is needed even if it changes nothing. The file may have come by a
// manifest that the log does not show either, and its process may stand still before the
// log:
//
//	manifests        log of orders
//	41               7: adds a, shows 41
//	42: adds b       not yet: process 1 stands still before it makes 8
//	43: removes b    8: shows 43, without which process 1 would make 8, and add b, when b
//	                 has been deleted
func (d *deltaLog) missed(m *manifest) bool {
	return d.version >= 0 && m.Changed > d.shows && slices.ContainsFunc(m.Removed, func(r removed) bool {
		return r.By > d.shows && tableOfFile(r.Path) == d.as
	})
}

// changedFiles returns the actions for files that have gone and that have come, in
// the order of names and of the manifest.
func (d *deltaLog) changedFiles(m *manifest, t *deltaTable, now int64) (actions []deltaAction, err error) {
	live := make(map[string]bool, len(t.files))
	for i := range t.files {
		live[t.files[i].Path] = true
	}
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		if !live[name] {
			// Now, not when the manifest was made: readers could find the file in this log
			// until now, so from now on it stays for the grace.
			actions = append(actions, deltaAction{Remove: &deltaRemove{Path: deltaPath(t.as, name), DeletionTimestamp: now, DataChange: true}})
		}
	}
	for i := range t.files {
		f := &t.files[i]
		if d.files[f.Path] != nil {
			continue
		}
		stats, err := deltaStats(t.l, f)
		if err != nil {
			return nil, err
		}
		actions = append(actions, deltaAction{Add: &deltaAdd{
			Path: deltaPath(t.as, f.Path), PartitionValues: map[string]string{}, Size: f.Bytes,
			ModificationTime: m.Time.UnixMilli(), DataChange: true, Stats: stats,
		}})
	}
	return actions, nil
}

// forget drops the files from removed that went longer ago than grace.
func (d *deltaLog) forget(grace time.Duration) {
	for name, at := range d.removed {
		if time.Since(at) >= grace {
			delete(d.removed, name)
		}
	}
}
