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
