package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/remote"
	"github.com/millrace/millrace/pipelines/plan"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/pipelines/status"
	"github.com/millrace/millrace/pipelines/verify"
)

// answerMax bounds the bytes of an answer that are read.
const answerMax = 256 << 20

// ClientConfig says where a Server is and which key to show.
type ClientConfig struct {
	// Endpoint is the URL of http.listen of a node, such as https://store-1:8082, without a path. Without TLS it
	// must be on the loopback: the key would cross the network readably.
	Endpoint string
	// Key is that of an operator.
	Key string
	// CA is a PEM file of certificates to trust beside those of the system. "" is none.
	CA string
	// Timeout is how long a status may take. What reads items takes as long as it takes. Default 10s.
	Timeout time.Duration
}

// KeyError says that an endpoint does not take the key, or not for what was asked.
type KeyError struct{ Endpoint, Message string }

func (e *KeyError) Error() string { return fmt.Sprintf("%s refuses: %s", e.Endpoint, e.Message) }

// AnswerError is an answer that says nothing about declarations.
type AnswerError struct{ Endpoint, Message string }

func (e *AnswerError) Error() string { return fmt.Sprintf("%s answers: %s", e.Endpoint, e.Message) }

// Client asks a Server. The errors of its methods are those of what the Server does; *KeyError,
// *remote.UnreachableError, *remote.TrustError; and *AnswerError.
type Client struct {
	cfg  ClientConfig
	http *http.Client
}

// NewClient returns a client of a Server, or *remote.ConfigError. Callers close it.
func NewClient(cfg ClientConfig) (*Client, error) {
	cfg.Endpoint = strings.TrimSuffix(cfg.Endpoint, "/")
	if err := remote.CheckEndpoint(cfg.Endpoint); err != nil {
		return nil, err
	}
	if u, err := url.Parse(cfg.Endpoint); err != nil || u.Scheme != "https" && !loopback(u.Hostname()) {
		return nil, remote.NewConfigError("endpoint %s: without TLS the key would cross the network readably; https:// is expected", cfg.Endpoint)
	}
	if strings.ContainsFunc(cfg.Key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, remote.NewConfigError("the key is none of an operator, such as millrace keys create prints")
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 10 * time.Second
	}
	client, err := remote.NewHTTPClient(cfg.CA)
	if err != nil {
		return nil, err
	}
	return &Client{cfg, client}, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Close frees the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status tells where all pipelines stand, or one.
func (c *Client) Status(ctx context.Context, of ...spec.Metadata) (*status.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	path := pathStatus
	if len(of) > 0 {
		path += "?" + url.Values{"database": {of[0].Database}, "pipeline": {of[0].Name}}.Encode()
	}
	var st status.Status
	if err := c.do(ctx, http.MethodGet, path, nil, &st); err != nil {
		return nil, err
	}
	for i := range st.Pipelines {
		p := &st.Pipelines[i]
		if p.Backfill != nil {
			p.Backfill.ETA = seconds(p.Backfill.Seconds)
		}
		for j := range p.FanOuts {
			p.FanOuts[j].ETA = seconds(p.FanOuts[j].Seconds)
		}
	}
	return &st, nil
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// Verify compares copies with their sources.
func (c *Client) Verify(ctx context.Context, asked VerifyRequest) (*verify.Report, error) {
	var report verify.Report
	if err := c.do(ctx, http.MethodPost, pathVerify, asked, &report); err != nil {
		return nil, err
	}
	report.Duration = seconds(report.Seconds)
	return &report, nil
}

// Plan tells what Apply would do.
func (c *Client) Plan(ctx context.Context, d *Declaration) (*plan.Plan, error) {
	var p plan.Plan
	if err := c.do(ctx, http.MethodPost, pathPlan, d, &p); err != nil {
		return nil, err
	}
	p.Duration = seconds(p.Seconds)
	return &p, nil
}

// Apply makes pipelines be as declared. What stands in the outcomes was done, also beside an error.
func (c *Client) Apply(ctx context.Context, d *Declaration) ([]registry.Outcome, error) {
	var done applied
	err := c.do(ctx, http.MethodPost, pathApply, d, &done)
	return done.Applied, err
}

// do sends a request and decodes the answer, also one with an error into what it has of v.
func (c *Client) do(ctx context.Context, method, path string, asked, v any) error {
	body := io.Reader(http.NoBody)
	if asked != nil {
		data, err := json.Marshal(asked)
		if err != nil {
			return fmt.Errorf("ask %s: %w", c.cfg.Endpoint, err)
		}
		body = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.cfg.Endpoint+path, body)
	if err != nil {
		return remote.NewConfigError("endpoint %s: %v", c.cfg.Endpoint, err)
	}
	r.Header.Set("Authorization", "Bearer "+c.cfg.Key)
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(r)
	if err != nil {
		return remote.TransportError(c.cfg.Endpoint, c.cfg.Timeout, err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(resp.Body, answerMax))
	if err != nil {
		return remote.TransportError(c.cfg.Endpoint, c.cfg.Timeout, err)
	}
	var refused failed
	if resp.StatusCode != http.StatusOK {
		if json.Unmarshal(data, &refused) != nil || refused.Error == nil {
			return &remote.UnreachableError{Endpoint: c.cfg.Endpoint, Cause: fmt.Errorf(
				"it answers %s, and keys of operators are not taken there: the console's listener of a store, http.listen, is expected, on the loopback or with TLS", resp.Status)}
		}
		if done, ok := v.(*applied); ok {
			_ = json.Unmarshal(data, done) // it was read a moment ago
		}
		return refused.Error.err(c.cfg.Endpoint)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return &remote.UnreachableError{Endpoint: c.cfg.Endpoint, Cause: errors.New("the answer is not one of Millrace, or of a later release")}
	}
	return nil
}
