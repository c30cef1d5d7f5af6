package store

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store/query"
)

const (
	queryRowsDefault = 100
	// queryFanOut bounds the partitions that one page asks at a time.
	queryFanOut = 16
	// queryPatience is how long a page without a row goes on for one.
	queryPatience = 3 * time.Second
)

// QueryRequest asks for a page of a query.
type QueryRequest struct {
	Text string
	// Params are the values of the parameters.
	Params []QueryParam
	// Key restricts the query to a logical partition, or with fewer levels than the
	// container's keys have to all that begin with it; zero for none.
	Key feed.PartitionKey
	// Range restricts it to a range of effective partition keys; zero for none.
	Range feed.Range
	// RowsMax bounds the rows of the page: default 100, at most QueryRowsMax.
	RowsMax int
	// BytesMax bounds the bytes of its rows, of which there is one anyway. Default and
	// limit QueryBytesMax.
	BytesMax int
	// Continuation is that of the page before; "" begins.
	Continuation string
	// System gives items their system properties; see AppendSystem.
	System bool
	// Apart ends a page of rows in the order of items where a physical partition ends, though it has room for those of the
	// next one. It may be empty then.
	Apart bool
	// Explain asks for nothing but how the query would be answered.
	Explain bool
	// Functions are those of the container that the query calls.
	Functions []QueryFunction
}

// QueryPage is a page of a query. It may be empty although more follow.
type QueryPage struct {
	Rows [][]byte // raw JSON
	// Continuation asks for the next page; "" if there is none.
	Continuation string
	// Metrics are the sum over the partitions that were asked. Their Access is that of
	// the first one.
	Metrics QueryMetrics
	// Partitions is how many partitions were asked.
	Partitions int
	// LSNs are the states that were read, by the number of the physical partition: they hold no more than
	// these, and may lack the last commit.
	LSNs map[uint32]feed.LSN
}

// Query returns a page of a query. Without a partition key, in the request or as a
// condition, it asks all physical partitions and brings their rows together in order.
// The rows that one partition gives to a page are of one snapshot; of several pages,
// or partitions, each is of its own. Whatever is written meanwhile, a row of an item
// that does not change is in one page exactly, if the query selects it.
//
// The error is 400 if the query is wrong, which the *query.SyntaxError within tells
// by place, or the continuation is not of this query.
func (c *Container) Query(ctx context.Context, r QueryRequest) (*QueryPage, error) {
	for {
		p, err := c.pager(&r)
		if err == nil {
			err = p.run(ctx)
		}
		// A partition was split while the page was made: it is made anew with those that there are now. Each
		// time they are more.
		if _, split := errors.AsType[*SplitError](err); split && len(c.present().Partitions) > len(p.info.Partitions) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &p.page, nil
	}
}

// run makes the page.
func (p *pager) run(ctx context.Context) (err error) {
	switch {
	case p.r.Explain:
		err = p.explain(ctx)
	case p.q.Need(p.at.passed) == 0:
	case p.q.Kind() == query.Stream && !p.merges():
		err = p.stream(ctx)
	default:
		err = p.merge(ctx)
	}
	p.page.Metrics.Rows = int64(len(p.page.Rows))
	p.page.Partitions = len(p.page.LSNs)
	return err
}

// pager makes one page.
type pager struct {
	c       *Container
	info    *ContainerInfo // one and the same for all of the page
	r       *QueryRequest
	q       *query.Query
	hash    [queryHashLen]byte
	at      queryToken
	began   time.Time
	targets []PartitionInfo // in the order of their ranges
	page    QueryPage
	bytes   int // of the page's rows
}

