package gateway

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/store"
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
	etag := string(c.info.ID) + "-" + strconv.Itoa(len(c.info.Partitions))
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

// rangeBody returns what clients are told of a partition. By the parents, all that were before it, they know which of their
// continuations and session tokens hold in it: those of partitions whose logs are deleted they do not need any more.
func (c *collection) rangeBody(p *store.PartitionInfo, etag string) rangeJSON {
	rid := store.RIDText(fmt.Appendf(c.rid[:], "%08d", p.Number))
	parents := []string{}
	for i := range c.info.Former {
		f := &c.info.Former[i]
		if f.Range.Min <= p.Range.Min && p.Range.Max <= f.Range.Max {
			parents = append(parents, strconv.FormatUint(uint64(f.Number), 10))
		}
	}
	return rangeJSON{
		RID: rid, ID: strconv.FormatUint(uint64(p.Number), 10), ETag: `"` + etag + `"`,
		MinInclusive: p.Range.Min.Hex(), MaxExclusive: p.Range.Max.Hex(), RIDPrefix: p.Number,
		Self:               "dbs/" + store.RIDText(c.rid[:4]) + "/colls/" + c.ridText + "/pkranges/" + rid + "/",
		ThroughputFraction: 1 / float64(len(c.info.Partitions)), Status: "online", Parents: parents,
		Modified: unixSeconds(c.info.Created),
	}
}
