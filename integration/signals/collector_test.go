package signals_test

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"
)

const collectorFile = "../../deploy/otel/collector.yaml"

// collectorConfig has the keys that the sample uses, as the collector's own reference names them.
type collectorConfig struct {
	Receivers struct {
		OTLP struct {
			Protocols map[string]struct {
				Endpoint string `yaml:"endpoint"`
			} `yaml:"protocols"`
		} `yaml:"otlp"`
	} `yaml:"receivers"`
	Processors struct {
		Limiter struct {
			Interval string `yaml:"check_interval"`
			Limit    int    `yaml:"limit_mib"`
			Spike    int    `yaml:"spike_limit_mib"`
		} `yaml:"memory_limiter"`
		Batch struct {
			Timeout string `yaml:"timeout"`
			Size    int    `yaml:"send_batch_size"`
		} `yaml:"batch"`
	} `yaml:"processors"`
	Exporters map[string]struct {
		Endpoint string `yaml:"endpoint"`
		TLS      struct {
			Insecure bool `yaml:"insecure"`
		} `yaml:"tls"`
	} `yaml:"exporters"`
	Service struct {
		Pipelines map[string]struct {
			Receivers, Processors, Exporters []string
		} `yaml:"pipelines"`
	} `yaml:"service"`
}

// TestCollector_TakesWhatIsSent decodes the sample strictly, follows its pipelines, and holds its
// ports against the page. A collector is hundreds of packages, which are no part of this module:
// integration/collector runs one with the sample.
func TestCollector_TakesWhatIsSent(t *testing.T) {
	t.Parallel()
	var c collectorConfig
	readAs(t, collectorFile, strictYAML, &c)
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	for protocol, says := range map[string]string{"http": "http://collector:", "grpc": "whose port is "} {
		host, port, err := net.SplitHostPort(c.Receivers.OTLP.Protocols[protocol].Endpoint)
		if err != nil || !net.ParseIP(host).IsLoopback() || !strings.Contains(string(page), says+port) {
			t.Errorf("%s is received at %s:%s (%v), which the page does not say", protocol, host, port, err)
		}
	}
	if l := c.Processors.Limiter; l.Spike >= l.Limit || l.Interval == "" {
		t.Errorf("the limiter limits nothing: %+v", l)
	}
	used := map[string]bool{}
	for _, signal := range []string{"traces", "metrics"} {
		p, ok := c.Service.Pipelines[signal]
		if !ok || !slices.Equal(p.Receivers, []string{"otlp"}) || !slices.Equal(p.Processors, []string{"memory_limiter", "batch"}) || len(p.Exporters) != 1 {
			t.Errorf("%s: %+v", signal, p)
			continue
		}
		if e := c.Exporters[p.Exporters[0]]; e.Endpoint == "" || e.TLS.Insecure {
			t.Errorf("%s go to %q, which is not declared, or without TLS", signal, p.Exporters[0])
		}
		used[p.Exporters[0]] = true
	}
	if len(c.Service.Pipelines) != 2 || len(c.Exporters) != len(used) {
		t.Errorf("%d pipelines, %d exporters of which %d are used", len(c.Service.Pipelines), len(c.Exporters), len(used))
	}
}
