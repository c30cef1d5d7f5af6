package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store/naming"
	"github.com/millrace/millrace/store/query"
	"github.com/millrace/millrace/store/rid"
)

// Limits of a container's declaration.
const (
	PartitionKeyPathsMax = 3
	PartitionsMax        = 256
	StandbysMax          = 1
	IndexesMax           = 64
)

// The kinds of control transactions that the store writes.
const (
	ControlGenesis  = "genesis"  // Data: Settings; the first transaction of a log
	ControlTakeover = "takeover" // a new owner's first commit; no data
	ControlSettings = "settings" // Data: Settings, replacing the former ones
	ControlTrim     = "trim"     // raises the trim point of the log, which its commit carries
	ControlParent   = "parent"   // Data: Parent; beside the genesis of a log that goes on from another
	ControlState    = "state"    // Data: entries of the engine that the log goes on from (snapshot.Blocks)
	ControlDigest   = "digest"   // Data: of package digest; orders a digest of the state, or tells one
)

// Settings are what decides writes in a physical partition. They are in its log,
// so that state is a function of the log; the catalog only says what is wished.
type Settings struct {
	PartitionKey []string        `json:"partitionKey"`
	Indexes      []IndexSetting  `json:"indexes,omitempty"`
	UniqueKeys   []UniqueSetting `json:"uniqueKeys,omitempty"`
	Rules        []RuleSetting   `json:"rules,omitempty"`
	TTL          TTL             `json:"ttl,omitzero"`
	// Tombstones are the kinds of tombstones that the partition makes of items that go,
	// TombstonesKept is how long it keeps them, in milliseconds.
	Tombstones     []TombstoneSetting `json:"tombstones,omitempty"`
	TombstonesKept int64              `json:"tombstonesKept,omitempty"`
	// Trimmed is the trim point of the log, as feed.Commit.Trimmed has it.
	Trimmed feed.LSN `json:"trimmed,omitempty"`
	// CatalogRevision is the revision of the container's record by which the rest was
	// decided; 0 if it is not known. No older record decides it again; see Outdates.
	CatalogRevision uint64 `json:"catalogRevision,omitempty"`
	// NextNumber is the number that the next new index gets; numbers are never
	// used again.
	NextNumber uint32 `json:"nextNumber"`
}

// IndexSetting is one index of a partition.
type IndexSetting struct {
	Number uint32 `json:"number"`
	Path   string `json:"path"`
	Ready  bool   `json:"ready"`
	// Ordered says that arrays and objects have entries too; see engine.Index. An
	// index that was declared before there was such a thing keeps what it has.
	Ordered bool `json:"ordered,omitempty"`
	// Where is a condition on the items that the index holds; "" for all.
	Where string `json:"where,omitempty"`
	// Expressions is the query.Meaning of Where, 0 for query.MeaningTyped. It stays for
	// as long as the index lasts, which replay must build alike.
	Expressions query.Meaning `json:"expressions,omitempty"`
	// Rule is the pipeline whose rule needs the index; "" for a declared one.
	Rule string `json:"rule,omitempty"`
}

// UniqueSetting is one unique key of a partition.
type UniqueSetting struct {
	Number uint32   `json:"number"`
	Paths  []string `json:"paths"`
}

// Marshal returns the settings as JSON.
func (s *Settings) Marshal() []byte {
	data, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("store: settings cannot be marshalled: %v", err))
	}
	return data
}

// Wish returns the settings that c asks for, given the present ones, and whether
// they differ. A new index is not ready; indexes that are gone lose their number.
// A record that the settings outdate asks for nothing.
func (s Settings) Wish(c *ContainerInfo) (Settings, bool) {
	if s.Outdates(c) {
		return s, false
	}
	wanted := slices.Clone(c.Spec.Indexes)
	for _, path := range c.IndexesWanted {
		if !slices.Contains(wanted, path) {
			wanted = append(wanted, path)
		}
	}
	// next shares its lists with the settings in force, which others read: a list is made anew, never changed
	// in place.
	next := s
	next.Indexes = nil
	// Rules before indexes: a new one appends its index, and which of the present ones are still a rule's is
	// known behind it.
	changed := next.wishRules(c)
	changed = next.wishTombstones(c) || changed
	changed = changed || s.TTL != c.Spec.TTL
	next.TTL = c.Spec.TTL
	ruled := func(i IndexSetting) bool {
		return slices.ContainsFunc(next.Rules, func(r RuleSetting) bool { return r.Index == i.Number })
	}
	for _, index := range s.Indexes {
		if index.Rule == "" && slices.Contains(wanted, index.Path) || index.Rule != "" && ruled(index) {
			next.Indexes = append(next.Indexes, index)
		} else {
			changed = true
		}
	}
	for _, path := range wanted {
		if !slices.ContainsFunc(next.Indexes, func(i IndexSetting) bool { return i.Rule == "" && i.Path == path }) {
			next.Indexes = append(next.Indexes, IndexSetting{Number: next.NextNumber, Path: path, Ordered: true})
			next.NextNumber++
			changed = true
		}
	}
	// Also a record that asks for what is in force anyway is noted, lest one between the two
	// take it away:
	//
	//	revision 7   rule r       in force
	//	revision 8   no rule      not seen by this owner, whose watch passed over it
	//	revision 9   rule r       noted; else the next owner, whose watch is at 8, would drop r
	changed = changed || c.Revision > s.CatalogRevision && s.accumulates()
	if changed {
		next.CatalogRevision = c.Revision
	}
	return next, changed
}

