package parquetsink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
)

const (
	// deltaCheckpointEvery is how many commits a reader of a Delta log reads at most
	// beside a checkpoint, or a few more: a checkpoint lists all live files, as each
	// manifest does.
	deltaCheckpointEvery = 20

	checkpointSuffix   = ".checkpoint.parquet"
	lastCheckpointName = "_last_checkpoint"
	// checkpointMark is in the metadata of each checkpoint that was made here. The state in it
	// would not tell: a checkpoint of another program repeats the txn of our commits.
	checkpointMark = "millrace.checkpoint"
)

func (d *deltaLog) hintName() string { return d.as + deltaFolder + lastCheckpointName }

// deltaForeign says whether readers take a state from an object of a log that this package
// never makes: a checkpoint in parts or with sidecars, or several commits in one.
func deltaForeign(name string) bool {
	return strings.Contains(name, ".checkpoint.") || strings.HasSuffix(name, ".compacted.json") || strings.HasPrefix(name, "_sidecars/")
}

// checkCheckpoints refuses a checkpoint, or a hint at one, of another program. Readers begin with
// it, and what it says of the table is in no manifest. Of those that were there
// before this process looked first only the newest counts.
func (d *deltaLog) checkCheckpoints(ctx context.Context, there *deltaVersions) error {
	if len(there.foreign) > 0 {
		return unreachable(there.foreign[0], d.foreign("this checkpoint", "another program"))
	}
	newest := len(there.checkpoints) - 1
	for i, c := range there.checkpoints {
		at, ours := d.checked[c.name]
		if !ours && (d.known || i == newest) || ours && !at.IsZero() && !at.Equal(c.modified) {
			data, err := d.store.Get(ctx, c.name)
			if err == nil {
				_, err = d.decodeCheckpoint(data)
			}
			if err != nil && !missing(err) { // others may have removed it meanwhile
				return unreachable(c.name, err)
			}
		}
		d.checked[c.name] = c.modified
	}
	if there.hint == nil {
		return nil
	}
	if at, ours := d.checked[there.hint.Name]; !ours || !at.IsZero() && !at.Equal(there.hint.Modified) {
		if err := d.checkHint(ctx); err != nil {
			return unreachable(there.hint.Name, err)
		}
	}
	d.checked[there.hint.Name] = there.hint.Modified
	return nil
}

// deltaHint is the content of _last_checkpoint. Other programs say more in it.
type deltaHint struct {
	Version int64 `json:"version"`
	Size    int64 `json:"size"`
}

func (d *deltaLog) checkHint(ctx context.Context) error {
	data, err := d.store.Get(ctx, d.hintName())
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	var hint deltaHint
	strict := json.NewDecoder(bytes.NewReader(data))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&hint); err != nil {
		return d.foreign("this hint at a checkpoint", "another program")
	}
	return nil
}

// foreign is the refusal of what another program has made.
func (d *deltaLog) foreign(what, by string) error {
	return fmt.Errorf("%w: %s was made by %s, and only the pipeline may write the table: %s", errDelta, what, by, d.wayOut())
}

func (d *deltaLog) checkpointName(version int64) string {
	return fmt.Sprintf("%s%s%020d%s", d.as, deltaFolder, version, checkpointSuffix)
}

// checkpoint writes the state at the newest version as a checkpoint, unless there is a
// recent one, and removes what a checkpoint has made superfluous.
func (d *deltaLog) checkpoint(ctx context.Context, every int64, grace time.Duration) error {
	there, err := d.list(ctx)
	if err != nil {
		return err
	}
	if n := len(there.checkpoints); n > 0 { // another process may have made it
		d.checkpointed = max(d.checkpointed, there.checkpoints[n-1].number)
	}
	if d.version-d.checkpointed < every {
		return nil
	}
	d.forget(grace)
	actions := d.state()
	data, err := encodeCheckpoint(actions)
	if err != nil {
		return err
	}
	// Two processes that write a checkpoint of one version write the same state.
	name := d.checkpointName(d.version)
	if err := d.store.Put(ctx, name, data); err != nil {
		return unreachable("write "+name, err)
	}
	d.checkpointed = d.version
	d.checked[name] = time.Time{}
	if err := d.hint(ctx, len(actions)); err != nil {
		return err
	}
	return d.shorten(ctx, &there, grace)
}

