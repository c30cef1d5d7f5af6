package console

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/store"
)

// relay hands requests on to the owner of a partition, unless each refuses them.
type relay struct {
	client *store.Client
	each   func(r *store.Request) *store.Error
}

func (o *relay) Handle(ctx context.Context, r *store.Request) *store.Response {
	if err := o.each(r); err != nil {
		return &store.Response{Err: err}
	}
	answer, err := o.client.Do(ctx, r)
	if err != nil {
		return &store.Response{Err: store.Refuse(store.StatusInternal, "%v", err)}
	}
	return answer
}

// stocked is a console of a store with one container of so many items, whose requests a test sees.
func stocked(t *testing.T, items int, item func(i int) string) (*Console, *relay, *store.Container) {
	t.Helper()
	s := storetest.Start(t)
	ct := s.Container(t, "things", store.ContainerSpec{PartitionKey: []string{"/k"}})
	key, err := feed.NewPartitionKey("k")
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < items; from += store.BatchOpsMax {
		var ops []store.Operation
		for i := from; i < min(items, from+store.BatchOpsMax); i++ {
			ops = append(ops, store.Operation{Kind: store.OpCreate, Body: fmt.Appendf(nil, `{"id":"%08d","k":"k",%s}`, i, item(i))})
		}
		if result, err := ct.Batch(t.Context(), key, ops, ""); err != nil || result.Failed {
			t.Fatal(err, result)
		}
	}
	local, owner := &store.Local{}, &relay{s.Client, func(*store.Request) *store.Error { return nil }}
	local.Add(ct.Partitions()[0], owner)
	client := store.NewClient(s.NC, s.Client.Catalog(), store.ClientConfig{Local: local, Timeout: time.Minute})
	return New(&Config{Inspect: inspect.Config{JetStream: s.JS, Client: client}, Logger: storetest.Quiet()}), owner, ct
}

// save gets the file of a query over HTTP. err is that of the reading of the body.
func save(t *testing.T, c *Console, form string) (status int, body string, err error) {
	t.Helper()
	web := httptest.NewServer(c)
	defer web.Close()
	query := url.Values{"container": {"default/things"}, "q": {"SELECT * FROM c"}, "o": {form}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+"/query?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: cookieName(r), Value: c.sessions.begin(session{role: RoleRead})})
	answer, err := web.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

func small(i int) string { return fmt.Sprintf(`"n":%d`, i) }

// A file has all rows of a query, also those behind what is held in memory.
func TestDownload_AllRows(t *testing.T) {
	t.Parallel()
	const rows = heldRows + 2*store.QueryRowsMax + 3
	// The last row has a property that none before it has.
	c, _, _ := stocked(t, rows, func(i int) string {
		if i == rows-1 {
			return `"=last":"=1+1"`
		}
		return small(i)
	})
	status, body, err := save(t, c, "json")
	var list []map[string]any
	if err == nil {
		err = json.Unmarshal([]byte(body), &list)
	}
	if err != nil || status != http.StatusOK || len(list) != rows || list[rows-2]["n"] != float64(rows-2) || list[rows-1]["=last"] != "=1+1" {
		t.Errorf("as JSON: status %d, %v, %d of %d rows", status, err, len(list), rows)
	}
	status, body, err = save(t, c, "csv")
	var lines [][]string
	if err == nil {
		lines, err = csv.NewReader(strings.NewReader(body)).ReadAll()
	}
	if err != nil || status != http.StatusOK || len(lines) != 1+rows {
		t.Fatalf("as CSV: status %d, %v, %d lines of %d rows", status, err, len(lines), rows)
	}
	for at, want := range map[int]string{0: "[id k n '=last]", 1: "[00000000 k 0 ]", rows - 1: fmt.Sprintf("[%08d k %d ]", rows-2, rows-2), rows: fmt.Sprintf("[%08d k  '=1+1]", rows-1)} {
		if got := fmt.Sprint(lines[at]); got != want {
			t.Errorf("line %d is %s, want %s", at, got, want)
		}
	}
}

// A file is refused while nothing of it was sent, and else broken off: nobody takes a part of it for the whole.
func TestDownload_Fails(t *testing.T) {
	t.Parallel()
	const rows = heldRows + 2*store.QueryRowsMax
	c, owner, ct := stocked(t, rows, small)
	pages := 0
	failing := func(at int) func(*store.Request) *store.Error {
		return func(*store.Request) *store.Error {
			if pages++; pages < at {
				return nil
			}
			return store.Refuse(store.StatusInternal, "the disk is gone")
		}
	}
	seen := map[string]bool{}
	for _, step := range []struct {
		name   string
		each   func(*store.Request) *store.Error
		form   string
		status int
		broken bool
	}{
		{"the first page, as JSON", failing(1), "json", http.StatusInternalServerError, false},
		{"a later page, as JSON", failing(3), "json", http.StatusOK, true},
		{"a later page, as CSV, before its columns are known", failing(3), "csv", http.StatusInternalServerError, false},
		{"a row that has another column when it is read again", func(r *store.Request) *store.Error {
			if seen[string(r.Query.After)] {
				if _, err := ct.Upsert(t.Context(), []byte(`{"id":"z","k":"k","new":1}`)); err != nil {
					t.Error(err)
				}
			}
			seen[string(r.Query.After)] = true
			return nil
		}, "csv", http.StatusOK, true},
	} {
		t.Run(step.name, func(t *testing.T) {
			pages, owner.each = 0, step.each
			status, body, err := save(t, c, step.form)
			if status != step.status || (err != nil) != step.broken {
				t.Errorf("status %d, broken off by %v; want %d, broken off %t\n%.300s", status, err, step.status, step.broken, body)
			}
		})
	}
}

// A table has a bound in columns, beyond which it is refused before anything is sent.
func TestDownload_Columns(t *testing.T) {
	t.Parallel()
	c, _, _ := stocked(t, columnsMax, func(i int) string { return fmt.Sprintf(`"p%d":1`, i) })
	if status, body, err := save(t, c, "csv"); status != http.StatusBadRequest || err != nil || !strings.Contains(body, "name those that are to be columns") {
		t.Errorf("%d, %v\n%s", status, err, body)
	}
	if status, body, err := save(t, c, "json"); status != http.StatusOK || err != nil || !strings.Contains(body, "\n    \"p99\": 1\n") {
		t.Errorf("%d, %v\n%s", status, err, body)
	}
}