// Outdates says whether c is older than the record by which the settings were decided, or
// may be: it is not known where an earlier release put them in force.
func (s *Settings) Outdates(c *ContainerInfo) bool {
	return c.Revision < s.CatalogRevision || s.CatalogRevision == 0 && s.accumulates()
}

// accumulates says whether settings are in force that keep what cannot be made again of the
// items: the accumulators of rules, and tombstones.
func (s *Settings) accumulates() bool { return len(s.Rules) > 0 || len(s.Tombstones) > 0 }

// WishConfirmed is Wish for a record that Catalog.Confirm has returned, whatever its revision.
func (s Settings) WishConfirmed(c *ContainerInfo) (next Settings, changed bool) {
	before := s.CatalogRevision
	// As if this record had decided them: revisions begin anew in a catalog that was made again, so the
	// newest record may have a lower one.
	s.CatalogRevision = c.Revision
	next, changed = s.Wish(c)
	return next, changed || before != c.Revision
}

// genesis returns the settings of a new partition: every index is ready, for
// there is nothing to index.
func genesis(c *ContainerInfo) Settings {
	s := Settings{PartitionKey: c.Spec.PartitionKey, NextNumber: 1}
	for _, paths := range c.Spec.UniqueKeys {
		s.UniqueKeys = append(s.UniqueKeys, UniqueSetting{Number: s.NextNumber, Paths: paths})
		s.NextNumber++
	}
	s, _ = s.Wish(c)
	for _, index := range slices.Clone(s.Indexes) {
		s, _ = s.IndexReady(index.Number)
	}
	s.TombstonesSince(1)
	for _, kind := range slices.Clone(s.Tombstones) {
		s, _ = s.TombstonesReady(kind.Number)
	}
	return s
}

// Normalize fills the defaults of fields left out.
func (s *ContainerSpec) Normalize() {
	if s.Partitions == 0 {
		s.Partitions = 1
	}
}

// Check returns everything that is wrong with a normalized spec, each error
// beginning with the field's path.
func (s *ContainerSpec) Check() []error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
	}
	if n := len(s.PartitionKey); n < 1 || n > PartitionKeyPathsMax {
		bad("partitionKey", "has %d paths; 1 to %d are allowed", n, PartitionKeyPathsMax)
	}
	for i, path := range s.PartitionKey {
		checkPath(path, false, func(m string) { bad(fmt.Sprintf("partitionKey[%d]", i), "%s", m) })
		if slices.Index(s.PartitionKey, path) < i {
			bad(fmt.Sprintf("partitionKey[%d]", i), "%s is there twice", path)
		}
	}
	if s.Partitions < 1 || s.Partitions > PartitionsMax {
		bad("partitions", "is %d; 1 to %d are allowed", s.Partitions, PartitionsMax)
	}
	if len(s.Indexes) > IndexesMax {
		bad("indexes", "has %d paths; at most %d are allowed", len(s.Indexes), IndexesMax)
	}
	for i, path := range s.Indexes {
		checkPath(path, true, func(m string) { bad(fmt.Sprintf("indexes[%d]", i), "%s", m) })
		if IsSystemPath(path) {
			bad(fmt.Sprintf("indexes[%d]", i), "is %s, which is composed when an item is read; no index can have it", path)
		}
		if slices.Index(s.Indexes, path) < i {
			bad(fmt.Sprintf("indexes[%d]", i), "%s is there twice", path)
		}
	}
	if len(s.UniqueKeys) > UniqueKeysMax {
		bad("uniqueKeys", "has %d constraints; at most %d are allowed", len(s.UniqueKeys), UniqueKeysMax)
	}
	for i, paths := range s.UniqueKeys {
		if len(paths) < 1 || len(paths) > UniqueKeyPathsMax {
			bad(fmt.Sprintf("uniqueKeys[%d]", i), "has %d paths; 1 to %d are allowed", len(paths), UniqueKeyPathsMax)
		}
		for j, path := range paths {
			checkPath(path, false, func(m string) { bad(fmt.Sprintf("uniqueKeys[%d][%d]", i, j), "%s", m) })
		}
	}
	if s.TTL < -1 {
		bad("ttl", "is %d; off, on or a duration of at least 1s is allowed", s.TTL)
	}
	if s.Standbys < 0 || s.Standbys > StandbysMax {
		bad("standbys", "is %d; 0 to %d are allowed", s.Standbys, StandbysMax)
	}
	kept := s.ChangeFeed.Kept()
	if kept < 0 && kept != RetentionForever {
		bad("changeFeed.retention", "is negative; a duration from 0s on, or forever, is allowed")
	}
	switch most := s.ChangeFeed.RetentionMax; {
	case most == 0:
	case kept == RetentionForever:
		bad("changeFeed.retentionMax", "is %s, and changeFeed.retention is forever; name a retention of at most that", most)
	case most < time.Duration(kept):
		bad("changeFeed.retentionMax", "is %s; at least changeFeed.retention, %s, is allowed", most, kept)
	}
	if t := s.ChangeFeed.Tombstones; t != 0 && t < time.Minute {
		bad("changeFeed.tombstones", "is %s; at least 1m is allowed", t)
	}
	return errs
}

