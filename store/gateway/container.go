package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/store"
)

func (s *Server) createContainer(x *exchange) error {
	if _, err := s.database(x); err != nil {
		return err
	}
	var asked containerJSON
	if err := x.decode(&asked); err != nil {
		return err
	}
	spec, err := s.declared(&asked)
	if err != nil {
		return err
	}
	throughput, err := askedOffer(x)
	if err != nil {
		return err
	}
	spec.Partitions = s.cfg.Partitions
	catalog := s.client.Catalog()
	// A container that is still being made is no conflict: an earlier request of this one may
	// have been cut off, and Create finishes it.
	exists := refuse(http.StatusConflict, "container %s/%s exists already", x.target.database, asked.ID)
	switch info, err := catalog.Get(x.ctx, x.target.database, asked.ID); {
	case err == nil && info.State != store.ContainerCreating:
		return exists
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	}
	info, err := catalog.Create(x.ctx, x.target.database, asked.ID, spec.ContainerSpec)
	if err != nil {
		return begun(err)
	}
	// Two requests that make the same container at once both come here. The first one sets
	// the policies, and the other is told that the container exists.
	policies, err := asked.kept(throughput).encode()
	if err != nil {
		return err
	}
	if info.Policies != nil {
		return exists
	}
	if info, err = catalog.SetPolicies(x.ctx, &info, policies); err != nil {
		return begun(err)
	}
	return answerContainer(x, http.StatusCreated, chargeDeclare, &info)
}

// begun returns the error of making a container. Where somebody did not answer, the record or some
// of the logs may be there already, so that it is no refusal.
func begun(err error) error {
	if store.Unanswered(err) {
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
	return err
}

// containerInfo returns the container of a request as the catalog holds it now.
func (s *Server) containerInfo(x *exchange) (store.ContainerInfo, error) {
	info, err := s.client.Catalog().Get(x.ctx, x.target.database, x.target.container)
	if isType[*store.NoContainerError](err) || err == nil && info.State != store.ContainerReady {
		return info, absent(x)
	}
	if err != nil {
		return info, err
	}
	return info, x.checkContainer(info.RID(), absent(x))
}

// absent says that the container of a request does not exist.
func absent(x *exchange) *failure {
	return refuse(http.StatusNotFound, "container %s/%s does not exist", x.target.database, x.target.container)
}

func (s *Server) readContainer(x *exchange) error {
	info, err := s.containerInfo(x)
	if err != nil {
		return err
	}
	if parseMatchingText(x.header("If-None-Match")) == revisionTag(info.Revision) {
		x.etag(revisionTag(info.Revision))
		x.answer(http.StatusNotModified, chargeResource, nil)
		return nil
	}
	if isTrue(x.header(headerQuota)) {
		if percent, ok := s.indexProgress(x.ctx, &info); ok {
			x.w.Header().Set(headerIndexProgress, strconv.Itoa(percent))
		}
	}
	if g := x.right.grant; isTrue(x.header(headerStatistics)) && (g == nil || g.whole()) {
		return answerContainer(x, http.StatusOK, chargeResource, &info, s.countItems(x.ctx, &info)...)
	}
	return answerContainer(x, http.StatusOK, chargeResource, &info)
}

// countTime bounds how long the items of a container are counted: it is told without their number where that takes longer.
const countTime = time.Second

// countItems returns how many items each physical partition of a container has, which is a count of their keys; nil where
// that is not learned.
func (s *Server) countItems(ctx context.Context, info *store.ContainerInfo) (counts []rangeStatistics) {
	ct, err := s.client.Open(*info)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	for _, part := range info.Partitions {
		page, err := ct.Query(ctx, store.QueryRequest{Text: "SELECT VALUE COUNT(1) FROM c", Range: part.Range})
		if err != nil || len(page.Rows) != 1 || page.Continuation != "" {
			return nil
		}
		n, err := strconv.ParseInt(string(page.Rows[0]), 10, 64)
		if err != nil {
			return nil
		}
		counts = append(counts, rangeStatistics{ID: strconv.FormatUint(uint64(part.Number), 10), Documents: n})
	}
	return counts
}

func answerContainer(x *exchange, status int, charge float64, info *store.ContainerInfo, counts ...rangeStatistics) error {
	body, err := containerBody(info)
	if err != nil {
		return err
	}
	if body.Statistics = counts; counts != nil {
		total := int64(0)
		for _, c := range counts {
			total += c.Documents
		}
		x.w.Header().Set(headerUsage, fmt.Sprintf("documentsCount=%d;", total))
	}
	h := x.w.Header()
	// Of what holds the container, as an item's are of its container. The SDK for Java makes the link by which it asks for changes of the
	// path and the container's name.
	h.Set(headerContentPath, info.RID().Database().String())
	h.Set(headerAltPath, "dbs/"+url.PathEscape(info.Database))
	x.etag(revisionTag(info.Revision))
	return x.answerJSON(status, charge, body)
}

// replaceContainer changes time to live and indexes. All that cannot change must be equal in
// the body.
func (s *Server) replaceContainer(x *exchange) error {
	match := x.header("If-Match")
	for {
		info, err := s.containerInfo(x)
		if err != nil {
			return err
		}
		if match != "" && match != "*" && parseMatchingText(match) != revisionTag(info.Revision) {
			return refuse(http.StatusPreconditionFailed, "container %s has changed; read it again", info.Name)
		}
		replaced, err := s.replaceSeen(x, &info)
		// What a body does not name stays as it is. So a container that has changed meanwhile is
		// looked at again, or the change of another would be undone.
		if errors.Is(err, store.ErrPreconditionFailed) {
			continue
		}
		if err != nil {
			return err
		}
		return answerContainer(x, http.StatusOK, chargeDeclare, &replaced)
	}
}

// replaceSeen replaces a container by what the body asks for. The error is
// store.ErrPreconditionFailed if it is not as it was seen any more.
func (s *Server) replaceSeen(x *exchange, info *store.ContainerInfo) (replaced store.ContainerInfo, err error) {
	var asked containerJSON
	if err := x.decode(&asked); err != nil {
		return replaced, err
	}
	if asked.ID != info.Name {
		return replaced, refuse(http.StatusBadRequest, "the container is %q, the body has the id %q; an id cannot be changed", info.Name, clip(asked.ID))
	}
	spec, err := s.declared(&asked)
	if err != nil {
		return replaced, err
	}
	// The protocol has no word for these, and a body without a policy keeps what YAML or an
	// earlier request declared.
	spec.Partitions, spec.ChangeFeed, spec.Standbys = info.Spec.Partitions, info.Spec.ChangeFeed, info.Spec.Standbys
	if asked.IndexingPolicy == nil {
		spec.Indexes = info.Spec.Indexes
	}
	if asked.UniqueKeyPolicy == nil {
		spec.UniqueKeys = info.Spec.UniqueKeys
	}
	if fixed := info.Spec.FixedDifference(spec.normalized()); fixed != "" {
		return replaced, refuse(http.StatusBadRequest, "%s of container %s cannot be changed; make a new container and copy the items", fixed, info.Name)
	}
	before, err := keptOf(info)
	if err != nil {
		return replaced, err
	}
	if err := asked.checkReplaced(&before.containerJSON); err != nil {
		return replaced, err
	}
	policies, err := asked.kept(before.Offer).encode()
	if err != nil {
		return replaced, err
	}
	return s.client.Catalog().Replace(x.ctx, info.Database, info.Name, info.Revision, spec.ContainerSpec, policies)
}

func (s *Server) deleteContainer(x *exchange) error {
	// In any state: one that is still being made or deleted, by a request that was cut off, can be deleted too.
	info, err := s.client.Catalog().Get(x.ctx, x.target.database, x.target.container)
	if isType[*store.NoContainerError](err) {
		return absent(x)
	}
	if err == nil {
		err = x.checkContainer(info.RID(), absent(x))
	}
	if err != nil {
		return err
	}
	if err := s.checkUnused(x.ctx, &info); err != nil {
		return err
	}
	err = s.client.Catalog().DeleteSeen(x.ctx, &info)
	if isType[*store.NoContainerError](err) {
		return absent(x)
	}
	if err != nil {
		return err
	}
	s.directory.forget(info.ID)
	x.answer(http.StatusNoContent, chargeDeclare, nil)
	return nil
}

// checkUnused refuses the deletion of a container that pipelines use.
func (s *Server) checkUnused(ctx context.Context, info *store.ContainerInfo) error {
	if s.cfg.Users == nil {
		return nil
	}
	users, err := s.cfg.Users(ctx, info.Database, info.Name)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return refuse(http.StatusConflict, "container %s/%s is used by the pipelines %s; delete them first, with millrace delete pipeline NAME",
			info.Database, info.Name, strings.Join(users, ", "))
	}
	return nil
}

