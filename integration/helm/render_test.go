package helm_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

var chartDir = filepath.Join("..", "..", "deploy", "helm", "millrace")

// values reads a file of values; "" is none.
func values(t *testing.T, file string) map[string]any {
	t.Helper()
	if file == "" {
		return map[string]any{}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := yaml.UnmarshalStrict(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// manifests are what the chart renders, by kind.
type manifests struct {
	sets     []*appsv1.StatefulSet
	deploys  []*appsv1.Deployment
	services []*corev1.Service
	budgets  []*policyv1.PodDisruptionBudget
	accounts []*corev1.ServiceAccount
	configs  []*corev1.ConfigMap
	notes    string
}

// tryRender renders the chart as helm template does.
func tryRender(t *testing.T, given map[string]any) (map[string]string, error) {
	t.Helper()
	loaded, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return renderChart(loaded, given)
}

func renderChart(of *chart.Chart, given map[string]any) (map[string]string, error) {
	options := chartutil.ReleaseOptions{Name: "shop", Namespace: "prod", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(of, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Engine{Strict: true}.Render(of, all)
}

// render renders the chart and decodes it. A key that Kubernetes does not know is an error.
func render(t *testing.T, given map[string]any) *manifests {
	t.Helper()
	files, err := tryRender(t, given)
	if err != nil {
		t.Fatal(err)
	}
	m := new(manifests)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		if strings.HasSuffix(name, "NOTES.txt") {
			m.notes = text
			continue
		}
		docs := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
		for {
			doc, err := docs.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(bytes.TrimSpace(doc)) > 0 {
				m.decode(t, name, doc)
			}
		}
	}
	return m
}

// decode adds a document to the manifests.
func (m *manifests) decode(t *testing.T, name string, doc []byte) {
	t.Helper()
	var of metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &of); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, doc)
	}
	var to any
	switch of.APIVersion + " " + of.Kind {
	case "":
		return
	case "apps/v1 StatefulSet":
		to = added(&m.sets)
	case "apps/v1 Deployment":
		to = added(&m.deploys)
	case "v1 Service":
		to = added(&m.services)
	case "policy/v1 PodDisruptionBudget":
		to = added(&m.budgets)
	case "v1 ServiceAccount":
		to = added(&m.accounts)
	case "v1 ConfigMap":
		to = added(&m.configs)
	default:
		t.Fatalf("%s: kind %s of %s is not expected\n%s", name, of.Kind, of.APIVersion, doc)
	}
	if err := yaml.UnmarshalStrict(doc, to); err != nil {
		t.Errorf("%s: %v\n%s", name, err, doc)
	}
}

func added[T any](to *[]*T) *T {
	one := new(T)
	*to = append(*to, one)
	return one
}

// templates are the pods of a release, by component.
func (m *manifests) templates() map[string]*corev1.PodTemplateSpec {
	pods := map[string]*corev1.PodTemplateSpec{}
	for _, s := range m.sets {
		pods[s.Spec.Template.Spec.Containers[0].Name] = &s.Spec.Template
	}
	for _, d := range m.deploys {
		pods[d.Spec.Template.Spec.Containers[0].Name] = &d.Spec.Template
	}
	return pods
}

// TestChart_LintFindsNothing runs helm lint, with the defaults and with every value another.
func TestChart_LintFindsNothing(t *testing.T) {
	for _, file := range []string{"", "testdata/full.yaml"} {
		for _, m := range lint.All(chartDir, values(t, file), "prod", true).Messages {
			t.Errorf("helm lint with values %q: %s", file, m)
		}
	}
}

// TestChart_FullValuesAreAll holds testdata/full.yaml to what it says of itself.
func TestChart_FullValuesAreAll(t *testing.T) {
	var differ func(path string, defaults, full any)
	differ = func(path string, defaults, full any) {
		a, isMap := defaults.(map[string]any)
		if b, ok := full.(map[string]any); isMap && len(a) > 0 && ok {
			for key := range a {
				differ(path+"."+key, a[key], b[key])
			}
			return
		}
		x, errX := yaml.Marshal(defaults)
		y, errY := yaml.Marshal(full)
		if err := errors.Join(errX, errY); err != nil {
			t.Fatal(err)
		}
		same := map[string]bool{".serviceAccount.create": true, ".stores.persistence.enabled": true}
		if (full == nil || bytes.Equal(x, y)) && !same[path] {
			t.Errorf("testdata/full.yaml has the default, or nothing, at %s: %s", path, y)
		}
	}
	differ("", values(t, filepath.Join(chartDir, "values.yaml")), values(t, "testdata/full.yaml"))
}

// TestChart_RendersWhatKubernetesKnows renders the chart with the defaults and with every
// value another, and compares what its parts say of each other.
func TestChart_RendersWhatKubernetesKnows(t *testing.T) {
	for _, file := range []string{"", "testdata/full.yaml"} {
		t.Run(file, func(t *testing.T) {
			m := render(t, values(t, file))
			services := map[string]int{"": 1, "testdata/full.yaml": 2}[file]
			if len(m.sets) != 1 || len(m.deploys) != 1 || len(m.budgets) != 2 || len(m.accounts) != 1 || len(m.services) != services {
				t.Fatalf("%d sets, %d deployments, %d budgets, %d accounts, %d services", len(m.sets), len(m.deploys), len(m.budgets), len(m.accounts), len(m.services))
			}
			pods := m.templates()
			for component, pod := range pods {
				holdPod(t, m, component, pod)
			}
			set, deploy := m.sets[0], m.deploys[0]
			if !selects(t, set.Spec.Selector, pods["store"]) || !selects(t, deploy.Spec.Selector, pods["worker"]) {
				t.Error("a StatefulSet or Deployment does not select its own pods")
			}
			if selects(t, set.Spec.Selector, pods["worker"]) || selects(t, deploy.Spec.Selector, pods["store"]) {
				t.Error("a StatefulSet or Deployment selects pods of the other")
			}
			if !selects(t, m.budgets[0].Spec.Selector, pods["store"]) || !selects(t, m.budgets[1].Spec.Selector, pods["worker"]) {
				t.Error("the budgets do not bound stores and workers")
			}
			if set.Spec.ServiceName != m.services[0].Name {
				t.Errorf("the StatefulSet names the service %s, which is %s", set.Spec.ServiceName, m.services[0].Name)
			}
			for _, s := range m.services {
				if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pods["store"].Labels)) {
					t.Errorf("service %s selects no store", s.Name)
				}
				found := false
				for _, p := range pods["store"].Spec.Containers[0].Ports {
					found = found || p.Name == s.Spec.Ports[0].TargetPort.StrVal && p.ContainerPort == s.Spec.Ports[0].Port
				}
				if !found {
					t.Errorf("service %s leads to port %s, which no store has", s.Name, s.Spec.Ports[0].TargetPort.StrVal)
				}
			}
			if !strings.Contains(m.notes, "get pods") {
				t.Errorf("the notes say\n%s", m.notes)
			}
		})
	}
}

