package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/featurelevel"
	"github.com/millrace/millrace/store/rid"
	"github.com/millrace/millrace/store/tombstone"
)

// ContainerSpec is what an operator declares of a container.
type ContainerSpec struct {
	// PartitionKey are 1 to 3 paths such as /categoryId. Cannot be changed.
	PartitionKey []string `json:"partitionKey" yaml:"partitionKey"`
	// Partitions is the number of physical partitions, 1 to 256. Default 1.
	// Cannot be changed; every partition syncs by itself, so fewer are faster
	// on one disk.
	Partitions int `json:"partitions,omitempty" yaml:"partitions"`
	// Indexes are paths beyond id and partition key; one step may be *, which
	// means every element of an array. At most 64. Can be changed; a new index is
	// built online.
	Indexes []string `json:"indexes,omitempty" yaml:"indexes"`
	// UniqueKeys are lists of paths whose values together are unique inside a
	// logical partition: at most 10 of at most 16 paths. Cannot be changed.
	UniqueKeys [][]string `json:"uniqueKeys,omitempty" yaml:"uniqueKeys"`
	// TTL is off, on (items' own ttl) or a default time to live. Default off.
	TTL TTL `json:"ttl,omitzero" yaml:"ttl"`
	// ChangeFeed tells how long changes are kept.
	ChangeFeed ChangeFeedSpec `json:"changeFeed,omitzero" yaml:"changeFeed"`
	// Standbys is how many stores beside the owner keep a copy of each partition and follow its
	// log, so that it opens without a load when the owner is gone: 0 or 1. Default 0.
	// Can be changed.
	Standbys int `json:"standbys,omitempty" yaml:"standbys"`
}

// ChangeFeedSpec tells how long changes are kept.
type ChangeFeedSpec struct {
	// Retention is for how long at least: a duration from 0s on, or forever. A change goes
	// when it is older, a snapshot has what it did, and every pipeline has read it. Default
	// 168h.
	Retention *Retention `json:"retention,omitempty" yaml:"retention,omitempty"`
	// RetentionMax is for how long at most, at least retention: beyond it a change goes also
	// where a pipeline has not read it. Default none: pipelines are waited for.
	RetentionMax time.Duration `json:"retentionMax,omitempty" yaml:"retentionMax,omitempty"`
	// Tombstones is how long the container remembers the copied fields of deleted items
	// that cascades follow: so long can copies be judged whose source is gone. Default
	// 8760h, at least 1m.
	Tombstones time.Duration `json:"tombstones,omitempty" yaml:"tombstones,omitempty"`
}

// Kept is for how long changes are kept at least, RetentionForever if for ever.
func (s *ChangeFeedSpec) Kept() Retention {
	if s.Retention == nil {
		return retentionDefault
	}
	return *s.Retention
}

// Retention is a time in nanoseconds, or RetentionForever. In YAML and text: a Go
// duration, or forever.
type Retention time.Duration

// RetentionForever keeps every change.
const RetentionForever Retention = -1

// retentionDefault is the retention of containers whose declaration names none: a week, as
// logs of Apache Kafka and continuous backups of Azure Cosmos DB have it by default. Who looks
// into a feed by hand looks into the last days; pipelines are waited for, and new ones begin
// with the items.
const retentionDefault = Retention(7 * 24 * time.Hour)

// TTL is a container's default time to live in seconds: 0 is off, -1 is on
// without a default (items' own ttl counts), n > 0 is n seconds after the last
// write. In YAML and text: off, on, or a Go duration of whole seconds.
type TTL int32

// ContainerState is where a container is in its life.
type ContainerState string

// The states of a container: Creating until its logs exist, Ready, Deleting
// until its logs are gone.
const (
	ContainerCreating ContainerState = "creating"
	ContainerReady    ContainerState = "ready"
	ContainerDeleting ContainerState = "deleting"
)

// ContainerInfo is a container as the catalog holds it.
type ContainerInfo struct {
	Database string          `json:"database"`
	Name     string          `json:"name"`
	ID       feed.ResourceID `json:"id"`
	State    ContainerState  `json:"state"`
	Spec     ContainerSpec   `json:"spec"`
	// IndexesWanted are indexes that pipelines need beyond those of Spec.
	IndexesWanted []string `json:"indexesWanted,omitempty"`
	// Rules are the aggregates whose accumulators the container keeps.
	Rules []RuleWish `json:"rules,omitempty"`
	// Tombstones are what cascades follow that copy items of the container.
	Tombstones []tombstone.Wish `json:"tombstones,omitempty"`
	Partitions []PartitionInfo  `json:"partitions"`
	// Splits are those that are planned, or under way.
	Splits []PlannedSplit `json:"splits,omitempty"`
	// NextPartition is the number of the next partition that is made; 0 if none was but those of the beginning. Numbers
	// are not used again.
	NextPartition uint32 `json:"nextPartition,omitempty"`
	// Former are the partitions that were split, and whose logs are still there.
	Former []FormerPartition `json:"former,omitempty"`
	// Policies are what a client of the Azure Cosmos DB protocol declared beyond
	// Spec, such as its indexing policy, in that protocol's JSON. May be empty.
	Policies json.RawMessage `json:"policies,omitempty"`
	Created  time.Time       `json:"created"`
	// GivenRID is the text of RID where ID and the database's name do not tell it: in
	// a database with a resource id of its own, and of a container that was restored.
	GivenRID string `json:"rid,omitempty"`
	// Origin is what the container was restored from; nil if it was not.
	Origin *Origin `json:"origin,omitempty"`
	// Scripts are its stored procedures, triggers and functions. Releases that know no feature level
	// featurelevel.Scripts drop them where they write the record again.
	Scripts []Script `json:"scripts,omitempty"`
	// Revision is the catalog's version of this record, for compare-and-set.
	Revision uint64 `json:"-"`
}

