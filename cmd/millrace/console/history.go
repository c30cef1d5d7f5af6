package console

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// historyPage are the last versions of an item.
type historyPage struct {
	Info store.ContainerInfo
	Ref  string
	*inspect.History
	Asked string // the position before which versions were asked for; "" for the newest
	Limit int    // how many were asked for
	Most  int    // how many can be
}

func (c *Console) itemHistory(x *exchange) error {
	ct, err := c.opened(x)
	if err != nil {
		return err
	}
	q := x.r.URL.Query()
	ref, err := parseRef(q)
	if err != nil {
		return err
	}
	r, err := parseHistory(q)
	if err != nil {
		return err
	}
	inspector := inspect.New(&c.cfg.Inspect)
	defer inspector.Close()
	h, err := inspector.History(x.r.Context(), ct, ref, r)
	if err != nil {
		return err
	}
	page := historyPage{Info: ct.Info(), Ref: ref.String(), History: h, Asked: q.Get("before"), Limit: r.Versions, Most: inspect.HistoryMax}
	return c.show(x, "history", "Versions of "+ref.ID, page, h)
}

// parseHistory reads which versions are asked for.
func parseHistory(q url.Values) (inspect.HistoryRequest, error) {
	r := inspect.HistoryRequest{Versions: inspect.HistoryDefault}
	var err error
	if text := q.Get("limit"); text != "" {
		if r.Versions, err = strconv.Atoi(text); err != nil || r.Versions < 1 || r.Versions > inspect.HistoryMax {
			return r, &refusal{http.StatusBadRequest, "From 1 to " + strconv.Itoa(inspect.HistoryMax) + " versions can be shown."}
		}
	}
	if text := q.Get("before"); text != "" {
		if r.Before, err = feed.ParsePosition(text); err != nil {
			return r, &refusal{http.StatusBadRequest, "The position before which versions are asked for cannot be read: " + err.Error()}
		}
	}
	return r, nil
}

// rowsOf are the rows of a version in the table: its fields, and nil where a row tells that there are
// none, or more.
func rowsOf(v inspect.Version) []*inspect.FieldChange {
	rows := make([]*inspect.FieldChange, 0, len(v.Fields)+1)
	for i := range v.Fields {
		rows = append(rows, &v.Fields[i])
	}
	if len(rows) == 0 || v.More > 0 {
		rows = append(rows, nil)
	}
	return rows
}