func (c *Container) pager(r *QueryRequest) (*pager, error) {
	if len(r.Params) > QueryParamsMax {
		return nil, RefuseParams(len(r.Params))
	}
	info := c.present()
	if n := len(info.Spec.PartitionKey); r.Key.Levels() > n {
		return nil, Refuse(StatusBadRequest, "the partition key %s has %d levels, those of the container have %d", r.Key, r.Key.Levels(), n)
	}
	began := time.Now()
	q, err := ParseQuery(r.Text, r.Params)
	if err != nil {
		return nil, err
	}
	p := &pager{c: c, info: info, r: r, q: q, hash: queryHash(info.ID, r), began: began}
	p.page.LSNs = map[uint32]feed.LSN{}
	p.at.now = p.began.UTC().Truncate(time.Microsecond)
	if r.Continuation != "" {
		at, err := p.parseToken()
		if err != nil {
			return nil, err
		}
		p.at = *at
	}
	p.q = p.q.At(p.at.now)
	if r.RowsMax <= 0 {
		r.RowsMax = queryRowsDefault
	}
	r.RowsMax = min(r.RowsMax, QueryRowsMax)
	if r.BytesMax <= 0 || r.BytesMax > QueryBytesMax {
		r.BytesMax = QueryBytesMax
	}
	p.chooseTargets()
	p.page.Metrics.Compile = time.Since(began)
	return p, nil
}

// ParseQuery reads a query and gives its parameters their values. The error is *QueryError.
func ParseQuery(text string, params []QueryParam) (*query.Query, error) {
	q, err := query.ParseQuery(text)
	if err == nil && len(q.Params()) > 0 {
		values := make(map[string][]byte, len(params))
		for _, p := range params {
			values[p.Name] = p.Value
		}
		q, err = q.Bind(values)
	}
	if err != nil {
		return nil, &QueryError{err}
	}
	return q, nil
}

// parentsMax bounds the ranges of which a continuation is taken for one, where it is none of the range that is asked for.
const parentsMax = 1 << 12

// parseToken reads the continuation. Who asks for the range of a child may have one that was made for that of its parent, which
// nobody may know any more. Ranges are only cut, so that it began and ended where partitions do now.
func (p *pager) parseToken() (*queryToken, error) {
	at, err := parseQueryToken(p.r.Continuation, p.hash)
	if err == nil || p.r.Range == (feed.Range{}) {
		return at, err
	}
	hash := queryHashes(p.info.ID, p.r)
	for of := range wider(p.info.Partitions, p.r.Range, parentsMax) {
		if parents, wrong := parseQueryToken(p.r.Continuation, hash(of)); wrong == nil {
			return parents, nil
		}
	}
	return nil, err
}

// wider yields ranges of neighbours among partitions, of two or more, that hold all of a range; those of few first, and
// so many at most.
func wider(all []PartitionInfo, within feed.Range, most int) iter.Seq[feed.Range] {
	return func(yield func(feed.Range) bool) {
		for width := 2; width <= len(all); width++ {
			for first := 0; first+width <= len(all); first++ {
				of := feed.Range{Min: all[first].Range.Min, Max: all[first+width-1].Range.Max}
				if !covers(of, within) {
					continue
				}
				if most--; most < 0 || !yield(of) {
					return
				}
			}
		}
	}
}

// QueryError says that a query is wrong: a *query.SyntaxError, or what a parameter is.
type QueryError struct{ Err error }

func (e *QueryError) Error() string { return "query: " + e.Err.Error() }

// Unwrap returns Err.
func (e *QueryError) Unwrap() error { return e.Err }

// Is matches ErrBadRequest.
func (e *QueryError) Is(target error) bool { return target == error(ErrBadRequest) }

// chooseTargets finds the partitions that can have rows. One is asked in any case, since
// aggregates have a row even over nothing.
func (p *pager) chooseTargets() {
	var wanted []feed.EPK
	known := false
	paths := p.c.KeyNames()
	switch {
	case !p.r.Key.IsZero():
		// With fewer levels than the container's keys it is the beginning of their hashes:
		// hence e+EPKMax below, behind which none of them lies.
		wanted, known = []feed.EPK{p.r.Key.Hash()}, true
	default:
		var tuples [][][]byte
		tuples, known = p.q.Tuples(paths...)
		for _, t := range tuples {
			if key, ok := KeyOfValues(t); ok {
				wanted = append(wanted, key.Hash())
			}
		}
	}
	for _, part := range p.info.Partitions {
		r := part.Range
		hit := !known || slices.ContainsFunc(wanted, func(e feed.EPK) bool { return e < r.Max && e+feed.EPKMax > r.Min })
		if p.r.Range != (feed.Range{}) {
			hit = hit && r.Min < p.r.Range.Max && p.r.Range.Min < r.Max
		}
		if hit {
			p.targets = append(p.targets, part)
		}
	}
	if len(p.targets) == 0 || !p.q.ReadsItems() {
		p.targets = p.info.Partitions[:1]
	}
}

