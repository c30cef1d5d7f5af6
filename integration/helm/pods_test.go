//go:build linux

package helm_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"
)

// patience bounds all waiting: far more than anything takes on a machine that is busy.
const patience = 2 * time.Minute

// cluster is what the chart expects to find: NATS, Secrets, and the image.
type cluster struct {
	t       *testing.T
	image   string // the binary
	made    string // what millrace credentials new made
	servers string
	secrets map[string]map[string][]byte
}

// newCluster builds the binary as the image has it and starts a NATS server with the
// credentials and certificates that the command makes.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{t: t, image: filepath.Join(dir, "millrace"), made: filepath.Join(dir, "made")}
	build := exec.Command("go", "build", "-o", c.image, "./cmd/millrace")
	build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	c.command("credentials", "new", c.made, "--server-names", "127.0.0.1")
	user := map[string][]byte{}
	for line := range strings.Lines(string(c.read("millrace.env"))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		user[name] = []byte(value)
	}
	certificate, err := server.GenTLSConfig(&server.TLSConfigOpts{CertFile: filepath.Join(c.made, "nats", "server.pem"), KeyFile: filepath.Join(c.made, "nats", "server-key.pem")})
	if err != nil {
		t.Fatal(err)
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8 << 20, NoLog: true, NoSigs: true,
		Username: string(user["MILLRACE_CONNECT_USER"]), Password: string(user["MILLRACE_CONNECT_PASSWORD"]),
		TLS: true, TLSConfig: certificate, TLSTimeout: patience.Seconds(), AuthTimeout: patience.Seconds(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server does not start")
	}
	c.servers = fmt.Sprintf("tls://127.0.0.1:%d", s.Addr().(*net.TCPAddr).Port)
	c.secrets = map[string]map[string][]byte{
		"nats":    user,
		"nats-ca": {"ca.pem": c.read("nats/ca.pem")},
		"keys":    {"primary": masterKey("reads and writes"), "primaryReadOnly": masterKey("only reads")},
		"tls":     {"tls.crt": c.read("nats/server.pem"), "tls.key": c.read("nats/server-key.pem")},
	}
	return c
}

// masterKey makes a key of a text.
func masterKey(text string) []byte {
	return []byte(base64.StdEncoding.EncodeToString([]byte("the master key of a test that " + text)))
}

func (c *cluster) read(name string) []byte {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.made, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return data
}

