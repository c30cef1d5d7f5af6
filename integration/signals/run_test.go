package signals_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/millrace/millrace/cmd/millrace/node"
	"github.com/millrace/millrace/cmd/millrace/webstore"
	"github.com/millrace/millrace/feed/natsd/ports"
	"github.com/millrace/millrace/integration/nodetest"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

const module = "github.com/millrace/millrace"

// telemetry is what a process of all roles tells, kept in memory.
type telemetry struct {
	book   *book
	reader *metric.ManualReader
	prom   *prometheus.Registry
	spans  *tracetest.InMemoryExporter
}

// observe sets the providers of this process, once for all tests.
var observe = sync.OnceValue(func() *telemetry {
	t := &telemetry{reader: metric.NewManualReader(), prom: prometheus.NewRegistry(), spans: tracetest.NewInMemoryExporter()}
	scraped, err := promexporter.New(promexporter.WithRegisterer(t.prom))
	if err != nil {
		panic(err)
	}
	t.book = &book{MeterProvider: metric.NewMeterProvider(metric.WithReader(t.reader), metric.WithReader(scraped)), all: map[string]instrument{}}
	otel.SetMeterProvider(t.book)
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSyncer(t.spans)))
	return t
})

// attributes of a signal, by its name: all keys that were seen.
type attributes map[string]map[string]bool

func (a attributes) add(name, key string) {
	if a[name] == nil {
		a[name] = map[string]bool{}
	}
	if key != "" {
		a[name][key] = true
	}
}

// metrics returns what was recorded so far.
func (o *telemetry) metrics(t *testing.T) attributes {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := o.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	seen := attributes{}
	for _, scope := range all.ScopeMetrics {
		if !strings.HasPrefix(scope.Scope.Name, module) {
			continue
		}
		for _, m := range scope.Metrics {
			seen.add(m.Name, "")
			for _, key := range keysOf(m.Data) {
				seen.add(m.Name, key)
			}
		}
	}
	return seen
}

// keysOf returns the keys of the attributes of all points.
func keysOf(data metricdata.Aggregation) (keys []string) {
	switch d := data.(type) {
	case metricdata.Sum[int64]:
		return pointKeys(d.DataPoints)
	case metricdata.Sum[float64]:
		return pointKeys(d.DataPoints)
	case metricdata.Gauge[int64]:
		return pointKeys(d.DataPoints)
	case metricdata.Gauge[float64]:
		return pointKeys(d.DataPoints)
	case metricdata.Histogram[int64]:
		for i := range d.DataPoints {
			for _, kv := range d.DataPoints[i].Attributes.ToSlice() {
				keys = append(keys, string(kv.Key))
			}
		}
	case metricdata.Histogram[float64]:
		for i := range d.DataPoints {
			for _, kv := range d.DataPoints[i].Attributes.ToSlice() {
				keys = append(keys, string(kv.Key))
			}
		}
	}
	return keys
}

func pointKeys[N int64 | float64](points []metricdata.DataPoint[N]) (keys []string) {
	for i := range points {
		for _, kv := range points[i].Attributes.ToSlice() {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}

// traces returns the spans that have ended so far. What a span is named for, such as the
// operation of a request, is <operation>.
func (o *telemetry) traces() attributes {
	seen := attributes{}
	for _, span := range o.spans.GetSpans() {
		if !strings.HasPrefix(span.InstrumentationScope.Name, module) {
			continue
		}
		name := span.Name
		if first, _, ok := strings.Cut(name, " "); ok {
			name = first + " <operation>"
		}
		seen.add(name, "")
		for _, kv := range span.Attributes {
			seen.add(name, string(kv.Key))
		}
	}
	return seen
}

// key is a master key that this run alone has.
var key = base64.StdEncoding.EncodeToString(make([]byte, 64))

// runShop runs all roles in this process over the WebStore's pipelines, writes, and returns
// when until says that enough was told.
func runShop(t *testing.T, until func() error) *node.Node {
	t.Helper()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(ports.Free(t)))
	n := nodetest.Run(t, nil,
		"gateway.listen="+address, "gateway.tls=off", "gateway.keys.primary="+key,
		"verify.interval=1s", "verify.sharePercent=100") // or nothing is verified for ten seconds
	declared, err := spec.Load("../../configs/webstore")
	if err != nil {
		t.Fatal(err)
	}
	for i := range declared.Pipelines {
		if p := declared.Pipelines[i].Spec.Project; p != nil && p.Sink.Parquet != nil {
			p.Sink.Parquet.CommitInterval = spec.Duration(100 * time.Millisecond)
		}
	}
	if _, err := n.Registry().Apply(t.Context(), declared); err != nil {
		t.Fatal(err)
	}
	writeShop(t, n.Client())
	const containers = "dbs/" + spec.DatabaseDefault
	askGateway(t, address, containers, key, http.StatusOK)
	askGateway(t, address, containers+"/colls/"+webstore.ContainerProduct, key, http.StatusOK)
	askGateway(t, address, containers, base64.StdEncoding.EncodeToString([]byte("a key that is not in force")), http.StatusUnauthorized)
	poll.Until(t, until)
	return n
}

// writeShop writes a shop of which every pipeline has something to do.
func writeShop(t *testing.T, client *store.Client) {
	t.Helper()
	shop := webstore.New(webstore.Config{Seed: 3, Categories: 2, Tags: 2, Products: 10, Customers: 3})
	put := func(container string, items ...any) {
		t.Helper()
		ct, err := client.Container(t.Context(), spec.DatabaseDefault, container)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			if _, err := ct.Upsert(t.Context(), webstore.JSON(item)); err != nil {
				t.Fatal(err)
			}
		}
	}
	names := &webstore.Names{}
	for c := range 2 {
		put(webstore.ContainerProductMeta, shop.Category(c+1, nil), shop.Tag(c+1, nil))
	}
	for p := range 10 {
		put(webstore.ContainerProduct, shop.Product(p+1, nil))
	}
	for c := range 3 {
		put(webstore.ContainerCustomer, shop.Customer(c+1))
		for _, o := range shop.Orders(c + 1) {
			put(webstore.ContainerCustomer, o)
		}
	}
	// Each rename is followed by another, until the pipelines, which begin when they like,
	// have one to follow.
	for round := range 3 {
		r := webstore.Rename{Number: 1 + round%2}
		names.Apply(r)
		put(webstore.ContainerProductMeta, shop.Meta(r, names))
	}
}

// askGateway asks for a container, or for those of a database, by the Cosmos DB protocol, with a
// request that is signed with a key.
func askGateway(t *testing.T, address, link, key string, status int) {
	t.Helper()
	path := "/" + link
	if !strings.Contains(link, "/colls/") {
		path += "/colls"
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	date := strings.ToLower(time.Now().UTC().Format(http.TimeFormat))
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, raw)
	mac.Write([]byte("get\ncolls\n" + link + "\n" + date + "\n\n"))
	request.Header.Set("X-Ms-Date", date)
	request.Header.Set("X-Ms-Version", "2018-12-31")
	request.Header.Set("Authorization", url.QueryEscape("type=master&ver=1.0&sig="+base64.StdEncoding.EncodeToString(mac.Sum(nil))))
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil || resp.StatusCode != status {
		t.Fatalf("the gateway answers %d %s %v", resp.StatusCode, body, err)
	}
}
