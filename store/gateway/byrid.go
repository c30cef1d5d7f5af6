package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/rid"
)

// byRID reports whether a path names its resources by their resource ids, as the _self of each
// does: dbs/RID/colls/RID/docs/RID. The first one tells, because no database can have such a name (store.CheckDatabaseName).
func (t *target) byRID() bool {
	return rid.IsDatabase(t.database)
}

// endsInRID reports whether the last name of a link is a resource id.
func endsInRID(link string) bool {
	last := link[strings.LastIndexByte(link, '/')+1:]
	_, err := rid.ParseDatabase(last)
	if err != nil {
		_, err = rid.ParseContainer(last)
	}
	if err != nil {
		_, err = rid.ParseInside(last)
	}
	return err == nil
}

// means reports whether a request means the container of a resource id. A link leads to one
// container, and not to another that was made under the same name since.
func (t *target) means(container rid.Container) bool {
	return t.containerRID == (rid.Container{}) || t.containerRID == container
}

// resolve looks up the names of what a request names by resource ids. The error is 400 if one
// of them is none, 404 if nothing has it, 409 if more than one has.
func (s *Server) resolve(x *exchange) (err error) {
	t := &x.target
	if !t.byRID() {
		return nil
	}
	defer x.nameSpan()
	t.databaseRID, _ = rid.ParseDatabase(t.database) // which byRID has done
	if t.container == "" {
		if err := s.resolveDatabase(x); err != nil || t.user == "" {
			return err
		}
		return s.resolveUser(x)
	}
	if t.containerRID, err = rid.ParseContainer(t.container); err != nil {
		return refuse(http.StatusBadRequest, "%v; a link names all of its resources by their ids, or all by their names", err)
	}
	if t.noun == nounItem || t.noun == nounRange || t.noun == nounScript {
		inside, err := rid.ParseInside(t.id)
		if err != nil {
			return refuse(http.StatusBadRequest, "%v", err)
		}
		if t.noun != nounRange {
			t.itemRID = inside
		}
	}
	info, err := s.findRID(x.ctx, t.containerRID)
	switch {
	case err != nil:
		return err
	case info == nil || t.databaseRID != t.containerRID.Database():
		if t.noun == nounContainer {
			return absent(x)
		}
		return &store.NoContainerError{Database: t.database, Name: t.container}
	}
	t.database, t.container = info.Database, info.Name
	return nil
}

// resolveDatabase is resolve for a database and its list of containers.
func (s *Server) resolveDatabase(x *exchange) error {
	t := &x.target
	leave, err := s.enterResourceQuery()
	if err != nil {
		return err
	}
	defer leave()
	all, err := s.client.Catalog().Databases(x.ctx)
	if err != nil {
		return err
	}
	having := slices.DeleteFunc(all, func(info store.DatabaseInfo) bool { return info.RID() != t.databaseRID })
	switch len(having) {
	case 0:
	case 1:
		t.database = having[0].Name
		return nil
	default:
		// Those that nobody created share one where hashes of their names do.
		return refuseShared(len(having), "databases", t.databaseRID)
	}
	err = &store.NoDatabaseError{Name: t.database}
	if t.noun == nounDatabase {
		return refuse(http.StatusNotFound, "%v", err)
	}
	return err
}

// refuseShared refuses a link that does not tell which of several resources it leads to.
func refuseShared(n int, kind string, id fmt.Stringer) *failure {
	return refuse(http.StatusConflict, "%d %s have the resource id %s; use their names", n, kind, id)
}

// findRID returns the record of the container of a resource id, in whatever state it is; nil if there is none. The
// error is 409 if there are several.
func (s *Server) findRID(ctx context.Context, of rid.Container) (*store.ContainerInfo, error) {
	if c := s.directory.cachedRID(of); c != nil {
		return &c.info, nil
	}
	leave, err := s.enterResourceQuery()
	if err != nil {
		return nil, err
	}
	defer leave()
	infos, err := s.client.Catalog().List(ctx)
	if err != nil {
		return nil, err
	}
	having := slices.DeleteFunc(infos, func(info store.ContainerInfo) bool { return info.RID() != of })
	switch len(having) {
	case 0:
		return nil, nil
	case 1:
		return &having[0], nil
	}
	return nil, refuseShared(len(having), "containers", of)
}

// itemID returns the id of the item that a request names. A resource id does not hold it: the items
// of the partition key are looked through for the one that has it.
// The error is 403 for an item that the right of the request does not open.
func (c *collection) itemID(x *exchange, key feed.PartitionKey) (string, error) {
	if err := x.right.admitKey(key); err != nil {
		return "", err
	}
	id, err := c.namedItem(x, key)
	if err != nil {
		return "", err
	}
	return id, x.right.admitItem(c, key, id)
}

func (c *collection) namedItem(x *exchange, key feed.PartitionKey) (string, error) {
	meant := x.target.itemRID
	if meant == (rid.Inside{}) {
		return x.target.id, nil
	}
	absent := refuse(http.StatusNotFound, "partition key %s has no item with the resource id %s", key, meant)
	if meant.Container() != c.rid || !meant.IsItem() {
		return "", absent
	}
	from := c.Container
	if x.op.writes { // which a standby does not answer, so what lags behind must not say that the item is not there
		from = c.owned
	}
	// Not by a condition on _rid: an owner of an earlier release makes another one of an item, and any
	// owner would copy all of each item to add it.
	r := store.QueryRequest{Text: "SELECT VALUE c.id FROM c", Key: key}
	for {
		page, err := from.Query(x.ctx, r)
		if err != nil {
			return "", err
		}
		for _, row := range page.Rows {
			var id string
			if err := json.Unmarshal(row, &id); err != nil {
				return "", fmt.Errorf("item %s: %w", meant, err)
			}
			if rid.Item(c.rid, key, id) == meant {
				return id, nil
			}
		}
		if r.Continuation = page.Continuation; r.Continuation == "" {
			return "", absent
		}
	}
}
