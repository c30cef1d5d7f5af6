package gateway

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/rid"
	"github.com/millrace/millrace/store/users"
)

// userJSON is the body of a user.
type userJSON struct {
	ID          string `json:"id"`
	RID         string `json:"_rid"`
	Self        string `json:"_self"`
	ETag        string `json:"_etag"`
	Permissions string `json:"_permissions"`
	Modified    int64  `json:"_ts"`
}

func userBody(u *users.User) userJSON {
	own, _ := rid.ParseUser(u.RID) // zero if the record is damaged
	return userJSON{
		ID: u.Name, RID: u.RID, Self: own.Self(), ETag: `"` + u.Tag + `"`, Permissions: "permissions/", Modified: unixSeconds(u.Modified),
	}
}

// refuseUsers returns the error of the users as the protocol has it.
func refuseUsers(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, users.ErrNotFound):
		return refuse(http.StatusNotFound, "%v", err)
	case errors.Is(err, users.ErrChanged):
		return refuse(http.StatusPreconditionFailed, "%v", err)
	case isType[*users.TakenError](err):
		return refuse(http.StatusConflict, "%v", err)
	case isType[*users.FullError](err):
		return refuse(http.StatusForbidden, "%v", err)
	}
	return err
}

// askedName reads the id in a body.
func askedName(kind, id string) (string, error) {
	if id == "" {
		return "", refuse(http.StatusBadRequest, "the %s has no id", kind)
	}
	if err := users.CheckName(id); err != nil {
		return "", refuse(http.StatusBadRequest, "%s %q: %v", kind, clip(id), err)
	}
	return id, nil
}

// askedUser reads the body of a user.
func askedUser(x *exchange) (string, error) {
	var asked userJSON
	if err := x.decode(&asked); err != nil {
		return "", err
	}
	return askedName("user", asked.ID)
}

func answerUser(x *exchange, status int, charge float64, u *users.User) error {
	body := userBody(u)
	x.etag(u.Tag)
	return x.answerJSON(status, charge, body)
}

// createUser creates a user. There is nothing of a user that an upsert could change.
func (s *Server) createUser(x *exchange) error {
	name, err := askedUser(x)
	if err != nil {
		return err
	}
	database, err := s.database(x)
	if err != nil {
		return err
	}
	u, err := s.users.Create(x.ctx, database.Name, database.RID(), name)
	if isType[*users.TakenError](err) && isTrue(x.header(headerUpsert)) {
		if u, err = s.users.Get(x.ctx, database.Name, database.RID(), name); err == nil {
			return answerUser(x, http.StatusOK, chargeDeclare, &u)
		}
	}
	if err != nil {
		return refuseUsers(err)
	}
	return answerUser(x, http.StatusCreated, chargeDeclare, &u)
}

// user returns the user of a request, and its database. The error has a substatus, unless the request is for the user itself.
func (s *Server) user(x *exchange) (users.User, store.DatabaseInfo, error) {
	database, err := s.database(x)
	if err != nil {
		return users.User{}, database, err
	}
	u, err := s.users.Get(x.ctx, database.Name, database.RID(), x.target.user)
	if err == nil && x.target.userRID != "" && u.RID != x.target.userRID {
		err = users.ErrNotFound
	}
	if errors.Is(err, users.ErrNotFound) {
		return u, database, absentUser(x)
	}
	return u, database, err
}

func absentUser(x *exchange) error {
	f := refuse(http.StatusNotFound, "database %s has no user %s", x.target.database, clip(x.target.user))
	if x.target.noun != nounUser {
		f.substatus = subOwnerNotFound
	}
	return f
}

func (s *Server) readUser(x *exchange) error {
	u, _, err := s.user(x)
	if err != nil {
		return err
	}
	if x.unmodified(u.Tag) {
		return nil
	}
	return answerUser(x, http.StatusOK, chargeResource, &u)
}

