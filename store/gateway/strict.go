package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/query"
)

// parseStrict reads a query, and refuses what query.ParseStrict refuses.
func parseStrict(text string) (*query.Query, error) {
	q, err := query.ParseStrict(text)
	if err == nil {
		return q, nil
	}
	if _, wrong := query.ParseQuery(text); wrong != nil {
		return nil, wrong // everywhere
	}
	return nil, refuse(http.StatusBadRequest, "the query is wrong: %v (gateway.strict)", err)
}

// strictly refuses an ORDER BY that Cosmos DB refuses because of the container's indexing policy, if the configuration
// says so.
func (s *Server) strictly(ctx context.Context, c *collection, q *query.Query) error {
	if !s.cfg.Strict {
		return nil
	}
	order := q.Order()
	if len(order) == 0 || order[0].Path == nil { // of VectorDistance
		return nil
	}
	// The directory does not follow what is declared anew of a container.
	info, err := s.client.Catalog().Get(ctx, c.info.Database, c.info.Name)
	if err != nil {
		return err
	}
	kept, err := keptOf(&info)
	if err != nil {
		return err
	}
	var policy orderPolicy
	if err := json.Unmarshal(indexingPolicyOf(&info.Spec, kept.IndexingPolicy), &policy); err != nil {
		return err
	}
	return policy.serves(order)
}

// checkStrictly refuses a query that Cosmos DB refuses. whole says that it names no part of the container.
func (s *Server) checkStrictly(x *exchange, c *collection, r *store.QueryRequest, whole bool) error {
	q, err := parseStrict(r.Text)
	if err != nil {
		return err
	}
	params := make(map[string][]byte, len(r.Params))
	for _, p := range r.Params {
		params[p.Name] = p.Value
	}
	if q, err = q.Bind(params); err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	if err := s.strictly(x.ctx, c, q); err != nil {
		return err
	}
	if !whole {
		return nil
	}
	return s.strictlyServed(c, q)
}

// orderPolicy is what an indexing policy says about ORDER BY.
type orderPolicy struct {
	indexingPolicy
	Composite [][]struct {
		Path  string `json:"path"`
		Order string `json:"order"`
	} `json:"compositeIndexes"`
}

// serves refuses an ORDER BY of one path that is excluded, and of several paths that are no composite index: all of
// its paths in their order, each in its direction or each in the other one.
func (p *orderPolicy) serves(order []query.Order) error {
	if len(order) == 1 {
		if !p.indexes(order[0].Path) {
			return refuse(http.StatusBadRequest, "Cosmos DB does not order by %s, which the indexing policy excludes (gateway.strict)", clip(pointer(order[0].Path)))
		}
		return nil
	}
	for _, index := range p.Composite {
		if len(index) != len(order) {
			continue
		}
		same, other := true, true
		for i, of := range index {
			at, err := pointerOf(of.Path)
			desc := strings.EqualFold(of.Order, "descending")
			is := err == nil && at == pointer(order[i].Path)
			same, other = same && is && desc == order[i].Desc, other && is && desc != order[i].Desc
		}
		if same || other {
			return nil
		}
	}
	return refuse(http.StatusBadRequest, "Cosmos DB orders by several paths only where the indexing policy has a composite index of them, in this order and these directions or all of the others (gateway.strict)")
}

// indexes tells whether the policy has an index of a path: the most precise of the paths that hold it decides.
func (p *orderPolicy) indexes(path []string) bool {
	if strings.EqualFold(p.Mode, "none") {
		return false
	}
	included, excluded := precision(p.Included, path), precision(p.Excluded, path)
	return included > excluded
}

// precision returns how precise the most precise of the paths is that hold a path: 0 if none does, more for each of its
// properties, and still more if it is the path alone and not all below it.
func precision(list []indexPath, path []string) (most int) {
	want := pointer(path)
	for _, p := range list {
		of, scalar := strings.CutSuffix(p.Path, "/?")
		if !scalar {
			of = strings.TrimSuffix(strings.TrimSuffix(p.Path, "/*"), "/")
		}
		at := ""
		if of != "" {
			var err error
			if at, err = pointerOf(of); err != nil {
				continue
			}
		}
		switch n := 2*strings.Count(at, "/") + 1; {
		case at == want && scalar:
			most = max(most, n+1)
		case !scalar && strings.HasPrefix(want+"/", at+"/"):
			most = max(most, n)
		}
	}
	return most
}

// pointer returns the JSON pointer of names.
func pointer(names []string) string {
	var path document.Path
	for _, name := range names {
		path = append(path, document.Step{Name: name})
	}
	return path.Pointer()
}

