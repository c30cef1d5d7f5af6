package remote

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/millrace/feed"
)

// idleMax is how many connections are kept for the next request.
const idleMax = 4096

// NewHTTPClient returns a client that trusts the certificates in ca too, a PEM file, and follows nobody elsewhere; or
// *ConfigError.
func NewHTTPClient(ca string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = idleMax, idleMax
	if ca != "" {
		data, err := os.ReadFile(ca)
		if err != nil {
			return nil, NewConfigError("read the certificate to trust: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(data) {
			return nil, NewConfigError("%s holds no certificate in PEM form", ca)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// probe asks for the account without a key, once. An endpoint answers that a key is
// needed, so what else may be wrong is told at once and by name.
func (c *Client) probe(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(bounded, http.MethodGet, c.endpoint+"/", nil)
	if err != nil {
		return NewConfigError("endpoint %s: %v", c.endpoint, err)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return c.translate(err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	switch resp.StatusCode {
	case http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return nil
	}
	line, _ := bufio.NewReader(io.LimitReader(resp.Body, 200)).ReadString('\n') // what there is of it
	return &UnreachableError{Endpoint: c.endpoint, Cause: fmt.Errorf("the answer is not of the Cosmos DB protocol: %s %s", resp.Status, strings.TrimSpace(line))}
}

// keyOf is the partition key that a request is about, in its context.
type keyOf struct{}

func withKey(ctx context.Context, key feed.PartitionKey) context.Context {
	if key.IsZero() {
		return ctx
	}
	return context.WithValue(ctx, keyOf{}, key)
}

// keyPolicy sets the header of the partition key. The SDK's own keys know no missing
// components and write some characters as JSON does not.
type keyPolicy struct{}

// Do sets the header on requests about items.
func (keyPolicy) Do(r *policy.Request) (*http.Response, error) {
	raw := r.Raw()
	if key, ok := raw.Context().Value(keyOf{}).(feed.PartitionKey); ok && strings.Contains(raw.URL.Path, "/docs") {
		raw.Header.Set("x-ms-documentdb-partitionkey", ascii(key.String()))
	}
	return r.Next()
}

// ascii escapes what a header cannot hold. Text outside of ASCII is only in strings of
// JSON.
func ascii(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < 0x7F:
			b.WriteRune(r)
		case r > 0xFFFF:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
