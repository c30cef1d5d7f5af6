package gateway

import (
	"net/http"
	"strconv"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/rid"
)

// rangeJSON is one physical partition as clients that place keys themselves see it.
type rangeJSON struct {
	RID                string   `json:"_rid"`
	ID                 string   `json:"id"`
	ETag               string   `json:"_etag"`
	MinInclusive       string   `json:"minInclusive"`
	MaxExclusive       string   `json:"maxExclusive"`
	RIDPrefix          uint32   `json:"ridPrefix"`
	Self               string   `json:"_self"`
	ThroughputFraction float64  `json:"throughputFraction"`
	Status             string   `json:"status"`
	Parents            []string `json:"parents"`
	Modified           int64    `json:"_ts"`
	LSN                int      `json:"lsn"`
}

// readRanges lists the physical partitions. A client repeats the request with the etag of the
// answer until the answer is that nothing changed.
func (s *Server) readRanges(x *exchange) error {
	c, err := s.collection(x)
	if err != nil {
		return err
	}
	// Numbers are never used again and partitions only split, so their number tells a change.
	etag := c.rangesTag()
	x.etag(etag)
	if match := x.header("If-None-Match"); match != "" && parseMatchingText(match) == etag {
		x.answer(http.StatusNotModified, chargeResource, nil)
		return nil
	}
	answer := struct {
		RID    string      `json:"_rid"`
		Ranges []rangeJSON `json:"PartitionKeyRanges"`
		Count  int         `json:"_count"`
	}{RID: c.ridText}
	for i := range c.info.Partitions {
		answer.Ranges = append(answer.Ranges, c.rangeBody(&c.info.Partitions[i], etag))
	}
	answer.Count = len(answer.Ranges)
	x.w.Header().Set(headerItemCount, strconv.Itoa(answer.Count))
	return x.answerJSON(http.StatusOK, chargeResource, answer)
}

// rangesTag is the etag of the list of ranges, and of each.
func (c *collection) rangesTag() string {
	return string(c.info.ID) + "-" + strconv.Itoa(len(c.info.Partitions))
}

// readRange answers one physical partition, by its id or its resource id.
func (s *Server) readRange(x *exchange) error {
	c, err := s.collection(x)
	if err != nil {
		return err
	}
	etag := c.rangesTag()
	for i := range c.info.Partitions {
		body := c.rangeBody(&c.info.Partitions[i], etag)
		if x.target.id == body.ID || x.target.id == body.RID {
			x.etag(etag)
			return x.answerJSON(http.StatusOK, chargeResource, body)
		}
	}
	return refuse(http.StatusNotFound, "container %s has no range %q; read its ranges again", c.info.Name, clip(x.target.id))
}

// rangeBody returns what clients are told of a partition. By the parents, all that were before it, they know which of their
// continuations and session tokens hold in it: those of partitions whose logs are deleted they do not need any more.
func (c *collection) rangeBody(p *store.PartitionInfo, etag string) rangeJSON {
	own := rid.Range(c.rid, p.Number)
	parents := []string{}
	for i := range c.info.Former {
		f := &c.info.Former[i]
		if f.Range.Min <= p.Range.Min && p.Range.Max <= f.Range.Max {
			parents = append(parents, strconv.FormatUint(uint64(f.Number), 10))
		}
	}
	return rangeJSON{
		RID: own.String(), ID: strconv.FormatUint(uint64(p.Number), 10), ETag: `"` + etag + `"`,
		MinInclusive: p.Range.Min.Hex(), MaxExclusive: p.Range.Max.Hex(), RIDPrefix: p.Number,
		Self:               own.RangeSelf(),
		ThroughputFraction: 1 / float64(len(c.info.Partitions)), Status: "online", Parents: parents,
		Modified: unixSeconds(c.info.Created),
	}
}
