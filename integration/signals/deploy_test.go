package signals_test

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	scrapeFile    = "../../deploy/prometheus/prometheus.yaml"
	rulesFile     = "../../deploy/prometheus/alerts.yaml"
	ruleTestsFile = "../../deploy/prometheus/alerts_test.yaml"
	dashboardFile = "../../deploy/grafana/millrace.json"
)

// series is what the page says of a metric as Prometheus has it.
type series struct {
	kind   string
	labels []string
}

var pageRow = regexp.MustCompile("(?m)^\\| `millrace[^`]*` \\| `([a-z_]+)` \\| ([a-z -]+) \\| [^|]* \\| ([^|]*) \\|")

// pageSeries reads the table of metrics, which TestPage_TellsWhatIsRegistered holds equal to
// what the product registers.
func pageSeries(t *testing.T) map[string]series {
	t.Helper()
	page, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]series{}
	for _, m := range pageRow.FindAllStringSubmatch(string(page), -1) {
		all[m[1]] = series{m[2], list(strings.ReplaceAll(strings.TrimSpace(m[3]), "`", ""))}
	}
	if len(all) < 50 {
		t.Fatalf("the page has %d metrics", len(all))
	}
	return all
}

var (
	metricName = regexp.MustCompile(`millrace_[a-z0-9_]+`)
	selector   = regexp.MustCompile(`(millrace_[a-z0-9_]+)\{([^}]*)\}`)
	labelOf    = regexp.MustCompile(`([a-z_]+)(?:=~|!~|!=|=)"`)
	grouping   = regexp.MustCompile(`by \(([^)]*)\)`)
)

// added are labels that Prometheus adds, and that of the buckets of histograms.
var added = []string{"instance", "job", "le"}

// checkExpression sees that an expression names metrics and labels that there are.
func checkExpression(t *testing.T, where, expr string, known map[string]series) {
	t.Helper()
	labels := slices.Clone(added)
	for _, name := range metricName.FindAllString(expr, -1) {
		base := name
		for _, suffix := range []string{"_bucket", "_count", "_sum"} {
			if cut, ok := strings.CutSuffix(name, suffix); ok && known[cut].kind == kindHistogram {
				base = cut
			}
		}
		s, ok := known[base]
		switch {
		case !ok:
			t.Errorf("%s: there is no metric %s", where, name)
		case s.kind == kindHistogram && base == name:
			t.Errorf("%s: %s is a histogram; its _bucket, _count or _sum is expected", where, name)
		case s.kind == kindCounter && !strings.Contains(expr, "rate(") && !strings.Contains(expr, "increase("):
			t.Errorf("%s: %s only grows; its rate is expected", where, name)
		}
		labels = append(labels, s.labels...)
		for _, m := range selector.FindAllStringSubmatch(expr, -1) {
			for _, l := range labelOf.FindAllStringSubmatch(m[2], -1) {
				if m[1] == name && !slices.Contains(append(slices.Clone(added), s.labels...), l[1]) {
					t.Errorf("%s: %s has no label %s", where, name, l[1])
				}
			}
		}
	}
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		for _, label := range list(m[1]) {
			if !slices.Contains(labels, label) {
				t.Errorf("%s: nothing in %s has the label %s", where, expr, label)
			}
		}
	}
}

func TestAlerts_NameWhatIsTold(t *testing.T) {
	t.Parallel()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	readAs(t, rulesFile, yaml.Unmarshal, &file)
	known, seen := pageSeries(t), map[string]bool{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			checkExpression(t, rule.Alert, rule.Expr, known)
			if seen[rule.Alert] || rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s is there twice, or says nothing", rule.Alert)
			}
			seen[rule.Alert] = true
			var by []string
			for _, m := range grouping.FindAllStringSubmatch(rule.Expr, -1) {
				by = append(by, list(m[1])...)
			}
			for _, m := range regexp.MustCompile(`\$labels\.([a-z_]+)`).FindAllStringSubmatch(rule.Annotations["summary"], -1) {
				if !slices.Contains(by, m[1]) {
					t.Errorf("%s: the summary speaks of %s, by which nothing is grouped", rule.Alert, m[1])
				}
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("there are only %d rules", len(seen))
	}
}

