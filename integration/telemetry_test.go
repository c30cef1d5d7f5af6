package integration_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/cmd/millrace/webstore"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/integration/nodetest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
)

// receiver takes traces by OTLP over gRPC, as a collector does.
type receiver struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans map[string][]*traces.Span // by trace id
}

// serveCollector serves a collector that takes OTLP over gRPC until the test ends, and makes
// the standard variables point to it.
func serveCollector(t *testing.T, register func(*grpc.Server)) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // ends with Stop
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
}

// newReceiver listens and makes the standard variables point to it.
func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{spans: map[string][]*traces.Span{}}
	serveCollector(t, func(server *grpc.Server) { collector.RegisterTraceServiceServer(server, r) })
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	return r
}

// Export implements the collector's service.
func (r *receiver) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				id := hex.EncodeToString(span.GetTraceId())
				r.spans[id] = append(r.spans[id], span)
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// trace is one trace as it was received.
type trace struct {
	spans []*traces.Span
	byID  map[string]*traces.Span
}

func (r *receiver) trace(id string) *trace {
	r.mu.Lock()
	defer r.mu.Unlock()
	tr := &trace{spans: append([]*traces.Span(nil), r.spans[id]...), byID: map[string]*traces.Span{}}
	for _, span := range tr.spans {
		tr.byID[string(span.GetSpanId())] = span
	}
	return tr
}

// path names the spans from the root to span.
func (tr *trace) path(span *traces.Span) string {
	var names []string
	for span != nil {
		names = append([]string{span.GetName()}, names...)
		parent, ok := tr.byID[string(span.GetParentSpanId())]
		if !ok && len(span.GetParentSpanId()) > 0 {
			names = append([]string{"?"}, names...)
		}
		span = parent
	}
	return strings.Join(names, " > ")
}

// String prints the path of each span.
func (tr *trace) String() string {
	var b strings.Builder
	for _, span := range tr.spans {
		fmt.Fprintf(&b, "%s\n", tr.path(span))
	}
	return b.String()
}

// find returns the spans of a name.
func (tr *trace) find(name string) []*traces.Span {
	var found []*traces.Span
	for _, span := range tr.spans {
		if span.GetName() == name {
			found = append(found, span)
		}
	}
	return found
}

// attribute returns a text attribute of span.
func attribute(span *traces.Span, key string) string {
	for _, kv := range span.GetAttributes() {
		if kv.GetKey() == key {
			return kv.GetValue().GetStringValue()
		}
	}
	return ""
}

func mustKey(t *testing.T, components ...any) feed.PartitionKey {
	t.Helper()
	key, err := feed.NewPartitionKey(components...)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestTelemetry_ARenameIsOneTrace receives, by OTLP over gRPC, the trace of one
// rename: the client's write and its commit, the delivery to the pipeline, each
// page of the fan-out with its commit, and the checkpoint.
func TestTelemetry_ARenameIsOneTrace(t *testing.T) {
	const products = 700 // more than one page: a server has a bound of 500 items of its own
	r := newReceiver(t)
	telemetry, err := node.OpenTelemetry(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	n := nodetest.Run(t, telemetry)
	declared, err := spec.Load("../configs/webstore")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Registry().Apply(t.Context(), declared); err != nil {
		t.Fatal(err)
	}
	meta, product := open(t, n.Client(), "productMeta"), open(t, n.Client(), "product")
	shop := webstore.New(webstore.Config{Seed: 2, Categories: 1, Tags: 1, Products: products})
	if _, err := meta.Create(t.Context(), webstore.JSON(shop.Category(1, nil))); err != nil {
		t.Fatal(err)
	}
	var writing sync.WaitGroup
	for shard := range 16 {
		writing.Go(func() {
			for p := shard + 1; p <= products; p += 16 {
				if _, err := product.Create(t.Context(), webstore.JSON(shop.Product(p, nil))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writing.Wait()
	awaitIdle(t, n)

	ctx, span := otel.Tracer("test").Start(t.Context(), "the shop renames a category")
	id := span.SpanContext().TraceID().String()
	_, err = meta.Patch(ctx, mustKey(t, "category"), shop.CategoryID(1),
		[]document.Op{{Kind: document.OpReplace, Path: "/name", Value: []byte(`"Renamed"`)}})
	span.End()
	if err != nil {
		t.Fatal(err)
	}
	awaitIdle(t, n)

	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the trace:\n%s", r.trace(id))
		}
	})
	poll.Until(t, func() error {
		missing := missingFromRename(r.trace(id))
		return poll.Unless(missing == "", missing)
	})
	tr := r.trace(id)
	pages, commits := 0, 0
	for _, page := range tr.find("millrace.request patch-many") {
		pages++
		if p := attribute(page, "millrace.partition"); p == "" {
			t.Errorf("a page names no partition: %v", page.GetAttributes())
		}
	}
	for _, commit := range tr.find("millrace.commit") {
		if strings.Contains(tr.path(commit), "patch-many > millrace.commit") {
			commits++
		}
	}
	if pages < 2 || commits < 2 {
		t.Errorf("%d pages and %d commits of them are in the trace:\n%s", pages, commits, tr)
	}
	if err := telemetry.Close(); err != nil {
		t.Error(err)
	}
}

// missingFromRename tells what the trace of a rename must have and has not yet.
func missingFromRename(tr *trace) string {
	const root = "the shop renames a category"
	for _, want := range []string{
		root,
		root + " > millrace.request patch",
		root + " > millrace.request patch > millrace.commit",
		"… > millrace.process",
		"… > millrace.fan-out",
		"millrace.fan-out > millrace.request patch-many",
		"millrace.request patch-many > millrace.commit",
		"… > millrace.checkpoint",
	} {
		if !tr.has(want) {
			return "there is no span " + want
		}
	}
	return ""
}

// has says whether there is a span with such a path: … stands for any spans, and
// a path that does not begin at the root is that of the last spans.
func (tr *trace) has(want string) bool {
	parts := strings.Split(want, " > ")
	for _, span := range tr.spans {
		if path := strings.Split(tr.path(span), " > "); matches(path, parts, true) {
			return true
		}
	}
	return false
}

func matches(path, want []string, anywhere bool) bool {
	switch {
	case len(want) == 0:
		return len(path) == 0
	case want[0] == "…":
		return matches(path, want[1:], true)
	}
	for i := range path {
		if path[i] == want[0] && matches(path[i+1:], want[1:], false) {
			return true
		}
		if !anywhere {
			return false
		}
	}
	return false
}

// awaitIdle waits until no pipeline has anything left to do.
func awaitIdle(t *testing.T, n *node.Node) {
	t.Helper()
	monitor := status.NewMonitor(n.JetStream(), n.Registry(), status.MonitorConfig{})
	defer monitor.Close()
	poll.Until(t, func() error {
		st, err := monitor.Read(t.Context())
		if err != nil {
			return err
		}
		for i := range st.Pipelines {
			if p := &st.Pipelines[i]; !p.Lag.None() || p.State != status.Idle {
				return fmt.Errorf("pipeline %s is %s with a lag of %+v", p.Name, p.State, p.Lag)
			}
		}
		return nil
	})
}