// FieldError is one thing wrong with a field of a declaration.
type FieldError struct{ Field, Message string }

func (e *FieldError) Error() string { return e.Field + " " + e.Message }

func checkPath(path string, array bool, bad func(string)) {
	p, err := document.ParsePointer(path)
	if err != nil {
		bad(err.Error())
		return
	}
	if len(p) == 0 {
		bad("is empty; a path such as /categoryId is expected")
	}
	all := 0
	for _, step := range p {
		if step.All {
			all++
		}
	}
	if all > 1 || all == 1 && !array {
		bad(path + ": * is allowed once in an index, and not elsewhere")
	}
}

// CheckContainerName returns an error unless name can name a container: 1 to 255 characters as naming.Check allows them.
func CheckContainerName(name string) error { return checkName("container", name, naming.Check) }

// CheckDatabaseName returns an error unless name can name a database: as CheckContainerName, and it does not look like
// a resource id, by which a path is told from one of names.
func CheckDatabaseName(name string) error {
	if _, err := rid.ParseDatabase(name); err == nil {
		return Refuse(StatusBadRequest, "database name %q: links take it for a resource id; choose another name", name)
	}
	return checkName("database", name, naming.Check)
}

// CheckPlainName returns an error unless name can name what is neither database nor container, such as a pipeline: 1 to 63
// letters, digits, - and _, beginning with a letter or digit.
func CheckPlainName(what, name string) error { return checkName(what, name, naming.CheckPlain) }

func checkName(what, name string, check func(string) error) error {
	if err := check(name); err != nil {
		return Refuse(StatusBadRequest, "%s name %q: %v", what, name, err)
	}
	return nil
}

// String returns forever or a duration.
func (r Retention) String() string {
	if r == RetentionForever {
		return "forever"
	}
	return time.Duration(r).String()
}

// MarshalYAML writes what String returns.
func (r Retention) MarshalYAML() (any, error) { return r.String(), nil }

// String returns off, on or a duration.
func (t TTL) String() string {
	switch {
	case t == 0:
		return "off"
	case t < 0:
		return "on"
	}
	return (time.Duration(t) * time.Second).String()
}

// MarshalText prints the TTL as String does.
func (t TTL) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads off, on, a duration of whole seconds such as 36h, or a
// number of seconds.
func (t *TTL) UnmarshalText(text []byte) error {
	s := strings.TrimSpace(string(text))
	switch s {
	case "off", "":
		*t = 0
		return nil
	case "on":
		*t = -1
		return nil
	}
	if n, err := strconv.ParseInt(s, 10, 32); err == nil && n > 0 {
		*t = TTL(n)
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second || d%time.Second != 0 || d/time.Second > 1<<31-1 {
		return fmt.Errorf("ttl %q is not off, on or a duration of whole seconds from 1s to 2147483647s", s)
	}
	*t = TTL(d / time.Second)
	return nil
}

// Parent names what a log goes on from.
type Parent struct {
	Partition string     `json:"partition"` // as feed.Partition prints it
	Log       feed.LogID `json:"log"`
	LSN       feed.LSN   `json:"lsn"`
	Checksum  string     `json:"checksum"` // of the commit at LSN
	// Entries and Digest are those of the engine at LSN, which the control transactions
	// behind the genesis hold.
	Entries uint64 `json:"entries"`
	Digest  string `json:"digest"`
	// Range is that of a partition into which the other one was split: it has the other's state at LSN, as far as that lies
	// in the range, and no control transactions hold it. nil where a log was restored.
	Range *feed.Range `json:"range,omitempty"`
}