// TestChart_ValuesOfTheReadmeRender renders the chart with the values that its README shows.
func TestChart_ValuesOfTheReadmeRender(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(chartDir, "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "```yaml\n")
	text, _, found := strings.Cut(rest, "```")
	var given map[string]any
	if err := yaml.UnmarshalStrict([]byte(text), &given); err != nil || !found || len(given) == 0 {
		t.Fatalf("the README shows no values: %v", err)
	}
	m := render(t, given)
	if image := m.templates()["store"].Spec.Containers[0].Image; image != "registry.example.com/millrace:v1.2.3" {
		t.Errorf("the image is %s", image)
	}
	if want := m.sets[0].Name + "-0 8082"; !strings.Contains(string(readme), "kubectl port-forward "+want) || !strings.Contains(m.notes, want) {
		t.Errorf("the README and the notes do not lead to %s\n%s", want, m.notes)
	}
}

func selects(t *testing.T, selector *metav1.LabelSelector, pod *corev1.PodTemplateSpec) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(pod.Labels))
}

// holdPod looks at what every pod must have.
func holdPod(t *testing.T, m *manifests, component string, pod *corev1.PodTemplateSpec) {
	t.Helper()
	spec := &pod.Spec
	c := &spec.Containers[0]
	if user := spec.SecurityContext; !*user.RunAsNonRoot || *user.RunAsUser == 0 || user.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: the pod may run as %+v", component, user)
	}
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || len(s.Capabilities.Drop) != 1 || s.Capabilities.Drop[0] != "ALL" || len(s.Capabilities.Add) > 0 {
		t.Errorf("%s: the container may %+v", component, s)
	}
	if *spec.AutomountServiceAccountToken || *spec.EnableServiceLinks {
		t.Errorf("%s: it is given a token, or variables of services", component)
	}
	if spec.ServiceAccountName != m.accounts[0].Name {
		t.Errorf("%s: the account %s is not there", component, spec.ServiceAccountName)
	}
	if c.Resources.Requests.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
		t.Errorf("%s: resources are %+v", component, c.Resources)
	}
	if c.StartupProbe == nil || c.LivenessProbe == nil || c.ReadinessProbe == nil {
		t.Errorf("%s: it has not all three probes", component)
	}
	volumes := map[string]bool{}
	for i := range spec.Volumes {
		volumes[spec.Volumes[i].Name] = true
	}
	for _, claim := range m.sets[0].Spec.VolumeClaimTemplates {
		if component == "store" {
			volumes[claim.Name] = true
		}
	}
	for _, mount := range c.VolumeMounts {
		if !volumes[mount.Name] {
			t.Errorf("%s: volume %s is mounted and not there", component, mount.Name)
		}
		delete(volumes, mount.Name)
	}
	for name := range volumes {
		t.Errorf("%s: volume %s is mounted nowhere", component, name)
	}
}