// command runs a command as somebody outside of the cluster and returns what it prints.
func (c *cluster) command(args ...string) string {
	c.t.Helper()
	cmd := exec.Command(c.image, args...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("millrace %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// values are those of a release in this cluster. All pods here have one address, so each has
// ports of its own.
func (c *cluster) values() (given map[string]any, gateway, http string) {
	c.t.Helper()
	port, httpPort := freePort(c.t), freePort(c.t)
	return map[string]any{
		"nats": map[string]any{
			"servers": []any{c.servers}, "credentials": map[string]any{"secret": "nats"}, "ca": map[string]any{"secret": "nats-ca"},
		},
		"durability": "disk", // there is one server
		"config":     map[string]any{"log": map[string]any{"format": "json"}},
		"keys":       map[string]any{"secret": "keys"},
		"http":       map[string]any{"port": httpPort, "metrics": true, "tls": map[string]any{"secret": "tls"}},
		"gateway":    map[string]any{"enabled": true, "port": port, "tls": map[string]any{"secret": "tls"}},
	}, fmt.Sprintf("https://127.0.0.1:%d", port), fmt.Sprintf("https://127.0.0.1:%d", httpPort)
}

func freePort(t *testing.T) int {
	t.Helper()
	// Beneath the ports that the system gives to whoever asks for any.
	for {
		port := 10_000 + rand.IntN(20_000)
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
}

// pod is a container of the chart as a process: its root has the image's binary and what is
// mounted, and nothing of it can be written but the volumes that are not read-only.
type pod struct {
	c    *cluster
	spec *corev1.PodSpec
	root string
	env  []string
	main *exec.Cmd

	ready chan struct{} // closed when it says so
	ended chan error
	mu    sync.Mutex
	log   bytes.Buffer
}

// start does what a kubelet does with a pod's template.
func (c *cluster) start(m *manifests, component string) *pod {
	c.t.Helper()
	p := &pod{c: c, spec: &m.templates()[component].Spec, root: c.t.TempDir(), ready: make(chan struct{}), ended: make(chan error, 1)}
	must := func(err error) {
		c.t.Helper()
		if err != nil {
			c.t.Fatal(err)
		}
	}
	must(os.Chmod(p.root, 0o755))
	must(os.Link(c.image, filepath.Join(p.root, "millrace")))
	must(os.Chmod(c.image, 0o755))
	group := int(*p.spec.SecurityContext.FSGroup)
	for _, mount := range p.spec.Containers[0].VolumeMounts {
		dir := filepath.Join(p.root, mount.MountPath)
		must(os.MkdirAll(dir, 0o755))
		files, mode := p.volume(m, mount.Name)
		if files == nil && !mount.ReadOnly {
			must(os.Chown(dir, 0, group))
			must(os.Chmod(dir, 0o770|os.ModeSetgid))
		}
		for name, data := range files {
			must(os.WriteFile(filepath.Join(dir, name), data, mode))
			must(os.Chown(filepath.Join(dir, name), 0, group))
		}
	}
	container := &p.spec.Containers[0]
	for i := range container.Env {
		p.setenv(&container.Env[i])
	}
	p.main = p.inside(context.Background(), append([]string{"/millrace"}, container.Args...)...)
	out, err := p.main.StdoutPipe()
	must(err)
	p.main.Stderr = p.main.Stdout
	must(p.main.Start())
	go p.follow(bufio.NewScanner(out))
	c.t.Cleanup(func() {
		_ = p.main.Process.Kill() // it may have ended
		if c.t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			c.t.Logf("%s:\n%s", component, p.log.String())
		}
	})
	return p
}

// volume returns the files of a volume and their mode; nil for one that is empty.
func (p *pod) volume(m *manifests, name string) (map[string][]byte, os.FileMode) {
	p.c.t.Helper()
	for _, v := range p.spec.Volumes {
		switch {
		case v.Name != name:
		case v.Secret != nil:
			mode := os.FileMode(0o644)
			if v.Secret.DefaultMode != nil {
				mode = os.FileMode(*v.Secret.DefaultMode)
			}
			return p.c.secrets[v.Secret.SecretName], mode
		case v.ConfigMap != nil:
			files := map[string][]byte{}
			for _, c := range m.configs {
				for file, text := range c.Data {
					if c.Name == v.ConfigMap.Name {
						files[file] = []byte(text)
					}
				}
			}
			return files, 0o644
		}
	}
	return nil, 0 // of a claim, or an emptyDir
}

func (p *pod) setenv(v *corev1.EnvVar) {
	p.c.t.Helper()
	value := v.Value
	if from := v.ValueFrom; from != nil {
		data, found := p.c.secrets[from.SecretKeyRef.Name][from.SecretKeyRef.Key]
		if optional := from.SecretKeyRef.Optional; !found && optional != nil && *optional {
			return
		}
		if !found {
			p.c.t.Fatalf("%s: there is no key %s in Secret %s", v.Name, from.SecretKeyRef.Key, from.SecretKeyRef.Name)
		}
		value = string(data)
	}
	p.env = append(p.env, v.Name+"="+value)
}

// inside is a command within the pod.
func (p *pod) inside(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", p.env
	user := p.spec.SecurityContext
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: p.root, Credential: &syscall.Credential{
		Uid: uint32(*user.RunAsUser), Gid: uint32(*user.RunAsGroup), Groups: []uint32{uint32(*user.FSGroup)},
	}}
	return cmd
}

// follow keeps the log until the process has ended.
func (p *pod) follow(lines *bufio.Scanner) {
	ready := p.ready
	for lines.Scan() {
		p.mu.Lock()
		p.log.WriteString(lines.Text() + "\n")
		p.mu.Unlock()
		if ready != nil && strings.Contains(lines.Text(), "is ready after") {
			close(ready)
			ready = nil
		}
	}
	p.ended <- p.main.Wait()
}

// awaitStart waits until the process says that it is ready; then its probes must hold.
func (p *pod) awaitStart() {
	p.c.t.Helper()
	select {
	case <-p.ready:
	case err := <-p.ended:
		p.c.t.Fatalf("%s ended: %v", p.spec.Containers[0].Name, err)
	case <-time.After(patience):
		p.c.t.Fatalf("%s does not become ready", p.spec.Containers[0].Name)
	}
	p.hold(p.spec.Containers[0].StartupProbe)
	p.hold(p.spec.Containers[0].LivenessProbe)
	p.hold(p.spec.Containers[0].ReadinessProbe)
}

// hold runs a probe until it succeeds.
func (p *pod) hold(probe *corev1.Probe) {
	p.c.t.Helper()
	ctx, cancel := context.WithTimeout(p.c.t.Context(), patience)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		out, err := p.inside(ctx, probe.Exec.Command...).CombinedOutput()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			p.c.t.Fatalf("%s: %s: %v\n%s", p.spec.Containers[0].Name, strings.Join(probe.Exec.Command, " "), err, out)
		}
	}
}

