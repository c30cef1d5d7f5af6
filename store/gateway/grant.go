package gateway

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/rid"
	"github.com/millrace/millrace/store/users"
)

// right is what the sender of a request may do.
type right struct {
	access access
	// master is the key that has signed the request, with which tokens are signed that it is answered with; nil of a token.
	master []byte
	// grant is the part of a container to which the right is limited; nil of a key: there is no limit.
	grant *grant
}

// reach is what an operation touches, and so what a right must cover that is limited to a part of a container.
type reach uint8

const (
	// reachAccount is for whoever has a key. It is the zero value, so that an operation of which nothing is said is
	// closed to tokens.
	reachAccount reach = iota
	// reachNothing: the operation tells nothing of what is stored.
	reachNothing
	// reachContainer: the description of a container. Who may read something in it may read how it is divided; to
	// change or delete it takes a token for all of it, as in the service.
	reachContainer
	// reachItems: items, of a partition key or of several.
	reachItems
	// reachItem: the one item that the path names.
	reachItem
)

// What a grant is of, in messages.
const (
	ofToken = "resource token"
	ofKey   = "application's key"
)

// grant is a part of a container, as a permission or an application's key has it.
type grant struct {
	of                  string
	database, container string
	rid                 rid.Container     // zero: whichever has the name, see authorizeApplication
	key                 feed.PartitionKey // zero: all
	item                string            // "" and zero: all
	itemRID             rid.Inside
}

func newGrant(database string, p *users.Permission) (*grant, error) {
	g := &grant{of: ofToken, database: database, container: p.Container, item: p.Item}
	var errs [3]error
	g.rid, errs[0] = rid.ParseContainer(p.ContainerRID)
	if p.Key != "" {
		g.key, errs[1] = feed.ParsePartitionKey(p.Key)
	}
	if p.ItemRID != "" {
		g.itemRID, errs[2] = rid.ParseInside(p.ItemRID)
	}
	return g, errors.Join(errs[:]...)
}

// whole reports whether it is all of the container.
func (g *grant) whole() bool { return g.key.IsZero() && !g.oneItem() }

func (g *grant) oneItem() bool { return g.item != "" || g.itemRID != (rid.Inside{}) }

// what names the part in messages.
func (g *grant) what() string {
	text := "container " + g.database + "/" + cmp.Or(g.container, g.rid.String())
	if g.oneItem() {
		text = "one item of " + text
	}
	if !g.key.IsZero() {
		text += " with the partition key " + g.key.String()
	}
	return text
}

// narrow refuses a path that leads out of the part. It asks nobody, so the refusal tells nothing of what is there. From here
// on the request of a token means the container of its permission, and not one that was made anew under its name.
func (r *right) narrow(t *target) error {
	g := r.grant
	if g == nil || t.noun == nounAccount {
		return nil
	}
	inside := t.container != "" && t.database == g.database && t.container == g.container
	if t.byRID() {
		own, err := rid.ParseContainer(t.container)
		in, _ := rid.ParseDatabase(t.database) // which byRID has done
		inside = err == nil && own == g.rid && in == g.rid.Database()
	}
	if !inside {
		return refuse(http.StatusForbidden, "the %s is for %s and opens nothing else", g.of, g.what())
	}
	t.containerRID = g.rid
	return nil
}

// admit refuses an operation that the right does not allow.
func (r *right) admit(op *operation) error {
	g := r.grant
	switch {
	case (op.writes || op.secret) && r.access != accessWrite:
		if g != nil {
			return refuse(http.StatusForbidden, "the %s is to read and cannot %s", g.of, op.name)
		}
		return refuse(http.StatusForbidden, "a read-only key cannot %s; use a key that writes", op.name)
	case g == nil:
		return nil
	}
	covers := false
	switch op.reach {
	case reachAccount:
	case reachNothing, reachItem: // which item is known later, see admitItem
		covers = true
	case reachContainer:
		covers = !op.writes || g.whole() && g.of == ofToken
	case reachItems:
		covers = !g.oneItem()
	}
	if covers {
		return nil
	}
	return refuse(http.StatusForbidden, "the %s is for %s and does not allow to %s", g.of, g.what(), op.name)
}

