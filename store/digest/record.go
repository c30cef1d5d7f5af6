package digest

import (
	"encoding/json"
	"fmt"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// record is the data of a control transaction of the kind store.ControlDigest.
type record struct {
	Version int `json:"v"`
	// Of is the LSN of the order whose digest is told; 0 in an order.
	Of    feed.LSN `json:"of,omitempty"`
	Parts []Part   `json:"parts,omitempty"`
}

// Order is the control transaction that orders a digest as of its own commit.
func Order() *feed.Control { return control(record{Version: Version}) }

// Tell is the control transaction that tells the owner's digest.
func (d Digest) Tell() *feed.Control { return control(record{Version, d.LSN, d.Parts}) }

func control(r record) *feed.Control {
	data, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("digest: %+v cannot be marshalled: %v", r, err))
	}
	return &feed.Control{Kind: store.ControlDigest, Data: data}
}

// Of says whether a commit orders a digest, and returns the one that it tells; nil if it tells none. What is of another
// version, or cannot be read, says nothing: nothing rests on a digest.
func Of(c *feed.Commit) (ordered bool, told *Digest) {
	for i := range c.Transactions {
		k := c.Transactions[i].Control
		if k == nil || k.Kind != store.ControlDigest {
			continue
		}
		var r record
		if err := json.Unmarshal(k.Data, &r); err != nil || r.Version != Version {
			continue
		}
		if r.Of == 0 {
			ordered = true
		} else {
			told = &Digest{r.Of, r.Parts}
		}
	}
	return ordered, told
}