// stop asks the process to end, as Kubernetes does.
func (p *pod) stop() {
	p.c.t.Helper()
	if err := p.main.Process.Signal(syscall.SIGTERM); err != nil {
		p.c.t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			p.c.t.Errorf("%s ended: %v", p.spec.Containers[0].Name, err)
		}
	case <-time.After(time.Duration(*p.spec.TerminationGracePeriodSeconds) * time.Second):
		p.c.t.Errorf("%s does not end within its grace", p.spec.Containers[0].Name)
	}
}

// TestChart_PodsRun starts a store and a worker as the chart has them rendered, and lets them
// keep a copy true.
func TestChart_PodsRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may change the root directory and the user")
	}
	c := newCluster(t)
	given, gateway, storeHTTP := c.values()
	m := render(t, given)
	store := c.start(m, "store")
	if probe := store.spec.Containers[0].StartupProbe; store.inside(t.Context(), append(probe.Exec.Command, "--listen", "127.0.0.1:"+strconv.Itoa(freePort(t)))...).Run() == nil {
		t.Error("the startup probe is content with a port where nobody listens")
	}
	given, _, workerHTTP := c.values()
	worker := c.start(render(t, given), "worker")
	store.awaitStart()
	worker.awaitStart()

	admin := []string{"--server", c.servers, "--creds", filepath.Join(c.made, "admin.json"), "--ca", filepath.Join(c.made, "nats", "ca.pem")}
	c.command(append([]string{"apply", "-f", "configs/webstore"}, admin...)...)
	items := filepath.Join(t.TempDir(), "items")
	for container, item := range map[string]string{
		"productMeta": `{"id": "c1", "type": "category", "name": "Bikes"}`, "product": `{"id": "p1", "categoryId": "c1"}`,
	} {
		if err := os.WriteFile(items, []byte(item), 0o600); err != nil {
			t.Fatal(err)
		}
		c.command(append([]string{"import", container, items}, admin...)...)
	}
	if out := c.command(append([]string{"verify", "--settle", patience.String()}, admin...)...); !strings.Contains(out, "equal") {
		t.Errorf("verify says\n%s", out)
	}
	worker.hold(worker.spec.Containers[0].ReadinessProbe)

	// They show the certificate of their Secret and ask for a key of theirs.
	c.holdAnswer(gateway+"/dbs", "", http.StatusUnauthorized)
	for _, at := range []string{storeHTTP, workerHTTP} {
		c.holdAnswer(at+"/metrics", "", http.StatusUnauthorized)
		c.holdAnswer(at+"/metrics", string(c.secrets["keys"]["primaryReadOnly"]), http.StatusOK)
	}
	worker.stop()
	store.stop()
}

// holdAnswer asks for a URL with a key, or without one if it is "".
func (c *cluster) holdAnswer(url, key string, want int) {
	c.t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.secrets["nats-ca"]["ca.pem"])
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: patience}
	ask, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if key != "" {
		ask.Header.Set("Authorization", "Bearer "+key)
	}
	answer, err := client.Do(ask)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = answer.Body.Close() // it was not read
	if answer.StatusCode != want {
		c.t.Errorf("%s answers %d, want %d", url, answer.StatusCode, want)
	}
}
