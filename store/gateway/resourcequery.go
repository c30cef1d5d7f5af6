package gateway

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/millrace/millrace/store/query"
)

// querySpec is the body of a query.
type querySpec struct {
	Text   string `json:"query"`
	Params []struct {
		Name  string          `json:"name"`
		Value json.RawMessage `json:"value"`
	} `json:"parameters"`
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
	for i := range spec.Params {
		name, ok := strings.CutPrefix(spec.Params[i].Name, "@")
		if !ok || name == "" {
			return nil, refuse(http.StatusBadRequest, "the parameter %q has a name that does not begin with @", clip(spec.Params[i].Name))
		}
		spec.Params[i].Name = name
		if len(spec.Params[i].Value) == 0 {
			return nil, refuse(http.StatusBadRequest, "the parameter @%s has no value", clip(name))
		}
	}
	return &spec, nil
}

// query returns the query with its parameters.
func (spec *querySpec) query() (*query.Query, error) {
	q, err := query.ParseQuery(spec.Text)
	if err != nil {
		return nil, err
	}
	params := map[string][]byte{}
	for _, p := range spec.Params {
		params[p.Name] = p.Value
	}
	if q, err = q.Bind(params); err != nil {
		return nil, refuse(http.StatusBadRequest, "%v", err)
	}
	return q, nil
}

func (s *Server) queryDatabases(x *exchange) error {
	bodies, err := s.databaseBodies(x)
	if err != nil {
		return err
	}
	return queryResources(x, "", "Databases", bodies)
}

func (s *Server) queryContainers(x *exchange) error {
	bodies, rid, err := s.containerBodies(x)
	if err != nil {
		return err
	}
	return queryResources(x, rid, "DocumentCollections", bodies)
}

// queryResources answers a query over the bodies of resources other than items. The query
// language is that of items.
func queryResources(x *exchange, rid, name string, bodies []json.RawMessage) error {
	spec, err := parseQuery(x.body)
	if err != nil {
		return err
	}
	q, err := spec.query()
	if err != nil {
		return err
	}
	// All bodies are one partition in memory, so one run and one merge without a limit give
	// all rows; answerList cuts them into pages.
	q = q.At(time.Now())
	end, _ := x.ctx.Deadline()
	run, err := q.Run(query.RunConfig{End: end})
	if err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	for i, body := range bodies {
		if err := run.Item(body, binary.BigEndian.AppendUint32(nil, uint32(i))); err != nil {
			return refuse(http.StatusBadRequest, "%v", err)
		}
	}
	page, err := q.Merge([]query.Part{run.Part()}, query.PageConfig{})
	if err != nil {
		return refuse(http.StatusBadRequest, "%v", err)
	}
	rows := make([]json.RawMessage, len(page.Rows))
	for i, row := range page.Rows {
		rows[i] = row
	}
	return answerList(x, rid, name, rows)
}
