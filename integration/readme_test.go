package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/configs"
	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/pipelines/spec"
)

// fences returns the code of the README's fences with a mark, such as "sh run".
func fences(t *testing.T, mark string) []string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(root(t), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+mark+"\n(.*?)```").FindAllSubmatch(readme, -1) {
		found = append(found, string(m[1]))
	}
	if len(found) == 0 {
		t.Fatalf("the README has no fence marked %q", mark)
	}
	return found
}

func TestREADME_CommandsDoWhatTheySay(t *testing.T) {
	up, scripts := strings.Fields(fences(t, "sh up")[0]), fences(t, "sh run")
	// The commands use the ordinary port; this test another.
	port := strconv.Itoa(freePort(t))
	t.Setenv("MILLRACE_NATS_PORT", port)
	t.Setenv("MILLRACE_SERVER", "nats://127.0.0.1:"+port)
	t.Setenv("MILLRACE_HTTP_LISTEN", "off")
	t.Setenv("PATH", filepath.Dir(millrace(t))+":"+os.Getenv("PATH"))
	forgetUser(t) // the commands find the secret that the node makes
	dir := spawn(t, up[1:]...).dir
	if err := os.Symlink(filepath.Join(root(t), "configs"), filepath.Join(dir, "configs")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	// The fences are typed into one terminal.
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", strings.Join(scripts, "\n"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{`"categoryName":"Bikes"`, `"categoryName":"Bicycles"`, `"name":"new"`, "equal: 3 copies"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the README's commands do not show %s:\n%s", want, out.String())
		}
	}
}

func TestREADME_PipelineIsTheOneOfTheSample(t *testing.T) {
	t.Parallel()
	shown, err := spec.Decode("README.md", []byte(fences(t, "yaml pipeline")[0]))
	if err != nil {
		t.Fatal(err)
	}
	sample, err := spec.Load("../configs/webstore/category-names.yaml")
	if err != nil {
		t.Fatal(err)
	}
	a, errA := json.Marshal(shown.Pipelines)
	b, errB := json.Marshal(sample.Pipelines)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Errorf("the README shows %s, configs/webstore has %s", a, b)
	}
}

func TestREADME_TargetsOfMakeAreThere(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`make ([a-z]+)`).FindAllSubmatch(readme, -1) {
		if !regexp.MustCompile(`(?m)^` + string(m[1]) + `:`).Match(makefile) {
			t.Errorf("the README says make %s, which the Makefile does not know", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`\]\(([a-z][^):#]*)\)`).FindAllSubmatch(readme, -1) {
		if _, err := os.Stat(filepath.Join("..", string(m[1]))); err != nil {
			t.Errorf("the README links to what is not there: %v", err)
		}
	}
}

func TestDeploy_FilesAreUnderstood(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Command     []string          `yaml:"command"`
			Environment map[string]string `yaml:"environment"`
			Ports       []string          `yaml:"ports"`
		} `yaml:"services"`
	}
	if err := yaml.Unmarshal(data, &compose); err != nil {
		t.Fatal(err)
	}
	for name, service := range compose.Services {
		for _, port := range service.Ports {
			if port != "127.0.0.1:4222:4222" {
				t.Errorf("service %s opens port %s; commands of this machine need 127.0.0.1:4222 alone", name, port)
			}
		}
		if service.Environment["MILLRACE_DURABILITY"] == "" {
			continue
		}
		for variable, value := range service.Environment {
			if _, err := configs.Load("", []string{variable + "=" + value}, nil); err != nil || value == "" {
				t.Errorf("service %s sets %s=%s: %v", name, variable, value, err)
			}
		}
		if out, errs, exit := command(t, "", nil, append(service.Command, "--help")...); exit != 0 {
			t.Errorf("service %s runs millrace %v: exit %d\n%s%s", name, service.Command, exit, out, errs)
		}
	}
}

func TestHealth_ReadyByProgress(t *testing.T) {
	t.Parallel()
	dir, port, web := t.TempDir(), strconv.Itoa(freePort(t)), strconv.Itoa(freePort(t))
	spawn(t, "up", "--dir", dir, "--port", port, "--listen", "127.0.0.1:"+web)
	get := func(path string) (status int, body string) {
		t.Helper()
		resp, err := http.Get("http://127.0.0.1:" + web + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var text bytes.Buffer
		if _, err := text.ReadFrom(resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, text.String()
	}
	if status, body := get("/healthz"); status != http.StatusOK || !strings.Contains(body, "alive") {
		t.Errorf("/healthz answers %d %s", status, body)
	}
	poll.Until(t, func() error {
		status, body := get("/readyz")
		return poll.Unless(status == http.StatusOK && strings.Contains(body, `"ready": true`), fmt.Sprintf("/readyz answers %d %s", status, body))
	})
	server := "nats://127.0.0.1:" + port
	mustRun(t, server, "apply", "-f", "../configs/webstore")
	poll.Until(t, func() error {
		_, body := get("/metrics")
		return poll.Unless(strings.Contains(body, "millrace_pipeline_lag") && strings.Contains(body, `pipeline="tag-names"`), body)
	})
	// A container that is made again leaves its pipelines with nothing to follow:
	// they are stuck, and the process says so.
	client := dial(t, server)
	if err := client.Catalog().Delete(t.Context(), "default", "product"); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, func() error {
		status, body := get("/readyz")
		return poll.Unless(status == http.StatusServiceUnavailable && strings.Contains(body, "is stuck"), body)
	})
	if out, exit := run(t, server, "status"); exit != 1 || !strings.Contains(out, "stuck") {
		t.Errorf("status with a stuck pipeline: exit %d\n%s", exit, out)
	}
}
