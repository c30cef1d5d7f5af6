package console

import (
	"net/http"
	"strings"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/store"
)

// nodeRows bounds the rows of each table on the page of the nodes. Its JSON has all.
const nodeRows = 500

// nodesPage is which process has what.
type nodesPage struct {
	*inspect.Nodes
	Partitions []nodePartition
	// MoreLeases and MorePartitions count those that do not stand here.
	MoreLeases, MorePartitions int
	Failed                     string
}

// nodePartition is a partition as a row of a table.
type nodePartition struct{ *inspect.NodePartition }

// Held is what keeps the log from being trimmed further, readers that will be cut off, and pins.
func (p nodePartition) Held() string {
	var said []string
	if t := p.Status.Trim; t != nil && t.Retention != store.RetentionForever.String() {
		if t.HeldBy != "" {
			said = append(said, t.HeldBy)
		}
		for i := range t.Late {
			said = append(said, t.Late[i].Reader+" is cut off from "+t.Late[i].CutOff.UTC().Format("2006-01-02 15:04")+" on")
		}
	}
	for _, pin := range p.Status.Pins {
		said = append(said, pin.Holder+" keeps a snapshot until "+pin.Until.UTC().Format("2006-01-02 15:04"))
	}
	return strings.Join(said, "; ")
}

// nodes shows which process has what, as of when the page was opened: the leases are read for it, and
// every 0.3 s that would be much for a page that changes seldom.
func (c *Console) nodes(x *exchange) error {
	s, err := c.sampler.newest(x.r.Context())
	if err != nil {
		return err
	}
	if s.Failed != "" && wantsJSON(x.r) {
		return &refusal{http.StatusServiceUnavailable, s.Failed}
	}
	inspector := inspect.New(&c.cfg.Inspect)
	defer inspector.Close()
	page := nodesPage{Failed: s.Failed}
	if s.Storage != nil {
		page.Nodes, err = inspector.Nodes(x.r.Context(), s.Storage.Asked)
	} else {
		page.Nodes, err = inspector.Nodes(x.r.Context(), nil)
	}
	if err != nil {
		return err
	}
	behind := *page.Nodes
	if s.Storage == nil {
		behind.Problems = append(behind.Problems, "what the owners of the partitions say is not known")
	}
	page.MorePartitions = max(0, len(behind.Partitions)-nodeRows)
	for i := range behind.Partitions[:len(behind.Partitions)-page.MorePartitions] {
		page.Partitions = append(page.Partitions, nodePartition{&behind.Partitions[i]})
	}
	page.MoreLeases = max(0, len(behind.Leases)-nodeRows)
	page.Leases = behind.Leases[:len(behind.Leases)-page.MoreLeases]
	return c.show(x, "nodes", "Nodes", page, behind)
}
