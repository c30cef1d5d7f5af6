package gateway

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// collection is a container as requests for its items need it.
type collection struct {
	*store.Container
	info    store.ContainerInfo
	rid     [8]byte
	ridText string
	link    string // by names
}

func newCollection(client *store.Client, info store.ContainerInfo) (*collection, error) {
	ct, err := client.Open(info)
	if err != nil {
		return nil, err
	}
	rid := info.RID()
	return &collection{
		Container: ct, info: info, rid: rid, ridText: store.RIDText(rid[:]), link: "dbs/" + info.Database + "/colls/" + info.Name,
	}, nil
}

// directory finds containers. While it runs it follows the catalog, so that a
// request for an item does not ask it; what it does not know it looks up. What it
// keeps of a container never changes in its life: name, id, partitions.
type directory struct {
	client *store.Client

	mu     sync.RWMutex
	known  map[string]*collection // nil: it does not follow the catalog
	forgot map[feed.ResourceID]bool
}

func newDirectory(client *store.Client) *directory {
	return &directory{client: client, forgot: map[feed.ResourceID]bool{}}
}

// followAgain is the pause before the catalog is followed again after an error.
const followAgain = time.Second

func (d *directory) run(ctx context.Context, log *slog.Logger) {
	for ctx.Err() == nil {
		err := d.client.Catalog().Watch(ctx, d.take)
		d.mu.Lock()
		d.known = nil
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

func (d *directory) take(infos []store.ContainerInfo) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known, forgot := make(map[string]*collection, len(infos)), map[feed.ResourceID]bool{}
	for i := range infos {
		info := &infos[i]
		if d.forgot[info.ID] {
			forgot[info.ID] = true // the catalog will say so too
			continue
		}
		if info.State != store.ContainerReady {
			continue
		}
		if c := d.known[info.Database+"/"+info.Name]; c != nil && c.info.ID == info.ID && len(c.info.Partitions) == len(info.Partitions) {
			known[info.Database+"/"+info.Name] = c
			continue
		}
		if c, err := newCollection(d.client, *info); err == nil { // else it is looked up, and the error shown
			known[info.Database+"/"+info.Name] = c
		}
	}
	d.known, d.forgot = known, forgot
}

// forget makes a container that this process deleted unknown at once.
func (d *directory) forget(id feed.ResourceID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		return
	}
	d.forgot[id] = true
	for name, c := range d.known {
		if c.info.ID == id {
			delete(d.known, name)
		}
	}
}

// cached returns a container if it is known; nil if not.
func (d *directory) cached(database, name string) *collection {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.known[database+"/"+name]
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

// collection finds the container of a request and names it in the answer.
func (s *Server) collection(x *exchange) (*collection, error) {
	c, err := s.directory.find(x.ctx, x.target.database, x.target.container)
	if errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if err != nil {
		return nil, &store.Error{Status: store.StatusUnavailable, Message: err.Error()}
	}
	h := x.w.Header()
	h.Set(headerContentPath, c.ridText)
	h.Set(headerAltPath, c.link)
	if rid := x.header(headerCollection); rid != "" && rid != c.ridText {
		return nil, refuseAs(400, 1024, "container %s has the resource id %s, the request is meant for %s", c.info.Name, c.ridText, clip(rid))
	}
	return c, nil
}
