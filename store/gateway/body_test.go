package gateway_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/integration/poll"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/gateway"
)

// A client that sends all of a body before it looks for an answer, as most do, gets
// the refusal of a body that is too large, and not a broken connection.
func TestListen_ABodyThatIsTooLargeGetsIts413(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	for _, mode := range []string{"on", gateway.Off} {
		l, _ := listen(t, w, gateway.Config{TLS: mode, Dir: t.TempDir()})
		for _, c := range []struct {
			name   string
			bytes  int
			chunks bool
			key    gateway.Key
			status int
		}{
			{"a byte too much", store.ItemBytesMax + 1, false, w.keys.Primary, 413},
			{"sixteen times too much", 16 * store.ItemBytesMax, false, w.keys.Primary, 413},
			{"of a length that is not told", 8 * store.ItemBytesMax, true, w.keys.Primary, 413},
			{"by a key that only reads", 8 * store.ItemBytesMax, false, w.keys.PrimaryReadOnly, 403},
			{"by a key that is none", 8 * store.ItemBytesMax, false, gateway.NewKeys().Primary, 401},
		} {
			t.Run("TLS "+mode+", "+c.name, func(t *testing.T) {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Address()+docs, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set(keyHeader, `["a"]`)
				sign(t, r, c.key)
				conn, err := net.Dial("tcp", l.Address())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }() // read to its end, or failed
				if mode == "on" {
					conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // the certificate is not what is tested
				}
				status, code := sendWhole(t, conn, r, `{"id":"1","pk":"a","text":"`+strings.Repeat("x", c.bytes-29)+`"}`, c.chunks)
				if status != c.status || code == "" {
					t.Errorf("status %d, code %q; want %d with a code", status, code, c.status)
				}
			})
		}
	}
}

// sendWhole sends a request to its last byte and only then reads.
func sendWhole(t *testing.T, conn net.Conn, r *http.Request, body string, chunks bool) (status int, code string) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	head := "POST " + docs + " HTTP/1.1\r\nHost: x\r\n"
	for name := range r.Header {
		head += name + ": " + r.Header.Get(name) + "\r\n"
	}
	if chunks {
		head += "Transfer-Encoding: chunked\r\n\r\n"
	} else {
		head += fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body))
	}
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	if chunks {
		out := httputil.NewChunkedWriter(conn)
		for piece := range strings.SplitSeq(body, "\n") {
			if _, err := io.WriteString(out, piece); err != nil {
				t.Fatalf("the body was not taken to its end: %v", err)
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		body = "\r\n"
	}
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatalf("the body was not taken to its end: %v", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), r)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	var answer struct{ Code string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer.Code
}

// Strangers cannot close the gateway: where all connections are of requests without a key whose bodies never
// come, who has a key gets a connection, and its body has its time.
func TestListen_StrangersWhoseBodiesNeverComeKeepNobodyOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	for _, mode := range []string{"on", gateway.Off} {
		const most = 4
		l, _ := listen(t, w, gateway.Config{
			TLS: mode, Dir: t.TempDir(), ConnectionsMax: most, BodyTimeout: time.Hour, AnswerTimeout: time.Hour,
		})
		// A client with a key is there before them, in the middle of its body.
		body := `{"id":"` + mode + `","pk":"a"}`
		known := dialRaw(t, l)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Address()+docs, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(keyHeader, `["a"]`)
		r.Header.Set("Expect", "100-continue")
		sign(t, r, w.key)
		known.send(head(r, len(body)))
		// Its headers have been read, and its key is known: the server asks for the body.
		if status := known.answer(nil); status != http.StatusContinue {
			t.Fatalf("status %d", status)
		}
		for range most - 1 {
			stranger := dialRaw(t, l)
			stranger.send("POST " + docs + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
			// Its request is at work until its body has come or its time is over.
			if status := stranger.answer(r); status != http.StatusUnauthorized {
				t.Fatalf("status %d", status)
			}
		}
		if err := get(t, w, trusting(t, l.Authority()), l.URL()); err != nil {
			t.Errorf("TLS %s: a client with a key is kept out: %v", mode, err)
		}
		known.send(body)
		if status := known.answer(r); status != http.StatusCreated {
			t.Errorf("TLS %s: status %d of a body that took its time", mode, status)
		}
	}
}

// Clients that do not take their answers hold neither all slots nor the room of bodies: one of them is cut off when
// somebody else asks, and the others get their answers whole when they take them.
func TestListen_ClientsThatTakeNothingKeepNobodyOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	for i := range 2 {
		w.ask("POST", docs, fmt.Sprintf(`{"id":"%d","pk":"a","text":"%s"}`, i, strings.Repeat("x", 3*store.ItemBytesMax/4)), keyHeader, `["a"]`).is(201)
	}
	const most, asked = 2, 8 // eight pages of 3 MiB are more than the network buffers
	for _, mode := range []string{"on", gateway.Off} {
		l, _ := listen(t, w, gateway.Config{TLS: mode, Dir: t.TempDir(), RequestsMax: most, AnswerTimeout: time.Hour, BodyTimeout: time.Hour})
		gateway.StallAfter(l, 50*time.Millisecond)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Address()+docs, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(keyHeader, `["a"]`)
		r.Header.Set(isQuery, "true")
		r.Header.Set("Content-Type", "application/query+json")
		sign(t, r, w.key)
		body := `{"query":"SELECT * FROM c"}` + strings.Repeat(" ", 1000)
		var clients []*raw
		for range most {
			c := dialRaw(t, l)
			c.send(strings.Repeat(head(r, len(body))+body, asked))
			clients = append(clients, c)
		}
		for end := time.Now().Add(2 * time.Minute); gateway.Stalled(l) < most; <-time.After(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("TLS %s: of %d answers that nobody takes %d wait", mode, most, gateway.Stalled(l))
			}
		}
		if bytes := gateway.Bodies(l); bytes != 0 {
			t.Errorf("TLS %s: requests whose answers wait keep %d bytes of bodies", mode, bytes)
		}
		for range 2 * most { // the slot that was taken over is given back, too
			if err := get(t, w, trusting(t, l.Authority()), l.URL()); err != nil {
				t.Fatalf("TLS %s: another client is kept out: %v", mode, err)
			}
		}
		if a, b := clients[0].whole(r, asked), clients[1].whole(r, asked); min(a, b) == asked || max(a, b) != asked {
			t.Errorf("TLS %s: of %d answers %d and %d were whole; one client is to be cut off", mode, asked, a, b)
		}
	}
}