// RID returns the resource id of the container in the Azure Cosmos DB protocol, which begins
// with that of its database. A container that is made anew has another; one that is restored has
// that of the container that the backup is of.
func (i *ContainerInfo) RID() rid.Container {
	if given, err := rid.ParseContainer(i.GivenRID); err == nil {
		return given
	}
	return rid.NewContainer(rid.ImpliedDatabase(i.Database), i.ID)
}

// ScriptKind is what a script is, by the word that links have for it.
type ScriptKind string

// The kinds of scripts.
const (
	ScriptProcedure ScriptKind = "sprocs"
	ScriptTrigger   ScriptKind = "triggers"
	ScriptFunction  ScriptKind = "udfs"
)

// Script is a stored procedure, a trigger or a function of a container.
type Script struct {
	Kind ScriptKind `json:"kind"`
	ID   string     `json:"id"`
	Body string     `json:"body"`
	// When and Operation are those of a trigger: Pre or Post, and All, Create, Replace, Update, Upsert or Delete, each in the case in which
	// a client has sent it.
	When      string `json:"when,omitempty"`
	Operation string `json:"operation,omitempty"`
	// Version is another one whenever it is written, Modified when that was, in Unix seconds.
	Version  string `json:"version"`
	Modified int64  `json:"modified"`
}

// Limits of scripts.
const (
	ScriptsMax      = 200       // scripts of a container
	ScriptBytesMax  = 128 << 10 // of the body of one
	ScriptsBytesMax = 512 << 10 // of the bodies of all scripts of a container
)

// ChangeScripts changes the scripts of a container by compare-and-set; change is called again while others win.
// *NoContainerError if it is gone, or another container has its name; 400 below featurelevel.Scripts, and where they would be too
// many or too long.
func (c *Catalog) ChangeScripts(ctx context.Context, seen *ContainerInfo, change func([]Script) ([]Script, error)) (ContainerInfo, error) {
	level, err := featurelevel.Read(ctx, c.js)
	if err != nil {
		return ContainerInfo{}, err
	}
	if level < featurelevel.Scripts {
		return ContainerInfo{}, Refuse(StatusBadRequest, "the data has feature level %d, and containers have scripts from %d on: millrace upgrade --finish, when no process of an earlier release is left",
			level, featurelevel.Scripts)
	}
	return c.modify(ctx, seen.Database, seen.Name, func(i *ContainerInfo) error {
		if i.ID != seen.ID || i.State != ContainerReady {
			return &NoContainerError{seen.Database, seen.Name}
		}
		scripts, err := change(slices.Clone(i.Scripts))
		if err != nil {
			return err
		}
		bytes := 0
		for i := range scripts {
			bytes += len(scripts[i].Body)
		}
		switch {
		case len(scripts) > ScriptsMax:
			return Refuse(StatusBadRequest, "container %s has %d scripts already, which is as many as are allowed", seen.Name, ScriptsMax)
		case bytes > ScriptsBytesMax:
			return Refuse(StatusTooLarge, "the scripts of container %s would have %d bytes; at most %d are allowed together", seen.Name, bytes, ScriptsBytesMax)
		}
		i.Scripts = scripts
		return nil
	})
}

// PartitionInfo is one physical partition and its range of effective partition
// keys.
type PartitionInfo struct {
	Number uint32     `json:"number"`
	Range  feed.Range `json:"range"`
	Log    feed.LogID `json:"log"`
}

// FormerPartition is a partition that was split. Its children, which may be former ones too, hold its items.
type FormerPartition struct {
	PartitionInfo
	// Last is the LSN of the last commit of its log, Checksum that of the commit.
	Last     feed.LSN `json:"last"`
	Checksum string   `json:"checksum"`
	// Children are the numbers of its children, in the order of their ranges, First the first LSN of their logs.
	Children []uint32 `json:"children"`
	First    feed.LSN `json:"first"`
}