// TestChart_WithoutTLS gives what a mesh needs, which encrypts by itself.
func TestChart_WithoutTLS(t *testing.T) {
	for _, off := range []any{"off", false} {
		m := render(t, map[string]any{
			"config": map[string]any{"http": map[string]any{"tls": off}},
			"http":   map[string]any{"metrics": true}, "keys": map[string]any{"secret": "keys"},
		})
		for i := range m.deploys {
			at := m.deploys[i].Spec.Template.Annotations
			if scheme, ok := at["prometheus.io/scheme"]; ok || at["prometheus.io/scrape"] != "true" {
				t.Errorf("tls %v: scraped by %q: %v", off, scheme, at)
			}
		}
		if len(m.deploys) == 0 {
			t.Error("no workers")
		}
	}
}

// TestChart_RefusesWrongValues gives values that cannot be meant.
func TestChart_RefusesWrongValues(t *testing.T) {
	for text, want := range map[string]string{
		"store: {replicas: 3}":                           "store",
		"stores: {replicas: three}":                      "replicas",
		"stores: {memoryLimit: 2Gi}":                     "memoryLimit",
		"nats: {servers: []}":                            "servers",
		"nats: {servers: ['http://nats:4222']}":          "servers",
		"durability: memory":                             "durability",
		"gateway: {enabled: true}":                       "keys.secret: the gateway",
		"http: {metrics: true}":                          "keys.secret: the gateway",
		"{http: {metrics: true}, keys: {secret: keys}}":  "http.tls.secret: http.metrics",
		"http: {port: 80}":                               "port",
		"gateway: {service: {type: Ingress}}":            "type",
		"terminationGracePeriodSeconds: 0":               "terminationGracePeriodSeconds",
		"workers: {persistence: {enabled: true}}":        "persistence",
		"nats: {credentials: {existingSecret: 'creds'}}": "existingSecret",
	} {
		var given map[string]any
		if err := yaml.Unmarshal([]byte(text), &given); err != nil {
			t.Fatal(err)
		}
		if _, err := tryRender(t, given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