// KeyNames returns the paths of the partition key, each as the names that lead to it.
func (c *Container) KeyNames() [][]string {
	paths := make([][]string, len(c.paths))
	for i, path := range c.paths {
		for j := range path {
			paths[i] = append(paths[i], path[j].Name)
		}
	}
	return paths
}

// merges tells whether a stream comes in the order of an index, and so from all
// partitions at once.
func (p *pager) merges() bool { return p.at.via != "" && p.at.via != QueryItems }

// askPartition asks a partition for its part.
func (p *pager) askPartition(ctx context.Context, part *PartitionInfo, after []byte, rows, bytes int) (*QueryResult, error) {
	r := &Query{
		Text: p.r.Text, Params: p.r.Params, Key: p.r.Key, Range: p.r.Range, Now: p.at.now, After: after, Via: p.at.via,
		RowsMax: rows, BytesMax: bytes, Last: int64(rows) >= p.q.Need(p.at.passed),
		System: p.r.System, RID: p.info.RID(), Explain: p.r.Explain, Functions: p.r.Functions,
	}
	// A range that holds all of the partition restricts nothing there: the owner plans as
	// without it.
	if r.Range.Min <= part.Range.Min && part.Range.Max <= r.Range.Max {
		r.Range = feed.Range{}
	}
	resp, err := p.c.doExactly(ctx, &Request{Partition: feed.Partition{Container: p.info.ID, Number: part.Number}, Query: r})
	if err != nil {
		return nil, err
	}
	return resp.Query, nil
}

// noteWork adds what a partition said of its work.
func (p *pager) noteWork(part *PartitionInfo, r *QueryResult) {
	m := &p.page.Metrics
	if m.Access == "" {
		m.Access, m.Index = r.Metrics.Access, r.Metrics.Index
	}
	m.Entries += r.Metrics.Entries
	m.Items += r.Metrics.Items
	m.Bytes += r.Metrics.Bytes
	m.Time += r.Metrics.Time
	p.page.LSNs[part.Number] = max(p.page.LSNs[part.Number], r.LSN)
}

// rowsWanted returns how many rows the page has room for, those included that OFFSET
// leaves out.
func (p *pager) rowsWanted() int {
	offset, _ := p.q.Window()
	room := int64(p.r.RowsMax - len(p.page.Rows))
	if left := offset - p.at.passed; left > 0 {
		room += min(left, QueryRowsMax)
	}
	return int(min(room, p.q.Need(p.at.passed), QueryRowsMax))
}

// addRows puts rows of parts into the page, as many as there is room for, and sets the
// place where the next ones are. It returns false if the parts have no more.
func (p *pager) addRows(ctx context.Context, parts []query.Part) (more bool, err error) {
	room := p.rowsThatFit(parts)
	if room == 0 { // the next row is too large for this page
		p.bytes = p.r.BytesMax
		return true, nil
	}
	share := p.c.client.cfg.Queries.Share()
	defer share.Free()
	// No End beside Done: the clock may pass it before ctx has ended, and the query would be blamed
	// for a request that took too long.
	page, err := p.q.Merge(parts, query.PageConfig{Passed: p.at.passed, Rows: room, Bytes: p.r.BytesMax - p.bytes, Done: ctx.Done(), Share: share})
	if err != nil && ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if err != nil {
		return false, RefuseQuery(err)
	}
	// What OFFSET leaves out is counted in passed and gives no row, so that a page may
	// come on without growing.
	p.page.Rows = append(p.page.Rows, page.Rows...)
	for _, row := range page.Rows {
		p.bytes += len(row)
	}
	if page.Cut {
		p.bytes = p.r.BytesMax
	}
	p.at.passed = page.Passed
	if page.After != nil {
		p.at.after = page.After
	}
	return page.After != nil, nil
}

