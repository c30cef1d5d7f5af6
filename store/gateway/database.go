package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/rid"
)

// databaseJSON is the body of a database.
type databaseJSON struct {
	ID         string `json:"id"`
	RID        string `json:"_rid"`
	Self       string `json:"_self"`
	ETag       string `json:"_etag"`
	Containers string `json:"_colls"`
	Users      string `json:"_users"`
	Modified   int64  `json:"_ts"`
	etagText   string
}

func databaseBody(info *store.DatabaseInfo) databaseJSON {
	own := info.RID()
	etag := revisionTag(info.Revision)
	return databaseJSON{
		ID: info.Name, RID: own.String(), Self: own.Self(), ETag: `"` + etag + `"`, Containers: "colls/", Users: "users/",
		Modified: unixSeconds(info.Created), etagText: etag,
	}
}

// revisionTag returns the etag of an entry of the catalog.
func revisionTag(revision uint64) string { return fmt.Sprintf("%016x", revision) }

func (s *Server) createDatabase(x *exchange) error {
	var asked struct {
		ID *string `json:"id"`
	}
	if err := x.decode(&asked); err != nil {
		return err
	}
	if asked.ID == nil || *asked.ID == "" {
		return refuse(http.StatusBadRequest, "the database has no id")
	}
	if *asked.ID == store.SystemDatabase {
		return readOnlySystem(x.op.name)
	}
	throughput, err := askedOffer(x)
	if err != nil {
		return err
	}
	policies, err := (databasePolicies{Offer: throughput}).encode()
	if err != nil {
		return err
	}
	info, err := s.client.Catalog().CreateDatabaseWith(x.ctx, *asked.ID, policies)
	if err != nil {
		return err
	}
	body := databaseBody(&info)
	x.etag(body.etagText)
	return x.answerJSON(http.StatusCreated, chargeDeclare, body)
}

func (s *Server) readDatabase(x *exchange) error {
	info, err := s.database(x)
	if err != nil {
		return err
	}
	body := databaseBody(&info)
	x.etag(body.etagText)
	if parseMatchingText(x.header("If-None-Match")) == body.etagText {
		x.answer(http.StatusNotModified, chargeResource, nil)
		return nil
	}
	return x.answerJSON(http.StatusOK, chargeResource, body)
}

// parseMatchingText returns an etag without its quotes, for resources other than items.
func parseMatchingText(text string) string {
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		return text[1 : n-1]
	}
	return text
}

// database returns the database of a request. If it is missing, the error has a substatus,
// unless the request is for the database itself: the substatus means a missing parent.
func (s *Server) database(x *exchange) (store.DatabaseInfo, error) {
	info, err := s.client.Catalog().Database(x.ctx, x.target.database)
	if err == nil && x.target.databaseRID != (rid.Database{}) && info.RID() != x.target.databaseRID {
		err = &store.NoDatabaseError{Name: x.target.database}
	}
	if isType[*store.NoDatabaseError](err) && x.target.noun == nounDatabase {
		return info, refuse(http.StatusNotFound, "%v", err)
	}
	return info, err
}

func (s *Server) deleteDatabase(x *exchange) error {
	seen, err := s.database(x)
	if err != nil {
		return err
	}
	containers, err := s.containersOf(x)
	if err != nil {
		return err
	}
	// All are checked before any goes, so that a refusal changes nothing.
	for i := range containers {
		if err := s.checkUnused(x.ctx, &containers[i]); err != nil {
			return err
		}
	}
	err = s.client.Catalog().DeleteDatabaseSeen(x.ctx, &seen)
	if isType[*store.NoDatabaseError](err) {
		return refuse(http.StatusNotFound, "%v", err)
	}
	if err != nil {
		return err
	}
	for i := range containers {
		s.directory.forget(containers[i].ID)
	}
	s.permits.forget()
	x.answer(http.StatusNoContent, chargeDeclare, nil)
	return nil
}

func (s *Server) listDatabases(x *exchange) error {
	bodies, err := s.databaseBodies(x)
	if err != nil {
		return err
	}
	return answerList(x, "", "Databases", bodies)
}

// databaseBodies are the bodies of all databases, by name, but Millrace's own: a client that goes through all of them, to
// remove them say, means those that clients have made.
func (s *Server) databaseBodies(x *exchange) ([]json.RawMessage, error) {
	infos, err := s.client.Catalog().Databases(x.ctx)
	if err != nil {
		return nil, err
	}
	bodies := make([]json.RawMessage, 0, len(infos))
	for i := range infos {
		if infos[i].Name == store.SystemDatabase {
			continue
		}
		body, err := json.Marshal(databaseBody(&infos[i]))
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, body)
	}
	return bodies, nil
}

// answerList answers a page of resources other than items. The continuation is the number of
// resources on earlier pages. That is good enough for lists that are short and seldom change.
func answerList(x *exchange, owner, name string, all []json.RawMessage) error {
	limit, err := parseHeaderInt(x.header(headerPageItems), headerPageItems)
	if err != nil {
		return err
	}
	from := 0
	if token := x.header(headerContinuation); token != "" {
		if from, err = strconv.Atoi(token); err != nil || from < 0 || from > len(all) {
			return refuse(http.StatusBadRequest, "the continuation %q is not one of this list", clip(token))
		}
	}
	page := all[from:]
	if limit > 0 && len(page) > limit {
		page = page[:limit]
		x.w.Header().Set(headerContinuation, strconv.Itoa(from+limit))
	}
	body := appendList(nil, owner, name, page)
	x.w.Header().Set(headerItemCount, strconv.Itoa(len(page)))
	x.answer(http.StatusOK, pageCharge(len(body)), body)
	return nil
}

// appendList appends a feed: _rid of the owner, the resources and their count.
func appendList[T ~[]byte](dst []byte, owner, name string, all []T) []byte {
	size := 64
	for _, r := range all {
		size += len(r) + 1
	}
	out := bytes.NewBuffer(append(make([]byte, 0, len(dst)+size), dst...))
	out.WriteString(`{"_rid":"` + owner + `","` + name + `":[`)
	for i, r := range all {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(r)
	}
	out.WriteString(`],"_count":` + strconv.Itoa(len(all)) + `}`)
	return out.Bytes()
}
