package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/rid"
)

// Users as the SDKs create, list, query, rename and delete them.
func TestUser_Resource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.ask("POST", theUsers, `{"id":"ann"}`).is(404, "1003")
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	w.ask("GET", theUsers+"/ann", "").is(404)
	if got := w.ask("GET", theUsers, "").is(200).ids("Users"); len(got) != 0 {
		t.Errorf("users are %v", got)
	}
	var made, read struct {
		ID          string
		RID         string `json:"_rid"`
		ETag        string `json:"_etag"`
		Permissions string `json:"_permissions"`
		Modified    int64  `json:"_ts"`
	}
	a := w.ask("POST", theUsers, `{"id":"ann"}`).is(201).into(&made)
	if made.ID != "ann" || made.ETag == "" || made.ETag != a.header.Get("etag") || made.Permissions == "" || made.Modified == 0 {
		t.Errorf("the user is %+v", made)
	}
	if _, err := rid.ParseUser(made.RID); err != nil {
		t.Error(err)
	}
	w.ask("POST", theUsers, `{"id":"ann"}`).is(409)
	w.ask("POST", theUsers, `{"id":"ann"}`, upsert, "true").is(200)
	w.ask("POST", theUsers, `{"id":"bob"}`, upsert, "true").is(201)
	w.ask("GET", theUsers+"/ann", "").is(200).into(&read)
	if diff := cmp.Diff(made, read); diff != "" {
		t.Error(diff)
	}
	w.ask("GET", theUsers+"/ann", "", "if-none-match", made.ETag).is(304)
	if diff := cmp.Diff([]string{"ann", "bob"}, w.ask("GET", theUsers, "").is(200).ids("Users")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"ann"}, w.ask("GET", theUsers, "", pageItems, "1").is(200).ids("Users")); diff != "" {
		t.Error(diff)
	}
	query := `{"query":"SELECT * FROM c WHERE c.id = @id","parameters":[{"name":"@id","value":"bob"}]}`
	if diff := cmp.Diff([]string{"bob"}, w.ask("POST", theUsers, query, isQuery, "true").is(200).ids("Users")); diff != "" {
		t.Error(diff)
	}
	w.ask("PUT", theUsers+"/ann", `{"id":"bob"}`).is(409)
	w.ask("PUT", theUsers+"/ann", `{"id":"eve"}`, "if-match", `"x"`).is(412)
	w.ask("PUT", theUsers+"/ann", `{"id":"eve"}`, "if-match", made.ETag).is(200).into(&read)
	if read.ID != "eve" || read.RID != made.RID || read.ETag == made.ETag {
		t.Errorf("renamed, it is %+v", read)
	}
	w.ask("GET", theUsers+"/ann", "").is(404)
	w.ask("DELETE", theUsers+"/eve", "", "if-match", made.ETag).is(412)
	w.ask("DELETE", theUsers+"/eve", "").is(204)
	w.ask("DELETE", theUsers+"/eve", "").is(404)
	w.ask("GET", theUsers+"/eve/permissions", "").is(404, "1003")
	for _, bad := range []string{"", "{}", `{"id":""}`, `{"id":"a/b"}`, `{"id":"a "}`, `{"id":7}`, `{"id":"` + strings.Repeat("x", 256) + `"}`, "[]"} {
		w.ask("POST", theUsers, bad).is(400)
		w.ask("PUT", theUsers+"/bob", bad).is(400)
	}
	w.ask("POST", "/dbs/system/users", `{"id":"ann"}`).is(403)
}

// A permission may name a container by a resource id that none has, as in the service, and opens nothing.
func TestPermission_OfAResourceIDThatNobodyHas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.user("ann")
	const gone = "dbs/AQAAAA==/colls/AQAAAJ0fgTc="
	at := theUsers + "/ann/permissions"
	for i, resource := range []string{gone, gone + "/docs/AQAAAJ0fgTcBAAAAAAAAAA=="} {
		name := fmt.Sprint("p", i)
		var made permission
		w.ask("POST", at, permissionBody(t, name, "All", resource, "")).is(201).into(&made)
		if made.Resource != resource {
			t.Errorf("it is shown as that of %s", made.Resource)
		}
		w.ask("POST", at, permissionBody(t, name, "Read", resource, ""), upsert, "true").is(200)
		w.ask("PUT", at+"/"+name, permissionBody(t, name, "All", resource, "")).is(200).into(&made)
		for _, path := range []string{docs, "/dbs/shop/colls/things", "/dbs/shop/colls/", "/dbs/shop"} {
			w.with(made.Token, "GET", path, "").is(403)
		}
		w.with(made.Token, "GET", "/"+gone, "").is(404)
		w.with(made.Token, "POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`).is(403)
	}
	w.ask("POST", at, permissionBody(t, "q", "All", gone, `["a"]`)).is(404) // nobody knows what kind of key it has
	w.ask("POST", at, permissionBody(t, "q", "All", "dbs/AQAAAA==/colls/AQBAAJ0fgTc=", "")).is(404)
	w.ask("POST", at, permissionBody(t, "q", "All", "dbs/shop/colls/gone", "")).is(404)
}

