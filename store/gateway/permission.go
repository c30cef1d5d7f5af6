package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/rid"
	"github.com/millrace/millrace/store/users"
)

// The life of a resource token in seconds, which are the service's bounds.
const (
	tokenSecondsMin     = 10
	tokenSecondsMax     = 24 * 60 * 60
	tokenSecondsDefault = 60 * 60
)

// permissionJSON is the body of a permission.
type permissionJSON struct {
	ID       string          `json:"id"`
	Mode     string          `json:"permissionMode"`
	Resource string          `json:"resource"`
	Key      json.RawMessage `json:"resourcePartitionKey,omitempty"`
	RID      string          `json:"_rid"`
	Self     string          `json:"_self"`
	ETag     string          `json:"_etag"`
	Modified int64           `json:"_ts"`
	Token    string          `json:"_token"`
}

// tokenMaker signs the tokens of one answer.
type tokenMaker struct {
	master  []byte
	expires time.Time
}

// tokenMaker reads how long tokens are to hold. They are signed with the key that has signed the request.
func (x *exchange) tokenMaker() (*tokenMaker, error) {
	seconds := tokenSecondsDefault
	if text := x.header(headerExpiry); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < tokenSecondsMin || n > tokenSecondsMax {
			return nil, refuse(http.StatusBadRequest, "%s is %q; %d to %d seconds are allowed", strings.ToLower(headerExpiry), clip(text), tokenSecondsMin, tokenSecondsMax)
		}
		seconds = n
	}
	return &tokenMaker{x.right.master, time.Now().Add(time.Duration(seconds) * time.Second)}, nil
}

func (m *tokenMaker) body(u *users.User, p *users.Permission) *permissionJSON {
	own, _ := rid.ParsePermission(p.RID) // zero if the record is damaged
	token := users.Token{Database: u.Database, User: u.Name, Serial: p.Serial, Expires: m.expires}
	body := &permissionJSON{
		ID: p.Name, Mode: cmp.Or(p.Word, string(p.Mode)), Resource: p.Resource, RID: p.RID, Self: own.Self(), ETag: `"` + p.Tag + `"`,
		Modified: unixSeconds(p.Modified), Token: token.Sign(m.master),
	}
	if p.Key != "" {
		body.Key = json.RawMessage(p.Key)
	}
	return body
}

func (m *tokenMaker) answer(x *exchange, status int, charge float64, u *users.User, p *users.Permission) error {
	x.etag(p.Tag)
	return x.answerJSON(status, charge, m.body(u, p))
}

// askedPermission reads the body of a permission, and finds what it is for. The error is 400 for a resource that
// cannot be permitted, 404 for a container of a name that is not there: the next one of that name would be opened by it. Whether
// an item is there does not matter, nor a container of a resource id, which no other container has.
func (s *Server) askedPermission(x *exchange) (name string, scope users.Scope, err error) {
	var asked permissionJSON
	if err := x.decode(&asked); err != nil {
		return "", scope, err
	}
	if name, err = askedName("permission", asked.ID); err != nil {
		return "", scope, err
	}
	switch {
	case strings.EqualFold(asked.Mode, string(users.Read)):
		scope.Mode = users.Read
	case strings.EqualFold(asked.Mode, string(users.All)):
		scope.Mode = users.All
	default:
		return "", scope, refuse(http.StatusBadRequest, "permissionMode is %q; %s or %s is expected", clip(asked.Mode), users.Read, users.All)
	}
	if asked.Mode != string(scope.Mode) {
		scope.Word = asked.Mode
	}
	c, err := s.findResource(x, asked.Resource, &scope)
	if err != nil {
		return "", scope, err
	}
	if string(asked.Key) == "null" {
		asked.Key = nil
	}
	if c == nil {
		if asked.Key != nil { // which nobody can read
			return "", scope, noResource(asked.Resource)
		}
		return name, scope, nil
	}
	key, given, err := c.parseKey(string(asked.Key))
	if err != nil {
		return "", scope, err
	}
	if given {
		scope.Key = key.String()
	}
	return name, scope, nil
}