// strictlyServed refuses a query over several partition keys that Cosmos DB leaves to its clients, as it does: with a
// substatus by which they fetch the plan and ask range by range. A client that has no plans, such as azcosmos, cannot
// have it answered there either. Where the condition names one partition key the query is served, but for aggregates
// without VALUE and GROUP BY.
func (s *Server) strictlyServed(c *collection, q *query.Query) error {
	if !s.cfg.Strict || !q.ReadsItems() || independentRanges(q) {
		return nil
	}
	parts := q.Parts()
	if c.namesOneKey(q) && (parts.Value || len(parts.Groups) > 0 || q.Kind() != query.Grouped) {
		return nil
	}
	return &failure{
		status: http.StatusBadRequest, substatus: subNotServed, info: "{}",
		// Its clients look for the first words, as their tests do.
		message: "The provided cross partition query can not be directly served by the gateway: Cosmos DB leaves ORDER BY, GROUP BY, DISTINCT, TOP, OFFSET LIMIT and aggregates over several partition keys to its clients; " +
			"a client must run the query's plan, or name the partition key (gateway.strict)",
	}
}

// escape finds what a server takes for a percent-encoded byte that decodes a path once more than it should.
var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// strictlyNamed refuses the path of an item by an id that Cosmos DB makes an item with, and does not find it by: its gateway takes
// escaped slashes, number signs and percent signs for what they stand for, and drops a space at the end, so that what a client has signed
// is not what it compares. Such an item is found by a query, and written by an upsert or a batch.
func (s *Server) strictlyNamed(t *target) error {
	if !s.cfg.Strict || t.noun != nounItem {
		return nil
	}
	switch {
	case strings.ContainsAny(t.id, "\r\n\t"):
		return refuse(http.StatusBadRequest, "Cosmos DB has no path with a tab or the end of a line in it (gateway.strict)")
	case strings.ContainsAny(t.id, `/\#`) || strings.HasSuffix(t.id, " ") || escape.MatchString(t.id):
		return refuse(http.StatusUnauthorized, "Cosmos DB finds no signature right of a path to an item whose id holds a slash, a backslash, # or an escape such as %%20, or ends in a space (gateway.strict)")
	}
	return nil
}

// strictlySeen refuses a read of a session that has seen more of a partition than there is of it. The answer rests on the
// state at lsn. An owner lacks no write, so the session's token is none that it was given by this container: it is made up, or of
// a container of the name that was deleted.
func (s *Server) strictlySeen(x *exchange, c *collection, number uint32, lsn feed.LSN) error {
	if !s.cfg.Strict || !strings.EqualFold(cmp.Or(x.header(headerConsistency), s.cfg.Consistency), levelSession) {
		return nil
	}
	seen := parseSession(x.header(headerSession))[number]
	if seen <= lsn {
		return nil
	}
	// A page of a feed may end before the end, and a read tells the LSN of a commit that it has found under way, which a query
	// right behind it may not have met. So ask what there is.
	resp, err := c.owned.Do(x.ctx, &store.Request{Partition: feed.Partition{Container: c.info.ID, Number: number}, Read: &store.ReadItems{Barrier: true}})
	if err != nil || seen <= resp.ReadLSN {
		return nil //nolint:nilerr // it is answered, and nobody knows better
	}
	return refuseAs(http.StatusNotFound, subSessionAhead,
		"The read session is not available for the input session token: it has seen LSN %d of range %d, which has been written up to LSN %d (gateway.strict)", seen, number, resp.ReadLSN)
}

// declared returns the spec that a body declares.
func (s *Server) declared(asked *containerJSON) (containerSpec, error) {
	spec, err := asked.spec()
	if err == nil {
		err = s.strictPolicy(asked.IndexingPolicy)
	}
	return spec, err
}

// strictPolicy refuses an indexing policy that names no root path.
func (s *Server) strictPolicy(raw json.RawMessage) error {
	if !s.cfg.Strict || isNull(raw) {
		return nil
	}
	var policy indexingPolicy
	if err := json.Unmarshal(raw, &policy); err != nil {
		return err
	}
	if strings.EqualFold(policy.Mode, "none") {
		return nil
	}
	root := func(p indexPath) bool { return p.Path == "/" || p.Path == allPaths }
	if len(policy.Included)+len(policy.Excluded) == 0 || slices.ContainsFunc(policy.Included, root) || slices.ContainsFunc(policy.Excluded, root) {
		return nil
	}
	return refuse(http.StatusBadRequest, "Cosmos DB wants the path /* among the included or the excluded ones of an indexing policy (gateway.strict)")
}

// namesOneKey tells whether the condition of a query names one partition key.
func (c *collection) namesOneKey(q *query.Query) bool {
	var one string
	tuples, known := q.Tuples(c.KeyNames()...)
	for _, t := range tuples {
		key, ok := store.KeyOfValues(t)
		if !ok {
			continue // no item has it
		}
		if text := key.Encoded(); one == "" {
			one = text
		} else if text != one {
			return false
		}
	}
	return known
}
