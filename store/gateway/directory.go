package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/rid"
)

// collection is a container with what requests for its items need.
type collection struct {
	*store.Container                  // with the reads that a request asks for, see consistent
	owned            *store.Container // whose owners answer all reads
	info             store.ContainerInfo
	rid              rid.Container
	ridText          string
	link             string // by names, as headers have it
}

func newCollection(client *store.Client, info store.ContainerInfo) (*collection, error) {
	ct, err := client.Open(info)
	if err != nil {
		return nil, err
	}
	own := info.RID()
	return &collection{
		Container: ct, owned: ct, info: info, rid: own, ridText: own.String(), link: namedLink(&info),
	}, nil
}

// namedLink is the link to a container by names, percent-encoded: it stands in headers, which hold ASCII alone. The service's
// has that form too, and clients decode it.
func namedLink(info *store.ContainerInfo) string {
	return "dbs/" + url.PathEscape(info.Database) + "/colls/" + url.PathEscape(info.Name)
}

// isOf tells whether the collection knows of a container what the gateway needs.
func (c *collection) isOf(info *store.ContainerInfo) bool {
	return c.info.ID == info.ID && len(c.info.Partitions) == len(info.Partitions) && len(c.info.Former) == len(info.Former) &&
		c.info.Spec.Standbys == info.Spec.Standbys && c.rid == info.RID()
}

// directory finds containers. While it runs it follows the catalog, so that a request for an
// item need not ask it. A container that it does not know is looked up in the catalog. It
// keeps only properties of a container that never change, name and id, and those that isOf compares.
type directory struct {
	client *store.Client

	mu      sync.RWMutex
	known   map[string]*collection        // nil: it does not follow the catalog
	byRID   map[rid.Container]*collection // those that are known whose resource id no other container has
	deleted map[feed.ResourceID]bool
}

func newDirectory(client *store.Client) *directory {
	return &directory{client: client, deleted: map[feed.ResourceID]bool{}}
}

// followAgain is the pause before the catalog is followed again after an error.
const followAgain = time.Second

func (d *directory) run(ctx context.Context, log *slog.Logger) {
	for ctx.Err() == nil {
		err := d.client.Catalog().Watch(ctx, d.applyCatalog)
		// Without the watch nothing would tell of a container that was deleted and made again,
		// so requests ask the catalog until it is followed again.
		d.mu.Lock()
		d.known, d.byRID = nil, nil
		d.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			log.Warn("the gateway cannot follow the catalog; trying again", slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
		case <-time.After(followAgain):
		}
	}
}

func (d *directory) applyCatalog(infos []store.ContainerInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known, deleted := make(map[string]*collection, len(infos)), map[feed.ResourceID]bool{}
	having := make(map[rid.Container]int, len(infos))
	for i := range infos {
		info := &infos[i]
		having[info.RID()]++ // in whatever state it is, as findRID counts
		if d.deleted[info.ID] {
			deleted[info.ID] = true // the watch lags; it will say so too
			continue
		}
		if info.State != store.ContainerReady {
			continue
		}
		if c := d.known[info.Database+"/"+info.Name]; c != nil && c.isOf(info) {
			known[info.Database+"/"+info.Name] = c
			continue
		}
		if c, err := newCollection(d.client, *info); err == nil { // else it is looked up, and the error shown
			known[info.Database+"/"+info.Name] = c
		}
	}
	d.known, d.deleted, d.byRID = known, deleted, make(map[rid.Container]*collection, len(known))
	for _, c := range known {
		if having[c.rid] == 1 {
			d.byRID[c.rid] = c
		}
	}
}

// forget removes a container that this process has deleted, before the watch of the catalog
// tells of it.
func (d *directory) forget(id feed.ResourceID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		return
	}
	d.deleted[id] = true
	for name, c := range d.known {
		if c.info.ID == id {
			delete(d.known, name)
			delete(d.byRID, c.rid)
		}
	}
}

// cached returns a container that is known, else nil. It asks nobody.
func (d *directory) cached(database, name string) *collection {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.known[database+"/"+name]
}

// cachedRID returns a container that is known and alone has a resource id, else nil.
func (d *directory) cachedRID(of rid.Container) *collection {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.byRID[of]
}

// find returns a container, or *store.NoContainerError.
func (d *directory) find(ctx context.Context, database, name string) (*collection, error) {
	if c := d.cached(database, name); c != nil {
		return c, nil
	}
	info, err := d.client.Catalog().Get(ctx, database, name)
	if err != nil {
		return nil, err
	}
	if info.State != store.ContainerReady {
		return nil, &store.NoContainerError{Database: database, Name: name}
	}
	return newCollection(d.client, info)
}

// collection returns the container of a request, and names it in the answer's headers.
func (s *Server) collection(x *exchange) (*collection, error) {
	c, err := s.directory.find(x.ctx, x.target.database, x.target.container)
	if errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if err != nil {
		return nil, &store.Error{Status: store.StatusUnavailable, Message: err.Error()}
	}
	if err := x.checkContainer(c.rid, &store.NoContainerError{Database: x.target.database, Name: x.target.container}); err != nil {
		return nil, err
	}
	x.set(headerContentPath, c.ridText)
	x.set(headerAltPath, c.link)
	if meant := x.header(headerCollection); meant != "" && meant != c.ridText {
		return nil, refuseAs(400, 1024, "container %s has the resource id %s, the request is meant for %s", c.info.Name, c.ridText, clip(meant))
	}
	return c.consistent(x, s.cfg.Consistency), nil
}
