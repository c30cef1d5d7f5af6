package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	otlp "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/grpc"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
)

// gauges takes metrics by OTLP over gRPC, as a collector does, and keeps the last
// value of each gauge of a pipeline.
type gauges struct {
	collector.UnimplementedMetricsServiceServer

	mu   sync.Mutex
	last map[string]float64 // by name and pipeline
}

// newGauges listens and makes the standard variables point to it.
func newGauges(t *testing.T) *gauges {
	t.Helper()
	g := &gauges{last: map[string]float64{}}
	serveCollector(t, func(server *grpc.Server) { collector.RegisterMetricsServiceServer(server, g) })
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	t.Setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
	return g
}

// Export implements the collector's service.
func (g *gauges) Export(_ context.Context, request *collector.ExportMetricsServiceRequest) (*collector.ExportMetricsServiceResponse, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, resource := range request.GetResourceMetrics() {
		for _, scope := range resource.GetScopeMetrics() {
			for _, one := range scope.GetMetrics() {
				for _, point := range one.GetGauge().GetDataPoints() {
					g.take(one.GetName(), point)
				}
			}
		}
	}
	return &collector.ExportMetricsServiceResponse{}, nil
}

func (g *gauges) take(name string, point *otlp.NumberDataPoint) {
	for _, kv := range point.GetAttributes() {
		if kv.GetKey() == "pipeline" {
			g.last[name+" "+kv.GetValue().GetStringValue()] = point.GetAsDouble() + float64(point.GetAsInt())
		}
	}
}

// of returns the last value of a gauge, -1 if there is none.
func (g *gauges) of(name, pipeline string) float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if v, ok := g.last[name+" "+pipeline]; ok {
		return v
	}
	return -1
}

// scraped returns a gauge of a pipeline as Prometheus would see it, -1 if there is
// none.
func scraped(t *testing.T, address, name, pipeline string) float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(body), "\n") {
		if !strings.HasPrefix(line, name+"{") || !strings.Contains(line, `pipeline="`+pipeline+`"`) {
			continue
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return v
	}
	return -1
}

// TestAudit_FaultIsDriftUntilItIsRepaired hides a change of a copy from its pipeline:
// the continuous verification tells of it, to Prometheus, by OTLP and in status,
// until millrace repair has repaired it.
func TestAudit_FaultIsDriftUntilItIsRepaired(t *testing.T) {
	g := newGauges(t)
	listen := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	s := newStall(t, "--listen", listen, "--set", "verify.interval=200ms", "--set", "verify.sharePercent=50")
	awaitAudit(t, g, listen, 0)
	if p := scraped(t, listen, "millrace_verify_position", "category-names"); p < 1 {
		t.Errorf("the position that was proved is %g", p)
	}
	if age := scraped(t, listen, "millrace_verify_position_age_seconds", "category-names"); age < 0 {
		t.Errorf("the age of the proof is %g", age)
	}

	mustRun(t, s.server, "pause", "category-names")
	s.released(t, "category-names")
	item, err := s.product.Patch(t.Context(), keyOf(t, "c0"), "p4", []document.Op{{Kind: "set", Path: "/categoryName", Value: []byte(`"Byks"`)}})
	if err != nil {
		t.Fatal(err)
	}
	s.skip(t, "category-names", s.product.PartitionFor(item.Key), feed.Position(item.ETag))
	mustRun(t, s.server, "resume", "category-names")
	awaitAudit(t, g, listen, 1)
	poll.Until(t, func() error {
		out, _ := run(t, s.server, "status")
		return poll.Unless(strings.Contains(out, "1 drift") && strings.Contains(out, "millrace repair category-names"), out)
	})

	mustRun(t, s.server, "repair", "category-names")
	awaitAudit(t, g, listen, 0)
	poll.Until(t, func() error {
		var status status.Status
		runJSON(t, s.server, &status, "status")
		for _, p := range status.Pipelines {
			if p.Name == "category-names" {
				found := p.Verified
				return poll.Unless(found != nil && found.Verdict == verify.VerdictEqual && found.Copies == stallProducts, fmt.Sprintf("%+v", found))
			}
		}
		return errors.New("status does not tell of category-names")
	})
}

// awaitAudit waits until the metrics tell of a number of copies of category-names
// that drift, and of none of tag-names.
func awaitAudit(t *testing.T, g *gauges, listen string, drift float64) {
	t.Helper()
	poll.Until(t, func() error {
		for name, want := range map[string]float64{"category-names": drift, "tag-names": 0} {
			coverage, is := scraped(t, listen, "millrace_verify_coverage_ratio", name), scraped(t, listen, "millrace_verify_drift", name)
			if is != want || (coverage == 1) != (want == 0) {
				return fmt.Errorf("%s: drift %g, coverage %g", name, is, coverage)
			}
			if is := g.of("millrace.verify.drift", name); is != want {
				return fmt.Errorf("%s: by OTLP the drift is %g", name, is)
			}
		}
		return nil
	})
}

// TestAudit_CanBeSwitchedOff runs without: nothing is told.
func TestAudit_CanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	listen := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	s := newStall(t, "--listen", listen, "--set", "verify.continuous=off", "--set", "verify.interval=50ms")
	var status status.Status
	runJSON(t, s.server, &status, "status")
	for _, p := range status.Pipelines {
		if p.Verified != nil {
			t.Errorf("%s: %+v", p.Name, p.Verified)
		}
	}
	if drift := scraped(t, listen, "millrace_verify_drift", "category-names"); drift != -1 {
		t.Errorf("the metric tells of %g that drift", drift)
	}
}