// rowsThatFit returns how many of the next rows of the parts fit into the page.
func (p *pager) rowsThatFit(parts []query.Part) int {
	rows := p.r.RowsMax - len(p.page.Rows)
	left := p.r.BytesMax - p.bytes
	total := 0
	for i := range parts {
		for j := range parts[i].Rows {
			total += len(parts[i].Rows[j].Body)
		}
	}
	// What a partition sends of a group is no row, so its size says nothing; Merge counts the rows
	// that it makes. Otherwise they are counted in the order in which Merge will take them.
	if total <= left || p.q.Kind() == query.Grouped {
		return rows
	}
	at := make([]int, len(parts))
	fit := 0
	for fit < rows {
		least := -1
		for i := range parts {
			if at[i] < len(parts[i].Rows) && (least < 0 || string(parts[i].Rows[at[i]].Key) < string(parts[least].Rows[at[least]].Key)) {
				least = i
			}
		}
		if least < 0 {
			break
		}
		left -= len(parts[least].Rows[at[least]].Body)
		// The first row is taken whatever its size: a page must come on.
		if left < 0 && (fit > 0 || len(p.page.Rows) > 0) {
			break
		}
		at[least]++
		fit++
	}
	return fit
}

// full tells whether the page is to end.
func (p *pager) full() bool {
	return len(p.page.Rows) >= p.r.RowsMax || p.bytes >= p.r.BytesMax || p.q.Need(p.at.passed) == 0
}

// overtime tells whether a page that is not full is to end too, since it took long.
func (p *pager) overtime() bool {
	// A client gets what there is soon. An empty page costs it a request for nothing, so
	// for a first row the search goes on three times as long.
	took := time.Since(p.began)
	return took > queryPatience || len(p.page.Rows) > 0 && took > queryPatience/3
}

// setContinuation gives the page its continuation.
func (p *pager) setContinuation() (err error) {
	if p.q.Need(p.at.passed) == 0 {
		return nil
	}
	// A stream of item keys goes on in one partition, not in all: after a merge that is the
	// one to which the last row belongs.
	if p.q.Kind() == query.Stream && !p.merges() && p.at.after != nil {
		if err := p.locateNext(); err != nil {
			return err
		}
	}
	p.page.Continuation, err = p.at.text(p.hash)
	return err
}

// locateNext sets the partition in which the next row is, after rows of several.
func (p *pager) locateNext() error {
	_, rank, _, err := p.q.Place(p.at.after)
	if err != nil {
		return Refuse(StatusInternal, "place of row %x: %v", p.at.after, err)
	}
	for _, part := range p.info.Partitions {
		if len(rank) > 1 && part.Range.Contains(feed.EPK(rank[1:])) {
			p.at.from = part.Range.Min
		}
	}
	return nil
}

func (p *pager) explain(ctx context.Context) error {
	result, err := p.askPartition(ctx, &p.targets[0], p.at.after, 1, 0)
	if err != nil {
		return err
	}
	for i := range p.targets {
		p.page.LSNs[p.targets[i].Number] = 0
	}
	p.noteWork(&p.targets[0], result)
	return nil
}

// partOf returns what a partition answered as query.Merge takes it.
func partOf(r *QueryResult) query.Part {
	part := query.Part{More: r.More, Until: r.Reached, Rows: make([]query.Row, len(r.Rows))}
	for i, row := range r.Rows {
		part.Rows[i] = query.Row{Key: row.Key, Body: row.Body}
	}
	return part
}

// isRefused tells whether an error is a refusal with that status.
func isRefused(err error, status Status) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.Status == status
}