// TestAlerts_FireAsTheyShould asks promtool, of Debian's package prometheus.
func TestAlerts_FireAsTheyShould(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skipf("the rules are not tried: %v; it is in Debian's package prometheus", err)
	}
	for _, args := range [][]string{{"check", "rules", rulesFile}, {"test", "rules", ruleTestsFile}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// scraping is what Prometheus reads of the keys that prometheus.yaml has.
type scraping struct {
	Rules []string `yaml:"rule_files"`
	Jobs  []struct {
		Name          string `yaml:"job_name"`
		Scheme        string `yaml:"scheme"`
		Authorization struct {
			Type string `yaml:"type"`
			File string `yaml:"credentials_file"`
		} `yaml:"authorization"`
		TLS struct {
			CA  string `yaml:"ca_file"`
			Min string `yaml:"min_version"`
		} `yaml:"tls_config"`
		Static []struct {
			Targets []string `yaml:"targets"`
		} `yaml:"static_configs"`
	} `yaml:"scrape_configs"`
}

// TestScraping_ShowsKeysWhereTheyAreAskedFor holds the sample to what the listener wants: on the
// loopback nothing, elsewhere TLS and a key as a bearer, which integration's TestAdmin shows.
func TestScraping_ShowsKeysWhereTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	var file scraping
	readAs(t, scrapeFile, strictYAML, &file)
	if len(file.Rules) != 1 || filepath.Join(filepath.Dir(scrapeFile), file.Rules[0]) != rulesFile || len(file.Jobs) != 2 {
		t.Fatalf("rules %v, %d jobs", file.Rules, len(file.Jobs))
	}
	for _, job := range file.Jobs {
		for _, target := range job.Static[0].Targets {
			host, _, err := net.SplitHostPort(target)
			if err != nil {
				t.Fatal(err)
			}
			secure := job.Scheme == "https" && job.TLS.CA != "" && job.Authorization.Type == "Bearer" && job.Authorization.File != ""
			if ip := net.ParseIP(host); secure == (ip != nil && ip.IsLoopback()) {
				t.Errorf("%s is scraped with TLS and a key: %t", target, secure)
			}
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skipf("Prometheus does not judge the sample: %v; promtool is in Debian's package prometheus", err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "config", "--syntax-only", scrapeFile).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// strictYAML refuses keys that v does not have.
func strictYAML(data []byte, v any) error {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	return dec.Decode(v)
}

func TestDashboard_NamesWhatIsTold(t *testing.T) {
	t.Parallel()
	var file struct {
		Panels []struct {
			ID                       int
			Type, Title, Description string
			Targets                  []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	readAs(t, dashboardFile, json.Unmarshal, &file)
	known, ids := pageSeries(t), map[int]bool{}
	for _, p := range file.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("panel %s shows nothing, or does not say what", p.Title)
		}
		for _, target := range p.Targets {
			checkExpression(t, p.Title, target.Expr, known)
		}
	}
	var names []string
	for _, v := range file.Templating.List {
		names = append(names, v.Name)
		checkExpression(t, "variable "+v.Name, v.Query, known)
	}
	for _, p := range file.Panels {
		for _, target := range p.Targets {
			for _, m := range regexp.MustCompile(`\$([a-z]\w*)`).FindAllStringSubmatch(target.Expr, -1) {
				if !slices.Contains(names, m[1]) {
					t.Errorf("%s: there is no variable %s", p.Title, m[1])
				}
			}
		}
	}
	if len(ids) < 15 {
		t.Errorf("there are only %d panels", len(ids))
	}
}

// readAs reads a file into v.
func readAs(t *testing.T, name string, unmarshal func([]byte, any) error, v any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
