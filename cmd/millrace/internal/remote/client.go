package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

const (
	timeoutDefault = 10 * time.Second
	// triesMax bounds the retries of the SDK for one request, within the timeout.
	triesMax = 5
	// pauseMax bounds the pause between two tries of a request.
	pauseMax = time.Second
)

// Config says where an endpoint is and how to speak to it.
type Config struct {
	// Endpoint is the URL of the account, such as https://localhost:8081, without a
	// path.
	Endpoint string
	// Key is a master key, in base64.
	Key string
	// CA is a PEM file of certificates to trust beside those of the system. "" is
	// none.
	CA string
	// Timeout is how long a request may take, with all its tries. Default 10s.
	Timeout time.Duration
}

// Client speaks to one endpoint.
type Client struct {
	endpoint string
	timeout  time.Duration
	http     *http.Client
	sdk      *azcosmos.Client
}

// Open asks the endpoint for a sign of life and returns a client of it. The error is
// a *ConfigError if cfg is wrong, an *UnreachableError or a *TrustError. Callers close
// the client. A wrong key shows at the first request.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	c := &Client{endpoint: strings.TrimSuffix(cfg.Endpoint, "/"), timeout: cfg.Timeout}
	if c.timeout <= 0 {
		c.timeout = timeoutDefault
	}
	if err := CheckEndpoint(c.endpoint); err != nil {
		return nil, err
	}
	credential, err := azcosmos.NewKeyCredential(cfg.Key)
	if err != nil {
		// The cause may hold a part of the key.
		return nil, NewConfigError("the key is not one of an account: base64 is expected, such as millrace keys show primary prints")
	}
	if c.http, err = NewHTTPClient(cfg.CA); err != nil {
		return nil, err
	}
	c.sdk, err = azcosmos.NewClientWithKey(c.endpoint, credential, &azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{
		Transport:       c.http,
		Telemetry:       policy.TelemetryOptions{ApplicationID: "millrace"},
		Retry:           policy.RetryOptions{MaxRetries: triesMax, RetryDelay: 100 * time.Millisecond, MaxRetryDelay: pauseMax},
		PerCallPolicies: []policy.Policy{keyPolicy{}},
	}})
	if err != nil {
		return nil, NewConfigError("endpoint %s: %v", c.endpoint, err)
	}
	if err := c.probe(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// CheckEndpoint returns a *ConfigError unless endpoint is the URL of one, without a path.
func CheckEndpoint(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.Path != "" || u.RawQuery != "" || u.User != nil {
		return NewConfigError("endpoint %s: a URL such as https://localhost:8081 is expected", endpoint)
	}
	return nil
}

// Close frees the connections. It may be called twice.
func (c *Client) Close() {
	c.sdk.Close()
	c.http.CloseIdleConnections()
}

// Container finds a container; *NoContainerError if there is none.
func (c *Client) Container(ctx context.Context, database, name string) (*Container, error) {
	sdk, err := c.sdk.NewContainer(database, name)
	if err != nil {
		return nil, NewConfigError("container %s/%s: %v", database, name, err)
	}
	var properties azcosmos.ContainerProperties
	err = c.do(ctx, func(ctx context.Context) error {
		resp, err := sdk.Read(ctx, nil)
		if err == nil {
			properties = *resp.ContainerProperties
		}
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, &NoContainerError{Endpoint: c.endpoint, Database: database, Name: name}
	}
	if err != nil {
		return nil, fmt.Errorf("container %s/%s: %w", database, name, err)
	}
	ct := &Container{client: c, sdk: sdk, info: c.info(database, &properties)}
	for _, p := range ct.info.Spec.PartitionKey {
		path, err := document.ParsePointer(p)
		if err != nil {
			return nil, fmt.Errorf("container %s/%s: partition key %s: %w", database, name, p, err)
		}
		ct.paths = append(ct.paths, path)
	}
	return ct, nil
}

// info tells of a container what the protocol tells. Its id is of this endpoint, so
// that no other container has it.
func (c *Client) info(database string, p *azcosmos.ContainerProperties) store.ContainerInfo {
	return store.ContainerInfo{
		Database: database, Name: p.ID, ID: feed.ResourceID(p.ResourceID + "@" + c.endpoint), State: store.ContainerReady,
		Spec: store.ContainerSpec{PartitionKey: p.PartitionKeyDefinition.Paths},
	}
}

// Containers lists the containers of a database, none if there is no database.
func (c *Client) Containers(ctx context.Context, database string) ([]store.ContainerInfo, error) {
	db, err := c.sdk.NewDatabase(database)
	if err != nil {
		return nil, NewConfigError("database %s: %v", database, err)
	}
	var infos []store.ContainerInfo
	for pages := db.NewQueryContainersPager("SELECT * FROM c", nil); pages.More(); {
		err := c.do(ctx, func(ctx context.Context) error {
			page, err := pages.NextPage(ctx)
			for i := range page.Containers {
				infos = append(infos, c.info(database, &page.Containers[i]))
			}
			return err
		})
		if errors.Is(err, store.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list the containers of database %s: %w", database, err)
		}
	}
	return infos, nil
}

// Create makes a container with the partition key of spec, and its database if need
// be. One that is there already, or was made meanwhile, is store.ErrConflict.
func (c *Client) Create(ctx context.Context, database, name string, spec store.ContainerSpec) error {
	db, err := c.sdk.NewDatabase(database)
	if err != nil {
		return NewConfigError("database %s: %v", database, err)
	}
	err = c.do(ctx, func(ctx context.Context) error {
		_, err := c.sdk.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: betweenQuotes(database)}, nil)
		return err
	})
	if err != nil && !errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("create database %s: %w", database, err)
	}
	kind := azcosmos.PartitionKeyKindHash
	if len(spec.PartitionKey) > 1 {
		kind = azcosmos.PartitionKeyKindMultiHash
	}
	properties := azcosmos.ContainerProperties{
		ID: betweenQuotes(name), PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: spec.PartitionKey, Kind: kind, Version: 2},
	}
	err = c.do(ctx, func(ctx context.Context) error {
		_, err := db.CreateContainer(ctx, properties, nil)
		return err
	})
	if err != nil {
		return fmt.Errorf("create container %s/%s: %w", database, name, err)
	}
	return nil
}

// betweenQuotes escapes a name for the SDK, which writes that of what is made between two quotes as it is.
func betweenQuotes(name string) string {
	quoted := document.AppendQuote(nil, name)
	return string(quoted[1 : len(quoted)-1])
}

// do sends a request, again while the endpoint is unavailable, for the timeout in
// all, and translates its error.
func (c *Client) do(ctx context.Context, send func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var last error
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(50*time.Millisecond),
		backoff.WithMaxInterval(pauseMax), backoff.WithMaxElapsedTime(0))
	err := backoff.Retry(func() error {
		err := c.translate(send(bounded))
		if errors.Is(err, store.ErrUnavailable) && bounded.Err() == nil {
			last = err
			return err
		}
		return backoff.Permanent(err)
	}, backoff.WithContext(pauses, bounded))
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case bounded.Err() != nil && last != nil:
		return last // which says more than that the time is over
	case errors.Is(err, context.DeadlineExceeded):
		return c.translate(err)
	}
	return err
}
