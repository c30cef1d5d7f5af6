package propose

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// valuesMax bounds the items that are read for one place and one group of sources.
const valuesMax = 200

// readsMax bounds the requests of a run. Half of them are for fields that only are named as
// if they named an item; the rest stays for those whose values are ids in a sample.
const readsMax = 2000

// shareMin is the least share of references that name an item, in per cent.
const shareMin = 50

// Reader reads items of a container by their keys; what is not there has no body.
type Reader func(ctx context.Context, container string, refs []store.ItemRef) ([]store.Item, error)

// Share is how many of those that were looked at are so.
type Share struct {
	Is int `json:"is"`
	Of int `json:"of"`
}

func (s Share) String() string { return fmt.Sprintf("%d of %d", s.Is, s.Of) }

// Copy is a field that a cascade would set.
type Copy struct {
	Field  string `json:"field"`  // of the target
	Source string `json:"source"` // field of the source
	// Equal is how many are as the source's now. Of none, the field is not there yet.
	Equal Share `json:"equal"`
}

// Proposal is a cascade that the items suggest.
type Proposal struct {
	Name        string  `json:"name"`
	Source      string  `json:"source"`
	SourceWhere string  `json:"sourceWhere,omitempty"`
	Into        string  `json:"into"`
	Where       string  `json:"where,omitempty"`
	Each        string  `json:"each,omitempty"`
	Field       string  `json:"field"`
	Match       []Match `json:"match"`
	Set         []Copy  `json:"set"`
	Names       Share   `json:"names"` // how many fields name an item of the source
	Finding     string  `json:"finding,omitempty"`
	YAML        string  `json:"yaml"`
}

// Match is a field of the target and those of the source that it equals.
type Match struct {
	Field  string   `json:"field"`
	Source []string `json:"source"`
}

// Result is what the items suggest.
type Result struct {
	// Proposals are accepted by Check, all together.
	Proposals []Proposal `json:"proposals"`
	// Refused are not, each with its Finding: another pipeline writes the field.
	Refused    []Proposal `json:"refused,omitempty"`
	Items      int        `json:"items"`
	Containers int        `json:"containers"`
	// Left counts fields that were not held against all groups of items, because enough
	// had been read.
	Left int `json:"left,omitempty"`
}

// reader reads items, a bounded number of times.
type reader struct {
	read  Reader
	asked int
	left  map[leftOut]bool
}

// leftOut is a field of a container that some groups were not asked about.
type leftOut struct {
	target *group
	at     place
}

// spare says whether one more request may be made; likely says that a sample has an id
// that the field names.
func (r *reader) spare(likely bool) bool {
	if likely {
		return r.asked < readsMax
	}
	return r.asked < readsMax/2
}

// Run proposes cascades into the containers of the samples that wanted names, all if it
// names none.
func Run(ctx context.Context, samples []Sample, wanted []string, there spec.Existing, database string, read Reader) (*Result, error) {
	r := &Result{Containers: len(samples), Proposals: []Proposal{}}
	var all []*group
	for i := range samples {
		r.Items += len(samples[i].Items)
		all = append(all, groups(&samples[i])...)
	}
	names := newNames(there, database)
	accepted := &spec.Resources{}
	reads := &reader{read: read, left: map[leftOut]bool{}}
	for _, target := range all {
		if len(wanted) > 0 && !slices.Contains(wanted, target.container.Name) {
			continue
		}
		found, err := proposals(ctx, all, target, reads)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			p.Name = names.takeFor(p)
			p.YAML = p.yaml(database)
			if p.Finding = check(accepted, p.YAML, there); p.Finding != "" {
				r.Refused = append(r.Refused, *p)
				continue
			}
			r.Proposals = append(r.Proposals, *p)
		}
	}
	r.Left = len(reads.left)
	return r, nil
}

// check adds what a proposal declares to what is accepted, or says why it is refused.
func check(accepted *spec.Resources, text string, there spec.Existing) string {
	one, err := spec.Decode("proposal", []byte(text))
	if err != nil {
		return findingOf(err)
	}
	both := &spec.Resources{Pipelines: slices.Concat(accepted.Pipelines, one.Pipelines)}
	if err := both.Check(there); err != nil {
		return findingOf(err)
	}
	accepted.Pipelines = both.Pipelines
	return ""
}

var findingPlace = regexp.MustCompile(`^proposal:\d+:\d+: `)

// findingOf is the first line of what is wrong, without its place in a text that nobody
// sees.
func findingOf(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return findingPlace.ReplaceAllString(line, "")
}

// proposals returns the cascades into a group, one for each place at most.
func proposals(ctx context.Context, sources []*group, target *group, read *reader) ([]*Proposal, error) {
	places, found := target.places()
	var all []*Proposal
	for _, at := range places {
		var best *Proposal
		for _, source := range sources {
			p, err := propose(ctx, source, target, at, rivals(places, at), found[at], read)
			if err != nil {
				return nil, err
			}
			// Shares are compared crosswise, without division: 9 of 10 is more than 85 of 100,
			// since 9*100 > 85*10. Of equals the first stays.
			if p != nil && (best == nil || cmp.Compare(p.Names.Is*best.Names.Of, best.Names.Is*p.Names.Of) > 0) {
				best = p
			}
		}
		if best != nil {
			all = append(all, best)
		}
	}
	return all, nil
}

// rivals are the other fields beside a place that name an item by their own account:
// editorId beside authorId, whose name is in editorName.
func rivals(places []place, at place) (fields []string) {
	for _, p := range places {
		if p.each == at.each && p.field != at.field && namesID(p.field) {
			fields = append(fields, p.field)
		}
	}
	return fields
}

