package gateway

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/millrace/millrace/store/rid"
)

// noun is the kind of resource that a path names.
type noun uint8

const (
	nounUnknown noun = iota
	nounAccount
	nounDatabases
	nounDatabase
	nounContainers
	nounContainer
	nounRanges
	nounRange
	nounItems
	nounItem
	nounOffers
	nounOffer
	nounUsers
	nounUser
	nounPermissions
	nounPermission
	nounScripts // stored procedures, triggers or functions: target.kind tells
	nounScript
	nounConflicts
	nounConflict
	nounKeyDeletion // of all items of a partition key
	nounUnserved    // known to the protocol, not to Millrace
)

var nounNames = [...]string{
	"unknown", "account", "databases", "database", "containers", "container", "ranges", "range", "items", "item", "offers", "offer",
	"users", "user", "permissions", "permission", "scripts", "script", "conflicts", "conflict", "key deletion", "unserved",
}

func (n noun) String() string { return nounNames[n] }

// target is the resource of a request.
type target struct {
	noun noun
	// kind and link are the parts of the path that a signature covers. raw is the link as it
	// was sent, with its escapes.
	kind, link, raw string
	database        string
	container       string
	user            string
	id              string

	// Set by Server.resolve where the path names resources by their resource ids. The names
	// above are then those that they had when they were looked up.
	databaseRID  rid.Database
	containerRID rid.Container
	itemRID      rid.Inside
	userRID      string
}

// unserved are resources of the protocol that Millrace does not have.
var unserved = []string{
	"clientencryptionkeys", "operations", "attachments", "schemas", "media", "snapshots",
}

// scripts are the words of what runs in JavaScript.
var scripts = []string{"sprocs", "triggers", "udfs"}

// parseTarget reads a path. Names are decoded once, after the path is split, so that a name may
// hold an escaped slash. A trailing slash is ignored.
func parseTarget(u *url.URL) (target, error) {
	path := strings.Trim(u.EscapedPath(), "/")
	if path == "" {
		return target{noun: nounAccount}, nil
	}
	raw := strings.Split(path, "/")
	segments := make([]string, len(raw))
	for i, s := range raw {
		name, err := url.PathUnescape(s)
		if err != nil {
			return target{}, refuse(http.StatusBadRequest, "the path %q is not percent-encoded as a URL is", path)
		}
		segments[i] = name
	}
	t := target{}
	// A path that ends with a noun is signed with the link of its parent:
	//
	//	/dbs/shop/colls/orders        kind colls, link dbs/shop/colls/orders
	//	/dbs/shop/colls/orders/docs   kind docs,  link dbs/shop/colls/orders
	n := len(segments)
	if n%2 == 0 {
		t.kind, t.link, t.raw = segments[n-2], strings.Join(segments, "/"), strings.Join(raw, "/")
	} else {
		t.kind, t.link, t.raw = segments[n-1], strings.Join(segments[:n-1], "/"), strings.Join(raw[:n-1], "/")
	}
	t.noun = t.classify(segments)
	if t.noun == nounOffer {
		t.link = strings.ToLower(t.id) // an offer is signed by its rid alone
	}
	if n == 6 && segments[4] == "operations" {
		// What is done with a whole logical partition is signed as its container.
		t.kind, t.link, t.raw = "colls", strings.Join(segments[:4], "/"), strings.Join(raw[:4], "/")
	}
	return t, nil
}