// findResource reads the link to what is permitted, by names or by resource ids, and returns the container in which that is,
// nil if no container has that resource id.
func (s *Server) findResource(x *exchange, link string, scope *users.Scope) (*collection, error) {
	segments, err := splitLink(link)
	if err != nil {
		return nil, err
	}
	in := target{database: segments[1], container: segments[3]}
	if len(segments) == 6 {
		scope.Item = segments[5]
	}
	if in.byRID() {
		if there, err := s.findByRID(x, link, &in, scope); err != nil || !there {
			return nil, err
		}
	}
	if in.database != x.target.database {
		return nil, refuse(http.StatusBadRequest, "the resource %q is not in database %s, of which the user is", clip(link), x.target.database)
	}
	c, err := s.directory.find(x.ctx, in.database, in.container)
	if isType[*store.NoContainerError](err) || err == nil && !in.means(c.rid) {
		return nil, noResource(link)
	}
	if err != nil {
		return nil, err
	}
	scope.Resource, scope.Container, scope.ContainerRID = link, c.info.Name, c.ridText
	return c, nil
}

func noResource(link string) *failure {
	return refuse(http.StatusNotFound, "the resource %q does not exist", clip(link))
}

// findByRID looks up the names of the container of a link by resource ids, if it is there.
func (s *Server) findByRID(x *exchange, link string, in *target, scope *users.Scope) (there bool, err error) {
	own, err := rid.ParseContainer(in.container)
	if err == nil && scope.Item != "" {
		var inside rid.Inside
		if inside, err = rid.ParseInside(scope.Item); err == nil && (inside.Container() != own || !inside.IsItem()) {
			return false, noResource(link)
		}
		scope.ItemRID, scope.Item = scope.Item, ""
	}
	if err != nil {
		return false, refuse(http.StatusBadRequest, "the resource %q: %v", clip(link), err)
	}
	if in.database != own.Database().String() {
		return false, noResource(link)
	}
	info, err := s.findRID(x.ctx, own)
	if err != nil {
		return false, err
	}
	if info == nil {
		scope.Resource, scope.ContainerRID = link, own.String()
		return false, nil
	}
	in.database, in.container, in.containerRID = info.Database, info.Name, own
	return true, nil
}

// splitLink returns the segments of a link to a container or item. It is read as the path of a URL is, percent-encoding
// decoded; what is not encoded is taken as it is.
func splitLink(link string) ([]string, error) {
	segments := strings.Split(strings.Trim(link, "/"), "/")
	n := len(segments)
	bad := n != 4 && n != 6
	for i, s := range segments {
		if name, err := url.PathUnescape(s); err == nil {
			segments[i] = name
		}
		bad = bad || segments[i] == ""
	}
	if bad || segments[0] != "dbs" || segments[2] != "colls" || n == 6 && segments[4] != "docs" {
		return nil, refuse(http.StatusBadRequest, "the resource is %q; the link of a container or item is expected, dbs/DATABASE/colls/CONTAINER or dbs/DATABASE/colls/CONTAINER/docs/ID", clip(link))
	}
	return segments, nil
}

// createPermission creates a permission, or with the upsert header replaces the one of its name.
func (s *Server) createPermission(x *exchange) error {
	maker, err := x.tokenMaker()
	if err != nil {
		return err
	}
	u, database, err := s.user(x)
	if err != nil {
		return err
	}
	name, scope, err := s.askedPermission(x)
	if err != nil {
		return err
	}
	var made users.Permission
	status, upsert := http.StatusCreated, isTrue(x.header(headerUpsert))
	err = s.users.Change(x.ctx, u.Database, database.RID(), u.Name, func(now *users.User) error {
		if now.RID != u.RID {
			return users.ErrNotFound
		}
		status = http.StatusCreated
		is := now.Permission(name)
		if is == nil || !upsert {
			is, err = now.Permit(name, scope)
		} else {
			status, err = http.StatusOK, now.Replace(is, name, scope)
		}
		if err == nil {
			made = *is
		}
		return err
	})
	s.permits.forget()
	if err != nil {
		return refuseUsers(err)
	}
	return maker.answer(x, status, chargeDeclare, &u, &made)
}

