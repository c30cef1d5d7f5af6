package gateway_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store/gateway"
)

// crowd is how many connections the test of a crowd opens; 10000 is the promise.
var crowd = flag.Int("crowd", 400, "idle connections of the test of a crowd; a fiftieth of them are slow ones")

// listen puts a server on the network and stops it at the end of the test.
func listen(t *testing.T, w *world, cfg gateway.Config) (l *gateway.Listener, stop func()) {
	t.Helper()
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	cfg.Logger = quiet
	ring, err := gateway.OpenKeys(&gateway.Config{Keys: w.keys}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	server, err := gateway.New(w.client, ring, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if l, err = server.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, l.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return l, stop
}

// get sends a signed request for the databases.
func get(t *testing.T, w *world, client *http.Client, endpoint string) error {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, endpoint+"/dbs", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	sign(t, r, w.key)
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// trusting is a client that trusts a certificate file and nothing else.
func trusting(t *testing.T, file string) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	if file != "" {
		data, err := os.ReadFile(file)
		if err != nil || !pool.AppendCertsFromPEM(data) {
			t.Fatalf("certificate %s: %v", file, err)
		}
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

func TestListen_AddressInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	ring, err := gateway.OpenKeys(&gateway.Config{Keys: w.keys}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	server, err := gateway.New(w.client, ring, gateway.Config{Listen: taken.Addr().String(), TLS: gateway.Off, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Listen(t.Context()); !isAddressError(err) || !strings.Contains(err.Error(), taken.Addr().String()) {
		t.Errorf("got %v", err)
	}
}

func isAddressError(err error) bool {
	_, ok := errors.AsType[*gateway.AddressError](err)
	return ok
}

// Many idle connections, and slow ones that send their requests a byte at a time,
// do not stop a writer. Slow ones are cut off.
func TestListen_ACrowdDoesNotStopAWriter(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	l, _ := listen(t, w, gateway.Config{TLS: gateway.Off, ConnectionsMax: *crowd/2 + *crowd/50 + 10, HeaderTimeout: 3 * time.Second, BodyTimeout: 4 * time.Second})
	endpoint := "http://" + l.Address()
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", l.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	for range *crowd {
		dial() // half of them do not fit: the server closes those that are idle longest
	}
	var slow []net.Conn
	for i := range max(*crowd/50, 4) {
		conn := dial()
		slow = append(slow, conn)
		text := "POST " + docs + " HTTP/1.1\r\nHost: x\r\nX-Slow: "
		if i%2 == 0 { // signed, and the body never ends
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint+docs, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			sign(t, r, w.key)
			text = fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nx-ms-date: %s\r\nauthorization: %s\r\n\r\n{", docs,
				r.Header.Get("x-ms-date"), r.Header.Get("authorization"))
		}
		if _, err := conn.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	writer := &http.Client{Timeout: 20 * time.Second}
	for i := range 50 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint+docs, strings.NewReader(fmt.Sprintf(`{"id":"%d","pk":"a"}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		sign(t, r, w.key)
		resp, err := writer.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("write %d: status %d", i, resp.StatusCode)
		}
	}
	for _, conn := range slow {
		if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(conn) // until the server closes it
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			t.Fatalf("a slow connection is still open: %q", data)
		}
	}
}

// Requests beyond those that may be carried out at once are told to come again, and
// nothing is done of them.
func TestServer_TooManyRequests(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	hold := func(context.Context, string, string) ([]string, error) {
		close(arrived)
		<-release
		return []string{"a pipeline"}, nil
	}
	w := newWorld(t, gateway.Config{RequestsMax: 1, Users: hold})
	w.container("things", byPK)
	var held sync.WaitGroup
	held.Go(func() { w.ask("DELETE", "/dbs/shop/colls/things", "").is(409) })
	<-arrived
	a := w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`).is(429, "3200")
	if a.header.Get("x-ms-retry-after-ms") == "" {
		t.Error("no word of when to come again")
	}
	close(release)
	held.Wait()
	w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(404)
	w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`).is(201)
}

// Bodies that are sent slowly take no more memory than they may: who comes when they
// have taken it is told to come again, and is served when there is room.
func TestListen_TooManyBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	l, _ := listen(t, w, gateway.Config{TLS: gateway.Off, BodiesMax: 8 << 20})
	send := func(body io.Reader, bytes int64) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Address()+docs, body)
		if err != nil {
			return nil, err
		}
		r.ContentLength = bytes
		r.Header.Set(keyHeader, `["a"]`)
		sign(t, r, w.key)
		return http.DefaultClient.Do(r)
	}
	const slow, bytes = 5, 2 << 20 // of which all but the last byte is sent at once
	var hold []*io.PipeWriter
	statuses := make(chan int, slow)
	for i := range slow {
		in, out := io.Pipe()
		hold = append(hold, out)
		item := fmt.Sprintf(`{"id":"%d","pk":"a","text":"%s"}`, i, strings.Repeat("x", bytes-len(`{"id":"0","pk":"a","text":""}`)))
		go func() { _, _ = io.WriteString(out, item[:bytes-1]) }() // it may be refused meanwhile
		go func() {
			resp, err := send(in, bytes)
			if err != nil {
				statuses <- 0 // cut off in the middle of its body
				return
			}
			_ = resp.Body.Close()
			statuses <- resp.StatusCode
		}()
	}
	refused := <-statuses // nobody can have been served: no body is whole
	if refused != http.StatusTooManyRequests && refused != 0 {
		t.Fatalf("status %d", refused)
	}
	for _, out := range hold {
		_, _ = io.WriteString(out, "}") // it may be refused
		_ = out.Close()
	}
	served := 0
	for range slow - 1 {
		if <-statuses == http.StatusCreated {
			served++
		}
	}
	if served < 2 {
		t.Errorf("%d of the slow ones were served", served)
	}
	resp, err := send(strings.NewReader(`{"id":"small","pk":"a"}`), int64(len(`{"id":"small","pk":"a"}`)))
	if err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%+v, %v; want 201 when there is room again", resp, err)
	}
	_ = resp.Body.Close()
}

// A connection that has sent nothing does not hold up the end of a server.
func TestListen_EndsBesideSilentConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	for _, tls := range []string{"on", gateway.Off} {
		l, stop := listen(t, w, gateway.Config{TLS: tls, Dir: t.TempDir(), Drain: 2 * time.Minute})
		conn, err := net.Dial("tcp", l.Address())
		if err != nil {
			t.Fatal(err)
		}
		if err := get(t, w, trusting(t, l.Authority()), l.URL()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		stop()
		if took := time.Since(began); took > time.Minute { // it would be two
			t.Errorf("TLS %s: to stop took %s", tls, took)
		}
		_ = conn.Close()
	}
}

// A request that its client does not end holds up the end of a server for as long as is configured.
func TestListen_EndsBesideARequestThatIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	l, stop := listen(t, w, gateway.Config{TLS: gateway.Off, Drain: 100 * time.Millisecond, BodyTimeout: 2 * time.Minute})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, l.URL()+docs, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	sign(t, r, w.key)
	c := dialRaw(t, l)
	c.send(head(r, 100) + "{")
	poll.Until(t, func() error { return poll.Unless(gateway.Bodies(l) > 0, "the body is not being read yet") })
	began := time.Now()
	stop()
	if took := time.Since(began); took > time.Minute { // it would be two
		t.Errorf("to stop took %s", took)
	}
}

// The time that a body has to come says nothing of the request behind it.
func TestListen_ARequestLastsLongerThanItsBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.stopOwners()
	l, _ := listen(t, w, gateway.Config{TLS: gateway.Off, BodyTimeout: 5 * time.Second, RequestTimeout: 15 * time.Second})
	for method, body := range map[string]string{http.MethodPost: `{"id":"1","pk":"a"}`, http.MethodGet: ""} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			r, err := http.NewRequestWithContext(t.Context(), method, l.URL()+docs, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(keyHeader, `["a"]`)
			sign(t, r, w.key)
			began := time.Now()
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			// It waits for an owner, nearly to the end of its own time.
			if took := time.Since(began); resp.StatusCode != http.StatusServiceUnavailable || took < 8*time.Second {
				t.Errorf("%d after %s, want 503 after more than eight seconds", resp.StatusCode, took)
			}
		})
	}
}

// Without an owner of its partition a write is refused as unavailable, to be tried
// again; it works when there is one.
func TestServer_NoOwner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.stopOwners()
	w.serve(gateway.Config{RequestTimeout: 5 * time.Second})
	a := w.ask("POST", docs, `{"id":"1","pk":"a"}`, keyHeader, `["a"]`).is(503)
	if a.header.Get("x-ms-retry-after-ms") == "" {
		t.Error("no word of when to come again")
	}
	w.ask("GET", docs+"/1", "", keyHeader, `["a"]`).is(503)
	all := w.ask("POST", docs, `[{"operationType":"Create","partitionKey":"[\"a\"]","resourceBody":{"id":"1","pk":"a"}}]`, isBatch, "true", atomic, "false", goesOn, "true").is(207).outcomes(503)
	if all[0].RequestCharge <= 0 {
		t.Errorf("%+v", all)
	}
}

// What is too much of a request is refused while it comes, in bytes and headers.
func TestListen_LimitsOfARequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	l, _ := listen(t, w, gateway.Config{TLS: gateway.Off})
	conn, err := net.Dial("tcp", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // it may be closed already
	go func() {
		_, _ = io.WriteString(conn, "GET /dbs HTTP/1.1\r\nHost: x\r\nX-Large: "+strings.Repeat("x", 200<<10)+"\r\n\r\n") // it may be cut off
	}()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
	// Of an unknown sender's body nothing is read.
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Address()+docs, io.LimitReader(endless{}, 1<<30))
	if err != nil {
		t.Fatal(err)
	}
	resp, err = http.DefaultClient.Do(r)
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
}

// endless gives spaces for ever.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// A request that is under way when the server stops is answered.
func TestListen_StopFinishesRequests(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	hold := func(context.Context, string, string) ([]string, error) {
		close(arrived)
		<-release
		return []string{"a pipeline"}, nil
	}
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	l, stop := listen(t, w, gateway.Config{TLS: gateway.Off, Users: hold})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+l.Address()+"/dbs/shop/colls/things", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	sign(t, r, w.key)
	status := make(chan int, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		_ = resp.Body.Close()
		status <- resp.StatusCode
	}()
	<-arrived
	var stopping sync.WaitGroup
	stopping.Go(stop)
	close(release)
	if got := <-status; got != http.StatusConflict {
		t.Errorf("status %d", got)
	}
	stopping.Wait()
}

// A listener that the network gives up ends with an error, and does not wait for
// somebody to stop it.
func TestListen_EndsWithItsNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	ring, err := gateway.OpenKeys(&gateway.Config{Keys: w.keys}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	server, err := gateway.New(w.client, ring, gateway.Config{Listen: "127.0.0.1:0", TLS: gateway.Off, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	l, err := server.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run(t.Context()) }()
	if err := get(t, w, http.DefaultClient, "http://"+l.Address()); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("it still runs")
	}
}

// lines are what is logged.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// A panic is an answer to the client and an error in the log, and frees its place.
func TestServer_Panic(t *testing.T) {
	t.Parallel()
	log := make(lines, 8)
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	w.serve(gateway.Config{
		RequestsMax: 1, Logger: slog.New(slog.NewTextHandler(log, nil)),
		Users: func(context.Context, string, string) ([]string, error) { panic("nobody knows") },
	})
	for range 2 {
		a := w.ask("DELETE", "/dbs/shop/colls/things", "").is(500)
		if text := <-log; !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "nobody knows") || !strings.Contains(text, a.header.Get("x-ms-activity-id")) {
			t.Errorf("logged: %s", text)
		}
	}
	w.ask("GET", "/dbs/shop/colls/things", "").is(200)
}
