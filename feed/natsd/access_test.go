package natsd_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed/natsd"
	"github.com/millrace/millrace/feed/natsd/ports"
	"github.com/millrace/millrace/feed/natsd/readertest"
)

// credentials reads those of a server in dir.
func credentials(t *testing.T, dir, name string) natsd.Credentials {
	t.Helper()
	c, err := natsd.ReadCredentials(filepath.Join(dir, "credentials", name))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func listening(t *testing.T, dir string) *natsd.Server {
	t.Helper()
	return open(t, natsd.Config{Dir: dir, Port: ports.Free(t), Monitor: "127.0.0.1:0", SyncInterval: time.Minute, Log: slog.New(slog.DiscardHandler)})
}

func TestNATS_WithoutTheSecretIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := listening(t, dir)
	admin, reader := credentials(t, dir, natsd.FileAdmin), credentials(t, dir, natsd.FileReadOnly)
	for name, option := range map[string]nats.Option{
		"nobody":                 nats.Name("nobody"),
		"a wrong password":       nats.UserInfo(admin.User, admin.Password+"x"),
		"no password":            nats.UserInfo(admin.User, ""),
		"another's password":     nats.UserInfo(reader.User, admin.Password),
		"a token":                nats.Token(admin.Password),
		"a user of the process":  nats.UserInfo("this process", ""),
		"a user with no account": nats.UserInfo("", ""),
	} {
		if nc, err := nats.Connect(s.ClientURL(), option, nats.Timeout(time.Minute)); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v, want %v", name, err, nats.ErrAuthorization)
			nc.Close()
		}
	}
	for _, c := range []natsd.Credentials{admin, reader} {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(c.User, c.Password), nats.Timeout(time.Minute))
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		nc.Close()
	}
	in, err := s.Conn()
	if err != nil {
		t.Fatalf("in process: %v", err)
	}
	in.Close()
}

// A leaf node brings the subjects of a whole account with it.
func TestNATS_LeafWithoutTheSecretIsRefused(t *testing.T) {
	s := listening(t, t.TempDir())
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.ClientURL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "CONNECT {\"verbose\":false,\"server_id\":\"x\",\"name\":\"leaf\",\"cluster\":\"x\",\"headers\":true,\"jetstream\":true}\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	refused := false
	for lines.Scan() {
		refused = refused || strings.HasPrefix(lines.Text(), "-ERR")
		if strings.HasPrefix(lines.Text(), "PONG") {
			t.Fatal("a leaf node was let in")
		}
	}
	if !refused {
		t.Error("the connection ended without a reason")
	}
}

func TestNATS_MonitoringAsksForTheSecret(t *testing.T) {
	dir := t.TempDir()
	s := listening(t, dir)
	url := "http://" + natsd.MonitorAddress(s)
	for _, path := range []string{"/varz", "/connz", "/routez", "/subsz", "/jsz?streams=true", "/healthz"} {
		for _, c := range []natsd.Credentials{
			{}, {User: natsd.UserReadOnly, Password: "guess"}, credentials(t, dir, natsd.FileReadOnly), credentials(t, dir, natsd.FileAdmin),
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := http.StatusUnauthorized
			if c.User != "" {
				r.SetBasicAuth(c.User, c.Password)
			}
			if len(c.Password) > len("guess") {
				want = http.StatusOK
			}
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
				t.Errorf("%s as %s: %s, %v; want %d", path, c, resp.Status, err, want)
			}
		}
	}
}

func TestNATS_TheSecretsAreMadeOnceAndForTheirOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	s := listening(t, dir)
	before := credentials(t, dir, natsd.FileAdmin)
	for _, name := range []string{natsd.FileAdmin, natsd.FileReadOnly} {
		info, err := os.Stat(filepath.Join(dir, "credentials", name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; want 0600", name, info.Mode(), err)
		}
	}
	if text := fmt.Sprint(before) + fmt.Sprintf("%v %+v", before, before); strings.Contains(text, before.Password) {
		t.Error("credentials print their secret")
	}
	s.Close()
	listening(t, dir)
	if after := credentials(t, dir, natsd.FileAdmin); after != before {
		t.Error("a second start made other credentials")
	}
}

func TestNATS_WhoDoesNotListenMakesNoSecret(t *testing.T) {
	dir := t.TempDir()
	open(t, natsd.Config{Dir: dir, DontListen: true})
	if _, err := os.Stat(filepath.Join(dir, "credentials")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("credentials: %v, want none", err)
	}
}

func TestNATS_ANewSecretCountsFromTheNextConnection(t *testing.T) {
	dir := t.TempDir()
	s := listening(t, dir)
	before := credentials(t, dir, natsd.FileReadOnly)
	after := natsd.NewCredentials(natsd.UserReadOnly)
	after.Password += "longer" // the file changes in size even where times are coarse
	if err := natsd.WriteCredentials(filepath.Join(dir, "credentials", natsd.FileReadOnly), after); err != nil {
		t.Fatal(err)
	}
	if nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(before.User, before.Password)); err == nil {
		nc.Close()
		t.Error("the former secret is good")
	}
	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(after.User, after.Password), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

func TestNATS_AReaderReadsAndDoesNothingElse(t *testing.T) {
	dir := t.TempDir()
	s := listening(t, dir)
	admin, err := s.Conn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	c := credentials(t, dir, natsd.FileReadOnly)
	readertest.Hold(t, admin, 1, func(options ...nats.Option) (*nats.Conn, error) {
		return nats.Connect(s.ClientURL(), append(options, nats.Timeout(time.Minute), nats.UserInfo(c.User, c.Password))...)
	})
	if err := s.Reopen(t.Context()); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(c.User, c.Password), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatalf("after the server was opened anew: %v", err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Stream(t.Context(), "MILLRACE_reader_0"); err != nil {
		t.Errorf("after the server was opened anew: %v", err)
	}
}

// TestNATS_StreamsOfAServerWithoutSecretsAreThere opens what a server without
// credentials has written.
func TestNATS_StreamsOfAServerWithoutSecretsAreThere(t *testing.T) {
	dir := t.TempDir()
	old, err := server.NewServer(&server.Options{JetStream: true, StoreDir: dir, Port: -1, Host: "127.0.0.1", NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	old.Start()
	if !old.ReadyForConnections(time.Minute) {
		t.Fatal("the server is not ready")
	}
	write := func(nc *nats.Conn, err error) jetstream.JetStream {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), "s", nil); err != nil {
			t.Fatal(err)
		}
		return js
	}
	write(nats.Connect(old.ClientURL(), nats.Timeout(time.Minute)))
	old.Shutdown()
	old.WaitForShutdown()
	js := write(listening(t, dir).Conn())
	s, err := js.Stream(t.Context(), "S")
	if err != nil || s.CachedInfo().State.Msgs != 2 {
		t.Errorf("the stream holds %v, %v; want 2 messages", s.CachedInfo().State, err)
	}
}

func TestNATS_AClusterThatTakesAnyoneIsRefused(t *testing.T) {
	_, err := natsd.Open(t.Context(), natsd.Config{Dir: t.TempDir(), Port: natsd.PortRandom, Cluster: natsd.Cluster{Name: "c", Port: -1}})
	if err == nil || !strings.Contains(err.Error(), "anybody could join") {
		t.Errorf("error %v, want one that says that anybody could join", err)
	}
}