// permission returns the permission of a request, nil if there is none, in a user's record.
func (t *target) permission(u *users.User) *users.Permission {
	if t.userRID != "" {
		return u.PermissionOfRID(t.id)
	}
	return u.Permission(t.id)
}

func absentPermission(x *exchange) *failure {
	return refuse(http.StatusNotFound, "user %s has no permission %s", x.target.user, clip(x.target.id))
}

func (s *Server) readPermission(x *exchange) error {
	maker, err := x.tokenMaker()
	if err != nil {
		return err
	}
	u, _, err := s.user(x)
	if err != nil {
		return err
	}
	p := x.target.permission(&u)
	if p == nil {
		return absentPermission(x)
	}
	if x.unmodified(p.Tag) {
		return nil
	}
	return maker.answer(x, http.StatusOK, chargeResource, &u, p)
}

func (s *Server) replacePermission(x *exchange) error {
	maker, err := x.tokenMaker()
	if err != nil {
		return err
	}
	name, scope, err := s.askedPermission(x)
	if err != nil {
		return err
	}
	var is users.Permission
	u, err := s.changePermission(x, func(u *users.User, p *users.Permission) error {
		err := u.Replace(p, name, scope)
		is = *p
		return err
	})
	if err != nil {
		return err
	}
	return maker.answer(x, http.StatusOK, chargeDeclare, u, &is)
}

func (s *Server) deletePermission(x *exchange) error {
	_, err := s.changePermission(x, func(u *users.User, p *users.Permission) error {
		u.Forbid(p)
		return nil
	})
	if err != nil {
		return err
	}
	x.answer(http.StatusNoContent, chargeDeclare, nil)
	return nil
}

// changePermission changes the permission of a request.
func (s *Server) changePermission(x *exchange, change func(*users.User, *users.Permission) error) (*users.User, error) {
	u, database, err := s.user(x)
	if err != nil {
		return nil, err
	}
	err = s.users.Change(x.ctx, u.Database, database.RID(), u.Name, func(now *users.User) error {
		if now.RID != u.RID {
			return users.ErrNotFound
		}
		p := x.target.permission(now)
		if p == nil {
			return absentPermission(x)
		}
		if err := x.checkMatch("permission", p.Tag); err != nil {
			return err
		}
		return change(now, p)
	})
	s.permits.forget()
	return &u, refuseUsers(err)
}

// permissionBodies are the bodies of the permissions of a request's user.
func (s *Server) permissionBodies(x *exchange) (bodies []json.RawMessage, owner string, err error) {
	maker, err := x.tokenMaker()
	if err != nil {
		return nil, "", err
	}
	u, _, err := s.user(x)
	if err != nil {
		return nil, "", err
	}
	bodies = make([]json.RawMessage, len(u.Permissions))
	for i := range u.Permissions {
		if bodies[i], err = json.Marshal(maker.body(&u, &u.Permissions[i])); err != nil {
			return nil, "", err
		}
	}
	return bodies, u.RID, nil
}

func (s *Server) listPermissions(x *exchange) error {
	bodies, owner, err := s.permissionBodies(x)
	if err != nil {
		return err
	}
	return answerList(x, owner, "Permissions", bodies)
}

func (s *Server) queryPermissions(x *exchange) error {
	bodies, owner, err := s.permissionBodies(x)
	if err != nil {
		return err
	}
	return s.queryResources(x, owner, "Permissions", bodies)
}