// classify returns the noun that the segments name, and sets the names of t.
func (t *target) classify(segments []string) noun {
	word := func(i int, want string) bool { return i < len(segments) && segments[i] == want }
	n := len(segments)
	switch {
	case word(0, "offers") && n == 1:
		return nounOffers
	case word(0, "offers") && n == 2:
		t.id = segments[1]
		return nounOffer
	case !word(0, "dbs"):
		return nounUnknown
	case n == 1:
		return nounDatabases
	}
	t.database = segments[1]
	switch {
	case n == 2:
		return nounDatabase
	case n > 2 && slices.Contains(unserved, segments[2]):
		return nounUnserved
	case word(2, "users"):
		return t.classifyUser(segments)
	case !word(2, "colls"):
		return nounUnknown
	case n == 3:
		return nounContainers
	}
	t.container = segments[3]
	switch {
	case n == 4:
		return nounContainer
	case word(4, "conflicts") && n == 5:
		return nounConflicts
	case word(4, "conflicts") && n == 6:
		t.id = segments[5]
		return nounConflict
	case word(4, "operations") && word(5, "partitionkeydelete") && n == 6:
		return nounKeyDeletion
	case slices.Contains(unserved, segments[4]):
		return nounUnserved
	case word(4, "pkranges") && n == 5:
		return nounRanges
	case word(4, "pkranges") && n == 6:
		t.id = segments[5]
		return nounRange
	case slices.Contains(scripts, segments[4]) && n == 5:
		return nounScripts
	case slices.Contains(scripts, segments[4]) && n == 6:
		t.id = segments[5]
		return nounScript
	case word(4, "docs") && n == 5:
		return nounItems
	case word(4, "docs") && n == 6:
		t.id = segments[5]
		return nounItem
	case word(4, "docs") && n > 6 && slices.Contains(unserved, segments[6]):
		return nounUnserved
	}
	return nounUnknown
}

// classifyUser is classify for what is under the users of a database.
func (t *target) classifyUser(segments []string) noun {
	n := len(segments)
	if n > 3 {
		t.user = segments[3]
	}
	switch {
	case n == 3:
		return nounUsers
	case n == 4:
		return nounUser
	case segments[4] != "permissions":
		return nounUnknown
	case n == 5:
		return nounPermissions
	case n == 6:
		t.id = segments[5]
		return nounPermission
	}
	return nounUnknown
}

// operation is one row of the table of requests: what is done with a noun by a method.
type operation struct {
	// name is the operation in metrics, spans and messages.
	name string
	// writes says that a read-only key is not enough.
	writes bool
	// secret says that the answer holds what opens something, so that a read-only key is not enough for it either.
	secret bool
	// reach is what the operation touches; the zero value is closed to resource tokens.
	reach reach
	// bodyMax bounds the body; 0 means that there is none.
	bodyMax int64
	serve   func(*exchange) error
}

// route finds the operation of a request, by method and, where the method alone
// does not tell, by headers.
func (s *Server) route(t *target, r *http.Request) (*operation, error) {
	operations, known := s.operations(t.noun)
	if !known {
		return nil, refuse(http.StatusNotFound, "there is nothing at %s", r.URL.EscapedPath())
	}
	method := r.Method
	switch {
	case method == http.MethodPost:
		method = postKind(r.Header)
	case method == http.MethodGet && t.noun == nounItems && r.Header.Get(headerIncremental) != "":
		method = getChanges
	}
	op, ok := operations[method]
	if !ok {
		if t.noun == nounUnserved {
			return nil, refuse(http.StatusNotImplemented, "%s are not served by Millrace", t.kind)
		}
		return nil, refuse(http.StatusMethodNotAllowed, "%s is not allowed on %s", r.Method, r.URL.EscapedPath())
	}
	return op, nil
}

// getChanges is a GET for the change feed.
const getChanges = "changes"

// The kinds of POST requests.
const (
	postCreate = http.MethodPost
	postQuery  = "query"
	postPlan   = "plan"
	postBatch  = "batch"
)

// postKind returns what a POST asks for. The order matters: a request for a plan has the headers
// of a query too.
func postKind(h http.Header) string {
	switch {
	case isTrue(h.Get(headerQueryPlan)):
		return postPlan
	case isTrue(h.Get(headerBatch)):
		return postBatch
	case isTrue(h.Get(headerQuery)), isTrue(h.Get(headerIsQuery)),
		strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "application/query+json"):
		return postQuery
	}
	return postCreate
}

func isTrue(text string) bool { return strings.EqualFold(strings.TrimSpace(text), "true") }