// unmodified answers 304 if the client has named the etag of a resource other than an item.
func (x *exchange) unmodified(tag string) bool {
	if parseMatchingText(x.header("If-None-Match")) != tag {
		return false
	}
	x.etag(tag)
	x.answer(http.StatusNotModified, chargeResource, nil)
	return true
}

// checkMatch refuses a request that names another etag of a resource other than an item.
func (x *exchange) checkMatch(kind, tag string) error {
	if match := x.header("If-Match"); match != "" && match != "*" && parseMatchingText(match) != tag {
		return refuse(http.StatusPreconditionFailed, "the %s has changed; read it again", kind)
	}
	return nil
}

// replaceUser gives a user another name, which is all that can be changed.
func (s *Server) replaceUser(x *exchange) error {
	name, err := askedUser(x)
	if err != nil {
		return err
	}
	u, _, err := s.user(x)
	if err != nil {
		return err
	}
	if err := x.checkMatch("user", u.Tag); err != nil {
		return err
	}
	u, err = s.users.Rename(x.ctx, &u, name)
	s.permits.forget()
	if err != nil {
		return refuseUsers(err)
	}
	return answerUser(x, http.StatusOK, chargeDeclare, &u)
}

func (s *Server) deleteUser(x *exchange) error {
	u, _, err := s.user(x)
	if err != nil {
		return err
	}
	if err := x.checkMatch("user", u.Tag); err != nil {
		return err
	}
	for {
		err = s.users.Delete(x.ctx, &u)
		s.permits.forget()
		if !errors.Is(err, users.ErrChanged) {
			break
		}
		// What has changed is a permission, or the user was made anew: then it is another.
		is := u.RID
		if u, _, err = s.user(x); err != nil {
			return err
		}
		if u.RID != is {
			return absentUser(x)
		}
	}
	if err != nil {
		return err
	}
	x.answer(http.StatusNoContent, chargeDeclare, nil)
	return nil
}

// userBodies are the bodies of the users of a request's database.
func (s *Server) userBodies(x *exchange) (bodies []json.RawMessage, owner string, err error) {
	database, err := s.database(x)
	if err != nil {
		return nil, "", err
	}
	all, err := s.users.List(x.ctx, database.Name, database.RID())
	if err != nil {
		return nil, "", err
	}
	bodies = make([]json.RawMessage, len(all))
	for i := range all {
		if bodies[i], err = json.Marshal(userBody(&all[i])); err != nil {
			return nil, "", err
		}
	}
	return bodies, database.RID().String(), nil
}

func (s *Server) listUsers(x *exchange) error {
	bodies, owner, err := s.userBodies(x)
	if err != nil {
		return err
	}
	return answerList(x, owner, "Users", bodies)
}

func (s *Server) queryUsers(x *exchange) error {
	bodies, owner, err := s.userBodies(x)
	if err != nil {
		return err
	}
	return s.queryResources(x, owner, "Users", bodies)
}

// resolveUser looks up the name of a user that a request names by its resource id, in the database that was
// resolved.
func (s *Server) resolveUser(x *exchange) error {
	t := &x.target
	if _, err := rid.ParseUser(t.user); err != nil {
		return refuse(http.StatusBadRequest, "%v; a link names all of its resources by their ids, or all by their names", err)
	}
	if t.noun == nounPermission {
		if _, err := rid.ParsePermission(t.id); err != nil {
			return refuse(http.StatusBadRequest, "%v", err)
		}
	}
	leave, err := s.enterResourceQuery()
	if err != nil {
		return err
	}
	defer leave()
	all, err := s.users.List(x.ctx, t.database, t.databaseRID)
	if err != nil {
		return err
	}
	t.userRID = t.user
	having := 0
	for i := range all {
		if all[i].RID == t.userRID {
			having++
			t.user = all[i].Name
		}
	}
	switch having {
	case 0:
		return absentUser(x)
	case 1:
		return nil
	}
	own, _ := rid.ParseUser(t.userRID)
	return refuseShared(having, "users", own)
}