// reference is a text at a place, and the item that it would name.
type reference struct {
	holder object
	ref    store.ItemRef
	source object // nil if there is none
}

// propose says what cascade the texts at a place suggest, if they name items of a source;
// nil if they do not.
func propose(ctx context.Context, source, target *group, at place, rivals []string, texts []occurrence, read *reader) (*Proposal, error) {
	if at.each == "" && (at.field == "id" || at.field == target.field) {
		return nil, nil
	}
	likely := slices.ContainsFunc(texts, func(o occurrence) bool { return source.ids[o.value] })
	if !namesID(at.field) && !likely {
		return nil, nil
	}
	match, keyOf := fixes(source, at, texts)
	if keyOf == nil {
		return nil, nil
	}
	if !read.spare(likely) {
		read.left[leftOut{target, at}] = true
		return nil, nil
	}
	refs, err := resolve(ctx, source, texts, keyOf, read)
	if err != nil {
		return nil, err
	}
	share := Share{Of: len(refs)}
	itself := 0 // items that name themselves, as customers with their own customerId do
	for i := range refs {
		if refs[i].source != nil {
			share.Is++
		}
		if source.container == target.container && at.each == "" && refs[i].holder["id"] == refs[i].ref.ID {
			itself++
		}
	}
	if share.Is == 0 || share.Is*100 < share.Of*shareMin || itself*2 > share.Is {
		return nil, nil
	}
	set := copies(source, target, at, rivals, match, refs)
	if len(set) == 0 {
		return nil, nil
	}
	p := &Proposal{
		Source: source.container.Name, SourceWhere: source.where(), Into: target.container.Name, Where: target.where(),
		Each: fieldOf(at.each), Field: fieldOf(at.field), Match: match, Set: set, Names: share,
	}
	return p, nil
}

// named are the names of fields that name an item by their own account: id, categoryId,
// category_id, CategoryID.
var named = regexp.MustCompile(`^(?i:id)$|[a-z0-9](?:Id|ID|_id|-id)$`)

func namesID(path string) bool { return named.MatchString(path[strings.LastIndex(path, joint)+1:]) }

// resolve reads what texts name, at most valuesMax items.
func resolve(ctx context.Context, source *group, texts []occurrence, keyOf func(occurrence) (feed.PartitionKey, bool), read *reader) ([]reference, error) {
	var refs []reference
	places := map[store.ItemRef]int{}
	var asked []store.ItemRef
	for _, o := range texts {
		key, ok := keyOf(o)
		if !ok || o.value == "" {
			continue
		}
		ref := store.ItemRef{Key: key, ID: o.value}
		if _, known := places[ref]; !known {
			if len(asked) == valuesMax {
				continue
			}
			places[ref] = len(asked)
			asked = append(asked, ref)
		}
		refs = append(refs, reference{holder: o.holder, ref: ref})
	}
	if len(asked) == 0 {
		return nil, nil
	}
	read.asked++
	items, err := read.read(ctx, source.container.Name, asked)
	if err != nil {
		return nil, fmt.Errorf("read items of %s: %w", source.container.Name, err)
	}
	for i := range refs {
		body := items[places[refs[i].ref]].Body
		if o, ok := decode(body); ok && (source.field == "" || o[source.field] == source.value) {
			refs[i].source = o
		}
	}
	return refs, nil
}

// fixes says how a place's text names an item of the source, and the partition key of it;
// no function if it does not fix the whole key. A level of the key is fixed
//
//	/id          by the text:                     match {categoryId: id}
//	/type        by the source's where:           where: type = "category"
//	/customerId  by the text, if it is the id's:  match {customerId: [customerId, id]}
//	/region      by a field of that name beside:  match {storeId: id, region: region}
func fixes(source *group, at place, texts []occurrence) ([]Match, func(occurrence) (feed.PartitionKey, bool)) {
	first := Match{Field: fieldOf(at.field), Source: []string{"id"}}
	var beside []Match
	var levels []func(occurrence) (any, bool)
	for _, names := range source.keys {
		path := strings.Join(names, joint)
		switch {
		case path == "id":
			levels = append(levels, func(o occurrence) (any, bool) { return o.value, true })
		case path == source.field:
			levels = append(levels, func(occurrence) (any, bool) { return source.value, true })
		case source.isID(names):
			first.Source = slices.Insert(first.Source, 0, fieldOf(path))
			levels = append(levels, func(o occurrence) (any, bool) { return o.value, true })
		case path != at.field && slices.ContainsFunc(texts, func(o occurrence) bool { return scalar(o.holder, names) != nil }):
			beside = append(beside, Match{Field: fieldOf(path), Source: []string{fieldOf(path)}})
			levels = append(levels, func(o occurrence) (any, bool) { v := scalar(o.holder, names); return v, v != nil })
		default:
			return nil, nil
		}
	}
	return append([]Match{first}, beside...), func(o occurrence) (feed.PartitionKey, bool) {
		values := make([]any, len(levels))
		for i, level := range levels {
			v, ok := level(o)
			if !ok {
				return feed.PartitionKey{}, false
			}
			values[i] = v
		}
		key, err := feed.NewPartitionKey(values...)
		return key, err == nil
	}
}

// isID says that a field of g's items is their id in all of them.
func (g *group) isID(names []string) bool {
	for _, o := range g.items {
		if at(o, names) != o["id"] {
			return false
		}
	}
	return len(g.items) > 0
}

// scalar returns the text at a path, nil if there is none: keys of other types are rare.
func scalar(o object, names []string) any {
	if text, ok := at(o, names).(string); ok {
		return text
	}
	return nil
}
