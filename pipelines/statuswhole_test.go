package pipelines_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace/millrace/pipelines/status"
)

// TestStatus_TellsTheRestWhenALogIsMissing: the pipeline that needs the log is not
// well, whatever else can be read of it, and the others are as they are.
func TestStatus_TellsTheRestWhenALogIsMissing(t *testing.T) {
	root := t.TempDir()
	n := rooted(t, root)
	n.apply(t, decode(t, strings.ReplaceAll(saleContainer, "sale", "gone")))
	n.put(t, "gone", `{"id":"s1","customerId":"k1"}`)
	n.apply(t, decode(t, saleRows("./sales")))
	n.apply(t, decode(t, strings.NewReplacer("sales", "missing", "container: sale", "container: gone").Replace(saleRows("./missing"))))
	n.idle(t)

	lost := n.container(t, "gone").Partitions()[0]
	deleted := 0
	for name := range n.js.StreamNames(t.Context()).Name() {
		if strings.Contains(name, string(lost.Container)) && strings.HasSuffix(name, "0") {
			deleted++
			if err := n.js.DeleteStream(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if deleted != 1 {
		t.Fatalf("%d streams of %s were deleted", deleted, lost)
	}
	// A command that is started now has no log open.
	monitor := status.NewMonitor(n.js, n.registry, status.MonitorConfig{})
	t.Cleanup(monitor.Close)
	s, err := monitor.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := s.Print(&page, true); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.Pipelines {
		switch {
		case p.Name == "sales" && p.State != status.Idle,
			p.Name == "missing" && (p.State != status.Stuck || !strings.Contains(p.Reason, "no such log") || p.Counts.Rows == 0):
			t.Errorf("%s is %s: %s\n%s", p.Name, p.State, p.Reason, page.String())
		}
	}
	if len(s.Pipelines) != 2 || s.Healthy() {
		t.Errorf("healthy %t with\n%s", s.Healthy(), page.String())
	}
}