// containersOf returns the containers of a request's database.
func (s *Server) containersOf(x *exchange) ([]store.ContainerInfo, error) {
	all, err := s.client.Catalog().List(x.ctx)
	return slices.DeleteFunc(all, func(i store.ContainerInfo) bool {
		return i.Database != x.target.database || i.State != store.ContainerReady
	}), err
}

// containerBodies are the bodies of a database's containers, by name.
func (s *Server) containerBodies(x *exchange) (bodies []json.RawMessage, owner string, err error) {
	database, err := s.database(x)
	if err != nil {
		return nil, "", err
	}
	infos, err := s.containersOf(x)
	if err != nil {
		return nil, "", err
	}
	bodies = make([]json.RawMessage, len(infos))
	for i := range infos {
		body, err := containerBody(&infos[i])
		if err != nil {
			return nil, "", err
		}
		if bodies[i], err = json.Marshal(body); err != nil {
			return nil, "", err
		}
	}
	return bodies, database.RID().String(), nil
}

func (s *Server) listContainers(x *exchange) error {
	bodies, owner, err := s.containerBodies(x)
	if err != nil {
		return err
	}
	return answerList(x, owner, "DocumentCollections", bodies)
}

// listConflicts answers the conflicts of a container: there are none, since one owner decides all writes of a partition.
func (s *Server) listConflicts(x *exchange) error {
	info, err := s.containerInfo(x)
	if err != nil {
		return err
	}
	return answerList(x, info.RID().String(), "Conflicts", nil)
}

func (s *Server) queryConflicts(x *exchange) error {
	info, err := s.containerInfo(x)
	if err != nil {
		return err
	}
	return s.queryResources(x, info.RID().String(), "Conflicts", nil)
}

// noConflict answers a request for one conflict.
func (s *Server) noConflict(x *exchange) error {
	if _, err := s.containerInfo(x); err != nil {
		return err
	}
	return refuse(http.StatusNotFound, "there is no conflict %q; Millrace has none", clip(x.target.id))
}