// The answers that clients do not take have a bound in bytes: a read beyond it is refused while they are young, and takes
// the room of one when they have waited for long. A write is answered all the same.
func TestListen_AnswersThatNobodyTakesHaveRoomForSomeBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.container("things", byPK)
	big := strings.Repeat("x", 3*store.ItemBytesMax/4)
	for i := range 2 {
		w.ask("POST", docs, fmt.Sprintf(`{"id":"%d","pk":"a","text":"%s"}`, i, big), keyHeader, `["a"]`).is(201)
	}
	l, _ := listen(t, w, gateway.Config{TLS: gateway.Off, Dir: t.TempDir(), AnswersMax: 8 << 20, AnswerTimeout: time.Hour, BodyTimeout: time.Hour})
	gateway.StallAfter(l, time.Hour)
	request := func(query bool, body string) (*http.Request, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Address()+docs, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(keyHeader, `["a"]`)
		if query {
			r.Header.Set(isQuery, "true")
			r.Header.Set("Content-Type", "application/query+json")
		}
		sign(t, r, w.key)
		return r, head(r, len(body)) + body
	}
	r, text := request(true, `{"query":"SELECT * FROM c"}`)
	const held, asked = 2, 8 // two pages of 3 MiB have room, and a third has none
	for range held {
		dialRaw(t, l).send(strings.Repeat(text, asked)) // more than the network buffers
	}
	ask := func(r *http.Request, text string) (status int, retry string) {
		c := dialRaw(t, l)
		c.send(text)
		resp, err := http.ReadResponse(c.in, r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.StatusCode, resp.Header.Get("X-Ms-Retry-After-Ms")
	}
	poll.Until(t, func() error { // between two pages a client's room is free
		status, retry := ask(r, text)
		return poll.Unless(status == http.StatusTooManyRequests && retry != "", fmt.Sprintf("status %d of a page for which there is no room", status))
	})
	short, shorter := request(true, `{"query":"SELECT VALUE COUNT(1) FROM c"}`)
	if status, _ := ask(short, shorter); status != http.StatusOK {
		t.Errorf("status %d of a short answer beside them", status)
	}
	write, body := request(false, fmt.Sprintf(`{"id":"new","pk":"a","text":"%s"}`, big))
	if status, _ := ask(write, body); status != http.StatusCreated {
		t.Errorf("status %d of a write, whose item has no room in the answer", status)
	}
	gateway.StallAfter(l, 50*time.Millisecond)
	poll.Until(t, func() error {
		status, _ := ask(r, text)
		return poll.Unless(status == http.StatusOK, fmt.Sprintf("status %d where others have waited for long", status))
	})
}

// whole counts the answers that come whole, of so many.
func (c *raw) whole(r *http.Request, asked int) (n int) {
	c.t.Helper()
	if err := c.conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		c.t.Fatal(err)
	}
	for n < asked {
		resp, err := http.ReadResponse(c.in, r)
		if err != nil {
			return n
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return n
		}
		n++
	}
	return n
}

// raw is a connection of which a test says each byte.
type raw struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

// dialRaw opens a connection to l, with TLS where it has it.
func dialRaw(t *testing.T, l *gateway.Listener) *raw {
	t.Helper()
	conn, err := net.Dial("tcp", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if l.Authority() != "" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // the certificate is not what is tested
	}
	return &raw{t, conn, bufio.NewReader(conn)}
}

func (c *raw) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatal(err)
	}
}

// answer reads the head of the answer to r and returns its status.
func (c *raw) answer(r *http.Request) int {
	c.t.Helper()
	resp, err := http.ReadResponse(c.in, r)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.StatusCode
}

// head is what a request sends before a body of so many bytes.
func head(r *http.Request, bytes int) string {
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n", r.Method, r.URL.RequestURI(), bytes)
	for name := range r.Header {
		text += name + ": " + r.Header.Get(name) + "\r\n"
	}
	return text + "\r\n"
}
