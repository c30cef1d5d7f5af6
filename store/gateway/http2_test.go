package gateway_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/store/gateway"
)

// A client that offers HTTP/2 alone, as the SDK for Rust does at first, is told in that protocol that HTTP/1.1 is required. It gives up where
// there is no connection. One that offers both gets HTTP/1.1.
func TestListen_HTTP2IsToldThatHTTP1IsRequired(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	l, _ := listen(t, w, gateway.Config{TLS: "on", Dir: t.TempDir()})
	get := func(http1 bool) (*http.Response, error) {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(http1)
		protocols.SetHTTP2(true)
		transport := &http.Transport{
			Protocols:       protocols,
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // the certificate is not what is tested
		}
		defer transport.CloseIdleConnections()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Address()+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		return transport.RoundTrip(r)
	}
	answer, err := get(false)
	if err == nil {
		err = errors.Join(errors.New(answer.Status), answer.Body.Close())
	}
	if !strings.Contains(err.Error(), "HTTP_1_1_REQUIRED") {
		t.Errorf("HTTP/2 alone: %v", err)
	}
	answer, err = get(true)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		t.Error(err)
	}
	if answer.ProtoMajor != 1 || answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("both: %s %s", answer.Proto, answer.Status)
	}
}