// Permissions as the SDKs create, list, query, replace and delete them.
func TestPermission_Resource(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	for _, name := range []string{"things", "other", "wide ü%20"} {
		w.container(name, byPK)
	}
	at := theUsers + "/ann/permissions"
	w.ask("POST", at, permissionBody(t, "p", "Read", things, "")).is(404, "1003")
	w.user("ann")
	w.ask("GET", at+"/p", "").is(404)
	made := w.permit("ann", "p", "Read", things, `["a"]`)
	if diff := cmp.Diff([]any{"a"}, made.Key); diff != "" {
		t.Error(diff)
	}
	w.ask("POST", at, permissionBody(t, "p", "Read", "dbs/shop/colls/other", "")).is(409)
	w.ask("POST", at, permissionBody(t, "q", "All", things, `["a"]`)).is(409) // one of a resource, as in the service
	var inLower permission
	w.ask("POST", at, permissionBody(t, "q", "all", things, "")).is(201).into(&inLower)
	if inLower.Mode != "all" { // it is shown as it was sent, and means what it means
		t.Errorf("the mode all is shown as %q", inLower.Mode)
	}
	w.with(inLower.Token, "POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`).is(201)
	var renamed permission
	w.ask("PUT", at+"/q", permissionBody(t, "q", "All", things, "")).is(200).into(&renamed)
	if renamed.Mode != "All" {
		t.Errorf("the mode All is shown as %q", renamed.Mode)
	}
	w.with(inLower.Token, "POST", docs, `{"id":"2","pk":"a"}`, keyHeader, `["a"]`).is(201)
	w.ask("POST", at, permissionBody(t, "r", "All", "dbs/shop/colls/other", ""), upsert, "true").is(201)
	w.ask("POST", at, permissionBody(t, "r", "Read", "dbs/shop/colls/other", ""), upsert, "true").is(200)
	w.ask("POST", at, permissionBody(t, "s", "Read", "dbs/shop/colls/wide%20%C3%BC%2520", "")).is(201)
	w.ask("GET", at+"/p", "", "if-none-match", made.ETag).is(304)
	if diff := cmp.Diff([]string{"p", "q", "r", "s"}, w.ask("GET", at, "").is(200).ids("Permissions")); diff != "" {
		t.Error(diff)
	}
	query := `{"query":"SELECT * FROM c WHERE c.permissionMode = 'Read' AND c.id < 's'"}`
	if diff := cmp.Diff([]string{"p", "r"}, w.ask("POST", at, query, isQuery, "true").is(200).ids("Permissions")); diff != "" {
		t.Error(diff)
	}
	var list struct{ Permissions []permission }
	w.ask("GET", at, "").is(200).into(&list)
	w.with(list.Permissions[0].Token, "GET", docs, "", keyHeader, `["a"]`).is(200)
	w.ask("PUT", at+"/p", permissionBody(t, "q", "Read", things, `["a"]`)).is(409)
	w.ask("PUT", at+"/p", permissionBody(t, "p2", "Read", things, `["b"]`), "if-match", `"x"`).is(412)
	var replaced permission
	w.ask("PUT", at+"/p", permissionBody(t, "p2", "Read", things, `["b"]`), "if-match", made.ETag).is(200).into(&replaced)
	if replaced.RID != made.RID || replaced.ETag == made.ETag || replaced.ID != "p2" {
		t.Errorf("replaced, it is %+v", replaced)
	}
	w.ask("GET", at+"/p", "").is(404)
	w.ask("DELETE", at+"/p2", "", "if-match", made.ETag).is(412)
	w.ask("DELETE", at+"/p2", "").is(204)
	w.ask("DELETE", at+"/p2", "").is(404)
	for name, body := range map[string]string{
		"no JSON":                  "{",
		"no id":                    permissionBody(t, "", "Read", things, ""),
		"no mode":                  permissionBody(t, "x", "", things, ""),
		"a mode that is none":      permissionBody(t, "x", "Write", things, ""),
		"no resource":              permissionBody(t, "x", "Read", "", ""),
		"a database":               permissionBody(t, "x", "Read", "dbs/shop", ""),
		"a stored procedure":       permissionBody(t, "x", "Read", things+"/sprocs/s", ""),
		"all containers":           permissionBody(t, "x", "Read", "dbs/shop/colls", ""),
		"an empty name":            permissionBody(t, "x", "Read", "dbs/shop/colls//docs/1", ""),
		"another database":         permissionBody(t, "x", "Read", "dbs/system/colls/things", ""),
		"a name and a resource id": permissionBody(t, "x", "Read", "dbs/"+made.RID[:6]+"==/colls/things", ""),
		"part of a partition key":  permissionBody(t, "x", "Read", things, `["a","b"]`),
		"an odd partition key":     permissionBody(t, "x", "Read", things, `[[1]]`),
		"no array":                 permissionBody(t, "x", "Read", things, `"a"`),
	} {
		if a := w.ask("POST", at, body); a.status != 400 {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
		if a := w.ask("PUT", at+"/q", body); a.status != 400 {
			t.Errorf("%s, replaced: %d %s", name, a.status, a.body)
		}
	}
	w.ask("POST", at, permissionBody(t, "x", "Read", "dbs/shop/colls/none", "")).is(404)
	if diff := cmp.Diff([]string{"q", "r", "s"}, w.ask("GET", at, "").is(200).ids("Permissions")); diff != "" {
		t.Error(diff)
	}
}

// Links by resource id to users and permissions, signed as .NET and Java sign them.
func TestUser_ByRID(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.user("ann")
	w.user("bob")
	w.permit("ann", "p", "Read", things, "")
	database := selfOf(t, w.ask("GET", "/dbs/shop", "").is(200).body)
	ann := selfOf(t, w.ask("GET", theUsers+"/ann", "").is(200).body)
	bob := selfOf(t, w.ask("GET", theUsers+"/bob", "").is(200).body)
	p := selfOf(t, w.ask("GET", theUsers+"/ann/permissions/p", "").is(200).body)
	if diff := cmp.Diff([]string{"ann", "bob"}, w.follow("GET", database.in("users"), "").is(200).ids("Users")); diff != "" {
		t.Error(diff)
	}
	if got := w.follow("GET", ann, "").is(200).object()["id"]; got != "ann" {
		t.Errorf("the link of ann leads to %v", got)
	}
	if diff := cmp.Diff([]string{"p"}, w.follow("GET", ann.in("permissions"), "").is(200).ids("Permissions")); diff != "" {
		t.Error(diff)
	}
	if got := w.follow("GET", p, "").is(200).object()["id"]; got != "p" {
		t.Errorf("the link of p leads to %v", got)
	}
	w.follow("POST", ann.in("permissions"), permissionBody(t, "q", "Read", database.path+"/colls/"+"AAAAAAAAAAA=", "")).is(404)
	w.follow("PUT", p, permissionBody(t, "p", "All", things, "")).is(200)
	id := func(s self) string { return s.path[strings.LastIndexByte(s.path, '/')+1:] }
	w.follow("GET", self{bob.path + "/permissions/" + id(p), "permissions", p.signed}, "").is(404)
	w.follow("GET", self{ann.path + "/permissions/" + id(ann), "permissions", ann.signed}, "").is(400)
	w.follow("GET", self{database.path + "/users/" + id(p), "users", p.signed}, "").is(400)
	w.follow("GET", self{database.path + "/users/" + id(ann)[:6] + "AAAAA=", "users", strings.ToLower(id(ann)[:6] + "AAAAA=")}, "").is(404)
	w.follow("GET", self{database.path + "/users/ann", "users", "ann"}, "").is(401) // a name alone is no signature
	w.follow("DELETE", p, "").is(204)
	w.follow("GET", p, "").is(404)
	w.follow("PUT", ann, `{"id":"eve"}`).is(200)
	w.follow("GET", ann, "").is(200)
	w.follow("DELETE", ann, "").is(204)
	w.follow("GET", ann, "").is(404)
	w.user("ann")
	w.follow("GET", ann, "").is(404) // another
	w.ask("DELETE", "/dbs/shop", "").is(204)
	w.follow("GET", bob, "").is(404, "1003")
}

// Users go on where the gateway is another one, and go with their database.
func TestUser_IsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	for i := range 3 {
		w.user(fmt.Sprint("u", i))
	}
	token := w.permit("u0", "p", "Read", things, "").Token
	w.serve(gateway.Config{})
	w.with(token, "GET", docs, "").is(200)
	if n := len(w.ask("GET", theUsers, "").is(200).ids("Users")); n != 3 {
		t.Errorf("%d users", n)
	}
	w.ask("DELETE", "/dbs/shop", "").is(204)
	w.container("things", byPK)
	if n := len(w.ask("GET", theUsers, "").is(200).ids("Users")); n != 0 {
		t.Errorf("%d users of a database that was made anew", n)
	}
}