// admitKey refuses a partition key other than that of the right; zero is several, or none.
func (r *right) admitKey(key feed.PartitionKey) error {
	g := r.grant
	if g == nil || g.key.IsZero() || key == g.key {
		return nil
	}
	return refuse(http.StatusForbidden, "the %s is for %s: x-ms-documentdb-partitionkey must name it", g.of, g.what())
}

// admitItem refuses an item other than that of the right.
func (r *right) admitItem(c *collection, key feed.PartitionKey, id string) error {
	g := r.grant
	if g == nil || (g.item == "" || id == g.item) && (g.itemRID == (rid.Inside{}) || rid.Item(c.rid, key, id) == g.itemRID) {
		return nil
	}
	return refuse(http.StatusForbidden, "the %s is for %s, and not for this one", g.of, g.what())
}

// checkContainer returns absent unless the container is what a request means: by a link by resource ids, or by a token.
func (x *exchange) checkContainer(is rid.Container, absent error) error {
	switch {
	case x.target.means(is):
		return nil
	case x.right.grant != nil:
		return refuse(http.StatusForbidden, "the %s is for a container %s that was deleted; this one was made anew under its name", x.right.grant.of, x.right.grant.container)
	}
	return absent
}

const (
	// permitAge is how long a permission is believed that was read: so long a token may open something, at a
	// gateway that does not know yet that its permission has gone.
	permitAge = time.Second
	// permitsMax bounds the permissions that are remembered.
	permitsMax = 10_000
	// permitTimeout bounds the reading of one.
	permitTimeout = 5 * time.Second
)

// permits knows what tokens open. It remembers a permission for permitAge, so a client that is busy costs one read of the
// users in that time. Safe for concurrent use.
type permits struct {
	book  *users.Book
	reads singleflight.Group

	mu      sync.Mutex
	known   map[permitKey]permit
	changes uint64 // of users, by this process
}

type permitKey struct {
	database, user string
	serial         users.Serial
}

// permit is one permission as it was at a time, right.access accessNone if there was none.
type permit struct {
	right
	at time.Time
}

func newPermits(book *users.Book) *permits {
	return &permits{book: book, known: map[permitKey]permit{}}
}

// of returns what a token opens; its access is accessNone if that is nothing any more.
func (p *permits) of(ctx context.Context, t *users.Token) (right, error) {
	k := permitKey{t.Database, t.User, t.Serial}
	p.mu.Lock()
	known, ok := p.known[k]
	changes := p.changes
	p.mu.Unlock()
	if ok && time.Since(known.at) < permitAge {
		return known.right, nil
	}
	// Requests that come while the permission is read share the answer, but none that comes behind a change of
	// users by this process.
	flight := strconv.FormatUint(changes, 10) + "/" + k.database + "/" + k.user + "/" + string(k.serial[:])
	read := p.reads.DoChan(flight, func() (any, error) {
		// Not the context of the one that came first, which may go.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), permitTimeout)
		defer cancel()
		return p.read(ctx, k, changes)
	})
	select {
	case r := <-read:
		if r.Err != nil {
			return right{}, &store.Error{Status: store.StatusUnavailable, Message: "the permission of the token cannot be read now: " + r.Err.Error()}
		}
		return r.Val.(right), nil
	case <-ctx.Done():
		return right{}, context.Cause(ctx)
	}
}

func (p *permits) read(ctx context.Context, k permitKey, changes uint64) (right, error) {
	began := time.Now()
	u, err := p.book.Lookup(ctx, k.database, k.user)
	if err != nil && !errors.Is(err, users.ErrNotFound) {
		return right{}, err
	}
	var r right
	if is := u.PermissionOf(k.serial); is != nil {
		if r.grant, err = newGrant(u.Database, is); err != nil {
			return right{}, err
		}
		r.access = accessRead
		if is.Mode == users.All {
			r.access = accessWrite
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changes == changes { // else it may be as it was before
		if len(p.known) >= permitsMax {
			clear(p.known)
		}
		p.known[k] = permit{r, began}
	}
	return r, nil
}

// forget has permissions read again, because this process has changed users.
func (p *permits) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes++
	clear(p.known)
}
