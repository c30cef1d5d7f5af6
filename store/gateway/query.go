package gateway

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// queryItems answers a page of a query over items. The page has the rows of all physical
// partitions that the query needs, merged.
func (s *Server) queryItems(x *exchange) error {
	c, err := s.collection(x)
	if err != nil {
		return err
	}
	sc, err := c.scope(x)
	if err != nil {
		return err
	}
	whole := sc.whole // as the client asks: the text of a plan may widen it
	r, part, err := c.queryRequest(x, sc)
	if err != nil {
		return err
	}
	if s.cfg.Strict && (whole || !part) {
		if err := s.checkStrictly(x, c, r, whole); err != nil {
			return err
		}
	}
	r.Apart = s.cfg.Strict // the service's pages are those of one range each
	if whole && !isTrue(x.header(headerCross)) {
		if err := c.checkOneKey(r); err != nil {
			return err
		}
	}
	if err := s.measure(x.ctx, c, r); err != nil {
		return err
	}
	if len(sc.partitions) == 0 {
		// The key is not in the range that the request names, so no item is in both.
		x.w.Header().Set(headerItemCount, "0")
		x.answer(http.StatusOK, chargePage, appendList[[]byte](nil, c.ridText, "Documents", nil))
		return nil
	}
	if r.Functions, err = s.functionsOf(x, r); err != nil {
		return err
	}
	page, err := c.Query(x.ctx, *r)
	if err != nil {
		return s.explainAbsence(x, c, err)
	}
	for number, lsn := range page.LSNs {
		if err := s.strictlySeen(x, c, number, lsn); err != nil {
			return err
		}
	}
	answerRows(x, c, sc, page)
	return nil
}

// queryRequest reads the body and the headers of a query. part says that it is a range's part of a plan.
func (c *collection) queryRequest(x *exchange, sc *scope) (r *store.QueryRequest, part bool, err error) {
	spec, err := parseQuery(x.body)
	if err != nil {
		return nil, false, err
	}
	// A query that planQuery has marked. With a key there is one range, and nothing to merge.
	text, marked := strings.CutPrefix(spec.Text, wholeMark)
	if marked && sc.key.IsZero() {
		c.wholeScope(sc)
	}
	text, part = strings.CutPrefix(text, partMark)
	r = &store.QueryRequest{Text: text, Key: sc.key, Continuation: x.header(headerContinuation), System: true}
	for _, p := range spec.Params.list {
		r.Params = append(r.Params, store.QueryParam{Name: p.Name, Value: p.Value})
	}
	if r.RowsMax, err = parseHeaderInt(x.header(headerPageItems), headerPageItems); err != nil {
		return nil, part, err
	}
	if !sc.whole && sc.key.IsZero() && len(sc.partitions) > 0 {
		r.Range, err = sc.oneRange()
	}
	return r, part, err
}

// checkOneKey refuses a query that no header allows to read more than one partition key, unless its
// condition names one, as the service does. It costs such queries that they are read twice.
func (c *collection) checkOneKey(r *store.QueryRequest) error {
	q, err := store.ParseQuery(r.Text, r.Params)
	if err != nil {
		return err
	}
	if !q.ReadsItems() || c.namesOneKey(q) {
		return nil
	}
	return refuse(http.StatusBadRequest, "Cross partition query is required but disabled: set x-ms-documentdb-query-enablecrosspartition to true, "+
		"specify x-ms-documentdb-partitionkey, or name one partition key in the query")
}

// oneRange returns the scope as one range of effective partition keys. The error says that its
// partitions are not neighbours, such as ranges 0 and 2 of three.
func (sc *scope) oneRange() (feed.Range, error) {
	span := intersect(sc.partitions[0].Range, sc.span)
	for i := range sc.partitions[1:] {
		next := intersect(sc.partitions[i+1].Range, sc.span)
		if next.Min != span.Max {
			return span, refuse(http.StatusBadRequest, "the ranges of the request do not lie beside each other; ask for one at a time")
		}
		span.Max = next.Max
	}
	return span, nil
}

// answerRows answers a page of rows of a scope.
func answerRows(x *exchange, c *collection, sc *scope, page *store.QueryPage) {
	h := x.w.Header()
	if page.Continuation != "" {
		h.Set(headerContinuation, page.Continuation)
	}
	var sessions []string
	for number := range page.LSNs {
		// A range that answers for others by a plan speaks for itself alone: a client that has asked one range expects one
		// token, and the one of Java takes two for an error, and the page for failed.
		if sc.ranges != nil && !slices.Contains(sc.ranges, number) {
			continue
		}
		sessions = append(sessions, sessionToken(feed.Partition{Container: c.info.ID, Number: number}, page.LSNs[number]))
	}
	slices.Sort(sessions) // in one order, whatever that of the map
	x.session(sessions...)
	if first := isTrue(x.header(headerIndexMetrics)); first || isTrue(x.header(headerIndexMetrics2)) {
		h.Set(headerIndexUse, indexMetrics(&page.Metrics, c.keysUsed(sc), first))
	}
	if isTrue(x.header(headerMetrics)) {
		h.Set(headerMetricsOf, queryMetrics(page))
	}
	h.Set(headerItemCount, strconv.Itoa(len(page.Rows)))
	body := appendList(nil, c.ridText, "Documents", page.Rows)
	x.answer(http.StatusOK, QueryCharge(&page.Metrics, len(body)), body)
}
