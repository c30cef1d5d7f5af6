package collector_test

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracescollector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
)

// told is a span, or a series of a metric, that came to a backend.
type told struct {
	name                 string
	resource, attributes map[string]string
	sum                  int64 // of a counter
}

// backends stand where the sample sends to: a store of traces, which takes OTLP over gRPC, and
// Prometheus, which takes it over HTTP at a path of its own. Both have TLS, as the sample wants it
// of the first. They read with the types that OpenTelemetry generates for everybody, and with
// nothing of the collector's.
type backends struct {
	tracescollector.UnimplementedTraceServiceServer

	env []string // of a collector that is to find and trust them

	mu      sync.Mutex
	spans   []told
	series  []told
	refused []string
}

func newBackends(t *testing.T) *backends {
	t.Helper()
	b := &backends{}
	prometheus := httptest.NewTLSServer(http.HandlerFunc(b.takeMetrics))
	t.Cleanup(prometheus.Close)
	traces := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&prometheus.TLS.Certificates[0])))
	tracescollector.RegisterTraceServiceServer(traces, b)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = traces.Serve(l) }) // ends with Stop
	t.Cleanup(func() {
		traces.Stop()
		serving.Wait()
	})
	authority := filepath.Join(t.TempDir(), "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: prometheus.Certificate().Raw})
	if err := os.WriteFile(authority, block, 0o600); err != nil {
		t.Fatal(err)
	}
	metrics := strings.Replace(shown(t)[1], "http://prometheus:9090", prometheus.URL, 1) // the path stays
	b.env = []string{"TRACES_ENDPOINT=" + l.Addr().String(), metrics, "SSL_CERT_FILE=" + authority}
	return b
}

// Export takes traces.
func (b *backends) Export(_ context.Context, request *tracescollector.ExportTraceServiceRequest) (*tracescollector.ExportTraceServiceResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, of := range request.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				b.spans = append(b.spans, told{name: span.GetName(), resource: texts(of.GetResource().GetAttributes()), attributes: texts(span.GetAttributes())})
			}
		}
	}
	return &tracescollector.ExportTraceServiceResponse{}, nil
}

// takeMetrics answers as Prometheus does, which takes OTLP at this path alone.
func (b *backends) takeMetrics(w http.ResponseWriter, r *http.Request) {
	request, err := readMetrics(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.URL.Path != "/api/v1/otlp/v1/metrics" || r.Method != http.MethodPost || err != nil {
		b.refused = append(b.refused, fmt.Sprintf("%s %s: %v", r.Method, r.URL, err))
		http.Error(w, "not found", http.StatusNotFound)
		return
	}
	for _, of := range request.GetResourceMetrics() {
		for _, scope := range of.GetScopeMetrics() {
			for _, metric := range scope.GetMetrics() {
				for _, point := range metric.GetSum().GetDataPoints() {
					b.series = append(b.series, told{metric.GetName(), texts(of.GetResource().GetAttributes()), texts(point.GetAttributes()), point.GetAsInt()})
				}
			}
		}
	}
}

// readMetrics reads what is compressed, as the collector compresses it, or not.
func readMetrics(r *http.Request) (*metricscollector.ExportMetricsServiceRequest, error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		plain, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = plain
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	request := &metricscollector.ExportMetricsServiceRequest{}
	return request, proto.Unmarshal(data, request)
}

// texts are attributes that are texts or whole numbers.
func texts(attributes []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			all[a.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		}
	}
	return all
}

// missing says what has not come: a span and a counter that is not 0, each with its resource and
// attributes, and maybe others.
func (b *backends) missing(span, counter told) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	as := func(want told) func(told) bool {
		return func(got told) bool {
			return got.name == want.name && has(got.resource, want.resource) && has(got.attributes, want.attributes)
		}
	}
	switch counted := as(counter); {
	case len(b.refused) > 0:
		return "what was sent to another place: " + strings.Join(b.refused, ", ")
	case !slices.ContainsFunc(b.spans, as(span)):
		return fmt.Sprintf("%+v is none of\n%s", span, list(b.spans))
	case !slices.ContainsFunc(b.series, func(got told) bool { return counted(got) && got.sum > 0 }):
		return fmt.Sprintf("%+v is none of\n%s", counter, list(b.series))
	}
	return ""
}

func has(got, want map[string]string) bool {
	for key, value := range want {
		if got[key] != value {
			return false
		}
	}
	return true
}

// list prints the last of what was told.
func list(all []told) string {
	var b strings.Builder
	for _, one := range all[max(0, len(all)-20):] {
		fmt.Fprintf(&b, "%+v\n", one)
	}
	return b.String()
}
