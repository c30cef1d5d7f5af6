package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// The modes of a change feed, as the header A-IM names them.
const (
	modeLatest      = "Incremental feed"
	modeAllVersions = "Full-Fidelity Feed"
)

// formApart is the version of the form in which a change's metadata stand apart from the item. All versions come in no other.
const formApart = "2021-09-15"

// readChanges reads a page of the change feed. The answer's etag is the position at which the
// page ends; a client sends it with its next request. An answer 304, when there was nothing
// behind the client's position, has an etag too.
func (s *Server) readChanges(x *exchange) error {
	c, err := s.collection(x)
	if err != nil {
		return err
	}
	r, err := c.changesRequest(x)
	if err != nil {
		return err
	}
	var page *store.ChangesPage
	body, err := s.inTurn(x, func() (body []byte, err error) {
		if page, err = c.Changes(x.ctx, *r); err != nil {
			return nil, err
		}
		apart := r.AllVersions || strings.TrimSpace(x.header(headerFeedForm)) == formApart
		return c.changesBody(page.Changes, r.AllVersions, apart), nil
	})
	if err != nil {
		return s.explainAbsence(x, c, err)
	}
	for _, p := range page.Reached {
		if err := s.strictlySeen(x, c, p.Number, p.LSN); err != nil {
			return err
		}
	}
	x.etag(page.Continuation)
	sessions := make([]string, 0, len(page.Reached))
	for _, p := range page.Reached {
		sessions = append(sessions, sessionToken(feed.Partition{Container: c.info.ID, Number: p.Number}, p.LSN))
	}
	x.session(sessions...)
	if len(page.Reached) == 1 {
		x.w.Header().Set(headerLSN, page.Reached[0].LSN.String())
	}
	if len(page.Changes) == 0 && page.End {
		x.answer(http.StatusNotModified, chargePage, nil)
		return nil
	}
	x.w.Header().Set(headerItemCount, strconv.Itoa(len(page.Changes)))
	x.answer(http.StatusOK, pageCharge(len(body)), body)
	return nil
}

// changesBody returns the body of an answer with changes, with their metadata apart from the items or not.
func (c *collection) changesBody(changes []store.ItemChange, allVersions, apart bool) []byte {
	items := make([][]byte, len(changes))
	for i := range changes {
		if apart {
			items[i] = c.appendVersion(nil, &changes[i], allVersions)
		} else {
			items[i] = c.appendChanged(nil, &changes[i])
		}
	}
	return appendList(nil, c.ridText, "Documents", items)
}

// changesRequest reads the headers of a request for changes.
func (c *collection) changesRequest(x *exchange) (*store.ChangesRequest, error) {
	r := &store.ChangesRequest{}
	switch mode := strings.TrimSpace(x.header(headerIncremental)); {
	case strings.EqualFold(mode, modeAllVersions):
		r.AllVersions = true
	case !strings.EqualFold(mode, modeLatest):
		return nil, refuse(http.StatusBadRequest, "a-im is %q; %s or %s is expected", clip(mode), modeLatest, modeAllVersions)
	}
	sc, err := c.scope(x)
	if err != nil {
		return nil, err
	}
	// A client may name a key and ask one range after the other. Ranges that do not hold the
	// key then have no partitions in their scope, and no changes.
	r.Scope = store.ChangeScope{Key: sc.key}
	if sc.key.IsZero() && sc.span != all {
		r.Scope.Range = sc.span
	}
	if sc.ranges != nil {
		r.Scope.Partitions = []uint32{}
	}
	for i := range sc.partitions {
		if sc.ranges == nil {
			break // who names no range need not know that one was split
		}
		r.Scope.Partitions = append(r.Scope.Partitions, sc.partitions[i].Number)
	}
	if r.ItemsMax, err = parseHeaderInt(x.header(headerPageItems), headerPageItems); err != nil {
		return nil, err
	}
	return r, readStart(x, r)
}

// readStart reads where to begin: behind an etag of this feed, now, at a time, or at the
// beginning. An etag overrides a time, because clients repeat the time of their first
// request.
func readStart(x *exchange, r *store.ChangesRequest) error {
	since := x.header("If-Modified-Since")
	switch match := strings.TrimSpace(x.header("If-None-Match")); {
	case match == "*":
		r.Start = feed.StartNow()
	case match != "":
		r.Continuation = parseMatchingText(match)
	case since != "":
		at, err := parseHTTPDate(since)
		if err != nil {
			return refuse(http.StatusBadRequest, "if-modified-since is %q; a time such as Thu, 27 Apr 2017 00:51:12 GMT is expected", clip(since))
		}
		r.Start = feed.StartTime(at)
	}
	return nil
}

// appendChanged appends an item in the form of the feed of latest versions: with the LSN of its
// commit.
func (c *collection) appendChanged(dst []byte, change *store.ItemChange) []byte {
	dst = c.appendItem(dst, &change.Item)
	dst = append(dst[:len(dst)-1], `,"_lsn":`...)
	return append(strconv.AppendUint(dst, uint64(change.Item.ETag.LSN), 10), '}')
}

// changeMetadata is the metadata of a change. In the feed of latest versions it has place and time alone.
type changeMetadata struct {
	Operation   string                     `json:"operationType,omitempty"`
	LSN         feed.LSN                   `json:"lsn"`
	Time        int64                      `json:"crts"` // of the commit in whole seconds
	PreviousLSN feed.LSN                   `json:"previousImageLSN,omitempty"`
	Expired     bool                       `json:"timeToLiveExpired,omitempty"`
	ID          string                     `json:"id,omitempty"` // of an item that is gone, as is its key
	Key         map[string]json.RawMessage `json:"partitionKey,omitempty"`
}

// appendVersion appends a change as the feed of all versions and deletes shows it, or one of latest versions in that form. An
// item's latest version does not tell what it replaced: that may be long gone.
func (c *collection) appendVersion(dst []byte, change *store.ItemChange, allVersions bool) []byte {
	m := changeMetadata{LSN: change.Item.ETag.LSN, Time: change.Time / 1000}
	if allVersions {
		m.Operation, m.PreviousLSN = change.Op.String(), change.Previous.LSN
	}
	dst = append(dst, `{"current":`...)
	switch change.Op {
	case feed.OpDelete, feed.OpExpire:
		// The protocol has no operation for an expiry: it is a delete with a flag.
		m.Operation, m.Expired = feed.OpDelete.String(), change.Op == feed.OpExpire
		m.ID, m.Key = change.Item.ID, c.keyMembers(change.Item.Key)
		dst = append(dst, `{}`...)
	case feed.OpCreate, feed.OpReplace:
		dst = c.appendChanged(dst, change)
	}
	metadata, err := json.Marshal(m)
	if err != nil {
		panic("gateway: metadata of a change cannot be marshalled: " + err.Error())
	}
	dst = append(append(dst, `,"metadata":`...), metadata...)
	return append(dst, '}')
}

// keyMembers returns the components of a partition key by their paths, without the leading
// slash. A component that the item did not have is left out.
func (c *collection) keyMembers(key feed.PartitionKey) map[string]json.RawMessage {
	members := map[string]json.RawMessage{}
	for i, component := range key.Components() {
		if component == feed.Missing || i >= len(c.info.Spec.PartitionKey) {
			continue
		}
		raw, err := json.Marshal(component)
		if err != nil {
			panic("gateway: a partition key cannot be marshalled: " + err.Error())
		}
		members[strings.TrimPrefix(c.info.Spec.PartitionKey[i], "/")] = raw
	}
	return members
}
