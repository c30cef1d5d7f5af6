package s3_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/integration/process"
	"github.com/millrace/millrace/store/s3"
)

// binary builds the one binary, once for all tests.
var binary = sync.OnceValues(func() (string, error) { return process.Build(repository, scratch) })

// environ is the environment of a process: what the tests were started with, less what
// would tell it of other buckets, and the keys of the server under the names of AWS.
func environ(extra ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "AWS_") && !strings.HasPrefix(v, "MILLRACE_") {
			env = append(env, v)
		}
	}
	return append(append(env, "AWS_ACCESS_KEY_ID="+access, "AWS_SECRET_ACCESS_KEY="+secret), extra...)
}

// shop is a process of millrace up in a directory of its own.
type shop struct {
	t    *testing.T
	dir  string
	nats string
	args []string

	*process.Process
	log process.Log
}

// settings are those of a store that takes a snapshot into a bucket whenever something was
// written, and trims behind it.
func settings(in s3.Config) []string {
	set := func(key, value string) []string { return []string{"--set", "store." + key + "=" + value} }
	var all []string
	for _, a := range [][]string{
		set("snapshots.store", "s3"), set("snapshots.s3.bucket", in.Bucket), set("snapshots.s3.prefix", in.Prefix), set("snapshots.s3.endpoint", in.Endpoint),
		set("snapshots.s3.region", in.Region), set("snapshots.s3.secure", "false"), set("snapshots.logBytes", "1"), set("snapshots.rest", "1s"),
		set("snapshots.sharePercent", "100"), set("trimBytes", "1"), set("diskReserve", "-1"),
	} {
		all = append(all, a...)
	}
	return all
}

func newShop(t *testing.T, args ...string) *shop {
	t.Helper()
	ports, err := process.FreePorts(1)
	must(t, err)
	s := &shop{t: t, dir: t.TempDir(), nats: "nats://127.0.0.1:" + ports[0]}
	s.args = append([]string{"up", "--dir", s.dir, "--port", ports[0], "--listen", "off", "--gateway", "off"}, args...)
	return s
}

// start starts the process and waits until it is ready.
func (s *shop) start() {
	s.t.Helper()
	s.begin()
	must(s.t, s.AwaitReady(poll.Most))
}

// begin starts the process.
func (s *shop) begin() {
	s.t.Helper()
	path, err := binary()
	must(s.t, err)
	s.log.Reset()
	cmd := exec.Command(path, s.args...)
	cmd.Env, cmd.Dir = environ(), s.dir
	p, err := process.Start(cmd, &s.log)
	must(s.t, err)
	s.Process = p
	s.t.Cleanup(func() {
		p.Kill() // it may have ended
		if said := s.log.String(); s.t.Failed() {
			s.t.Logf("%s said:\n%s", s.dir, said[max(0, len(said)-8000):])
		}
	})
}

// run runs a command with the store's address, and returns what it says and its exit code.
func (s *shop) run(args ...string) (string, int) {
	s.t.Helper()
	return command(s.t, append(args, "--server", s.nats, "--creds", filepath.Join(s.dir, "credentials", "admin.json"))...)
}

func (s *shop) mustRun(args ...string) string {
	s.t.Helper()
	out, code := s.run(args...)
	if code != 0 {
		s.t.Fatalf("millrace %s: exit %d\n%s\n%s", strings.Join(args, " "), code, out, &s.log)
	}
	return out
}

func command(t testing.TB, args ...string) (string, int) {
	t.Helper()
	path, err := binary()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = environ("AWS_ENDPOINT_URL=http://"+endpoint, "AWS_REGION=us-east-1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// fill writes items from to until.
func (s *shop) fill(from, to int) {
	s.t.Helper()
	var lines strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&lines, `{"id":"i%d","k":"k%d","n":%d,"text":%q}`+"\n", i, i%20, from, strings.Repeat(strconv.Itoa(i), 20))
	}
	file := filepath.Join(s.t.TempDir(), "items")
	must(s.t, os.WriteFile(file, []byte(lines.String()), 0o600))
	s.mustRun("import", "things", file)
}

func (s *shop) declare(spec string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "all.yaml")
	must(s.t, os.WriteFile(file, []byte("apiVersion: millrace/v1\nkind: Container\nmetadata: {name: things}\nspec: "+spec+"\n"), 0o600))
	s.mustRun("apply", "-f", file)
}

// items are all items, in order, with their etags.
func (s *shop) items() string {
	s.t.Helper()
	lines := strings.Split(strings.TrimSpace(s.mustRun("export", "things")), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
