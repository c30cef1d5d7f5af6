package gateway

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/query"
)

// querySpec is the body of a query.
type querySpec struct {
	Text   string      `json:"query"`
	Params queryParams `json:"parameters"`
}

// queryParams are the parameters of a query. There is no list if n is too many.
type queryParams struct {
	list []queryParam
	n    int
}

type queryParam struct {
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

func (p *queryParams) UnmarshalJSON(data []byte) (err error) {
	p.list, p.n, err = document.DecodeList[queryParam](data, store.QueryParamsMax)
	return err
}

// parseQuery reads the body of a query. Some clients send the text alone, as JSON.
func parseQuery(body []byte) (*querySpec, error) {
	var spec querySpec
	target := any(&spec)
	if text := strings.TrimSpace(string(body)); strings.HasPrefix(text, `"`) {
		target = &spec.Text
	}
	if err := json.Unmarshal(body, target); err != nil {
		return nil, refuse(http.StatusBadRequest, "the body is not a query, {\"query\": \"SELECT …\", \"parameters\": [{\"name\": \"@x\", \"value\": 1}]}: %v", err)
	}
	if strings.TrimSpace(spec.Text) == "" {
		return nil, refuse(http.StatusBadRequest, "the query is empty")
	}
	if n := spec.Params.n; n > store.QueryParamsMax {
		return nil, store.RefuseParams(n)
	}
	for i := range spec.Params.list {
		p := &spec.Params.list[i]
		name, ok := strings.CutPrefix(p.Name, "@")
		if !ok || name == "" {
			return nil, refuse(http.StatusBadRequest, "the parameter %q has a name that does not begin with @", clip(p.Name))
		}
		p.Name = name
		if len(p.Value) == 0 {
			return nil, refuse(http.StatusBadRequest, "the parameter @%s has no value", clip(name))
		}
	}
	return &spec, nil
}

// query returns the query, and the same with its parameters. strict has it read as Cosmos DB does.
func (spec *querySpec) query(strict bool) (text, bound *query.Query, err error) {
	parse := query.ParseQuery
	if strict {
		parse = parseStrict
	}
	if text, err = parse(spec.Text); err != nil {
		return nil, nil, err
	}
	params := map[string][]byte{}
	for _, p := range spec.Params.list {
		params[p.Name] = p.Value
	}
	if bound, err = text.Bind(params); err != nil {
		return nil, nil, refuse(http.StatusBadRequest, "%v", err)
	}
	return text, bound, nil
}

func (s *Server) queryDatabases(x *exchange) error {
	bodies, err := s.databaseBodies(x)
	if err != nil {
		return err
	}
	return s.queryResources(x, "", "Databases", bodies)
}

func (s *Server) queryContainers(x *exchange) error {
	bodies, owner, err := s.containerBodies(x)
	if err != nil {
		return err
	}
	return s.queryResources(x, owner, "DocumentCollections", bodies)
}

// resourceQueriesMax bounds the queries over databases and containers that run at once, and the searches of the
// catalog for a resource id that the gateway does not know. Those over
// items are bounded by the owners of partitions; these run in the gateway itself.
const resourceQueriesMax = 8

var errResourceQueries = &failure{
	status: http.StatusTooManyRequests, substatus: subRequestRateLarge, retryAfter: retryAfterDefault,
	message: fmt.Sprintf("%d queries over databases and containers are under way, which is as many as are allowed; try again", resourceQueriesMax),
}

// enterResourceQuery takes a place among them, until leave; it does not wait for one.
func (s *Server) enterResourceQuery() (leave func(), err error) {
	select {
	case s.resourceQueries <- struct{}{}:
		return func() { <-s.resourceQueries }, nil
	default:
		return nil, errResourceQueries
	}
}

// queryResources answers a query over the bodies of resources other than items. The query
// language is that of items.
func (s *Server) queryResources(x *exchange, owner, name string, bodies []json.RawMessage) error {
	spec, err := parseQuery(x.body)
	if err != nil {
		return err
	}
	_, q, err := spec.query(false)
	if err != nil {
		return err
	}
	leave, err := s.enterResourceQuery()
	if err != nil {
		return err
	}
	defer leave()
	share := s.cfg.Queries.Share()
	defer share.Free()
	rows, err := resourceRows(x.ctx, q.At(time.Now()), bodies, share)
	if err != nil && x.ctx.Err() != nil {
		return context.Cause(x.ctx) // ErrTooMuch would blame the query of a client that has gone
	}
	if err != nil {
		return store.RefuseQuery(err)
	}
	return answerList(x, owner, name, rows)
}

// resourceRows returns all rows of a query over bodies. They are one partition in memory, so one
// run and one merge without a limit give all rows; answerList cuts them into pages.
func resourceRows(ctx context.Context, q *query.Query, bodies []json.RawMessage, share *query.Share) ([]json.RawMessage, error) {
	// No End beside Done: the clock may pass it before ctx has ended, and the query would be blamed
	// for a request that took too long.
	run, err := q.Run(query.RunConfig{Done: ctx.Done(), Share: share})
	if err != nil {
		return nil, err
	}
	for i, body := range bodies {
		if err := run.Item(body, binary.BigEndian.AppendUint32(nil, uint32(i))); err != nil {
			return nil, err
		}
	}
	// The rows of groups are made here, and not by the run.
	page, err := q.Merge([]query.Part{run.Part()}, query.PageConfig{Done: ctx.Done(), Share: share})
	if err != nil {
		return nil, err
	}
	rows := make([]json.RawMessage, len(page.Rows))
	for i, row := range page.Rows {
		rows[i] = row
	}
	return rows, nil
}