// hint tells readers of the checkpoint that was made, so that they need not list the
// whole log. If there is a later one by now, this process has stood still, and its hint
// has taken the place of a newer one: it goes, and the next checkpoint brings another.
func (d *deltaLog) hint(ctx context.Context, size int) error {
	data, err := json.Marshal(deltaHint{Version: d.checkpointed, Size: int64(size)})
	if err != nil {
		return err
	}
	name := d.hintName()
	if err := d.store.Put(ctx, name, data); err != nil {
		return unreachable("write "+name, err)
	}
	d.checked[name] = time.Time{}
	there, err := d.list(ctx)
	if err != nil {
		return err
	}
	// From now on whoever replaces one of the two is noticed.
	if there.hint != nil {
		d.checked[name] = there.hint.Modified
	}
	for _, c := range there.checkpoints {
		if c.number == d.checkpointed {
			d.checked[c.name] = c.modified
		}
	}
	if n := len(there.checkpoints); n > 0 && there.checkpoints[n-1].number > d.checkpointed {
		return unreachable("remove "+name, d.store.Delete(ctx, name))
	}
	return nil
}

// shorten removes commits and checkpoints before the newest checkpoint that is older than
// grace: who reads a version of within the grace finds what it needs.
func (d *deltaLog) shorten(ctx context.Context, there *deltaVersions, grace time.Duration) error {
	first := int64(-1)
	for _, c := range there.checkpoints {
		if time.Since(c.modified) >= grace {
			first = c.number
		}
	}
	var old []string
	for _, v := range slices.Concat(there.commits, there.checkpoints) {
		if v.number < first && len(old) < deletesMax {
			old = append(old, v.name)
		}
	}
	if len(old) == 0 {
		return nil
	}
	return unreachable("remove old commits of the Delta log of "+d.as, d.store.Delete(ctx, old...))
}

// state returns the actions that make an empty table what it is at the newest version.
func (d *deltaLog) state() []deltaAction {
	actions := []deltaAction{
		{Protocol: &deltaProtocol{Reader: deltaReader, Writer: deltaWriter}},
		{MetaData: d.meta},
		{Txn: &deltaTxn{AppID: deltaApp, Version: int64(d.shows), LastUpdated: time.Now().UnixMilli()}},
	}
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		add := *d.files[name]
		add.DataChange = false // a checkpoint changes nothing
		actions = append(actions, deltaAction{Add: &add})
	}
	for _, name := range slices.Sorted(maps.Keys(d.removed)) {
		actions = append(actions, deltaAction{Remove: &deltaRemove{Path: deltaPath(d.as, name), DeletionTimestamp: d.removed[name].UnixMilli()}})
	}
	return actions
}

func encodeCheckpoint(actions []deltaAction) ([]byte, error) {
	var buf bytes.Buffer
	w := parquet.NewGenericWriter[deltaAction](&buf, parquet.Compression(codec), parquet.DataPageVersion(1),
		parquet.KeyValueMetadata(checkpointMark, "1"))
	if _, err := w.Write(actions); err != nil {
		return nil, err
	}
	err := w.Close()
	return buf.Bytes(), err
}

// readCheckpoint sets the state to that of a checkpoint.
func (d *deltaLog) readCheckpoint(ctx context.Context, version int64) error {
	name := d.checkpointName(version)
	data, err := d.store.Get(ctx, name)
	if err != nil {
		return unreachable("read "+name, err)
	}
	actions, err := d.decodeCheckpoint(data)
	if err != nil {
		return unreachable(name, err)
	}
	if err := d.checkOurs(actions); err != nil {
		return unreachable(name, err)
	}
	d.checkpointed = version
	return unreachable(name, d.apply(version, actions))
}

// decodeCheckpoint reads a checkpoint that was made here, and refuses others.
func (d *deltaLog) decodeCheckpoint(data []byte) ([]deltaAction, error) {
	file, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w: %s", errDelta, err, d.wayOut())
	}
	if _, ours := file.Lookup(checkpointMark); !ours {
		return nil, d.foreign("this checkpoint", strconv.Quote(file.Metadata().CreatedBy))
	}
	actions := make([]deltaAction, file.NumRows())
	r := parquet.NewGenericReader[deltaAction](file)
	n, err := r.Read(actions)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("%w: %w: %s", errDelta, err, d.wayOut())
	}
	return actions[:n], nil
}
