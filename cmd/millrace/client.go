package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/cmd/millrace/internal/operator"
	"github.com/millrace/millrace/cmd/millrace/internal/remote"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// client finds containers: over NATS, or at an endpoint of the Cosmos DB protocol.
type client interface {
	Container(ctx context.Context, database, name string) (container, error)
	// Containers lists those of a database.
	Containers(ctx context.Context, database string) ([]store.ContainerInfo, error)
	Create(ctx context.Context, database, name string, spec store.ContainerSpec) error
}

// itemReader reads the items of a container.
type itemReader interface {
	Info() store.ContainerInfo
	Read(ctx context.Context, key feed.PartitionKey, id string) (store.Item, error)
	// Items calls f with page after page.
	Items(ctx context.Context, s remote.Selection, f func([]store.Item) error) error
	// Count counts the items; 0 if that cannot be known.
	Count(ctx context.Context) (int, error)
}

// container is what commands do with a container, over either client.
type container interface {
	itemReader
	Upsert(ctx context.Context, body []byte) error
	// Put is Upsert, and with an etag the replacement of the item that has it: else 412, or
	// 404 if there is none. Delete looks at an etag likewise.
	Put(ctx context.Context, body []byte, etag string) (store.Item, error)
	Delete(ctx context.Context, key feed.PartitionKey, id, etag string) error
	Query(ctx context.Context, r store.QueryRequest) (*store.QueryPage, error)
	// Eventual is the container with reads that may lack the latest writes.
	Eventual() container
}

// endpointFlags say at which endpoint a command works; without one it is NATS.
type endpointFlags struct {
	url, keyFile   string
	envURL, envKey string // the variables in their place
	fromEnv        bool   // url is that of the environment
	consistency    string // of reads
}

// The environment variables of an endpoint of the Cosmos DB protocol, and of one that takes keys of operators.
const (
	envEndpoint         = "MILLRACE_ENDPOINT"
	envKey              = "MILLRACE_KEY"
	envOperatorEndpoint = "MILLRACE_OPERATOR_ENDPOINT"
	envOperatorKey      = "MILLRACE_OPERATOR_KEY"
)

// endpointHelp ends the help of commands that work over either client.
const endpointHelp = `

With --endpoint it works over the protocol of Azure Cosmos DB instead of NATS: at the
gateway of a Millrace node or any other endpoint, with its key in ` + envKey + ` or
--key-file, and with --ca the certificate to trust, which a node keeps in
DIR/gateway/ca.pem.`

// addEndpoint gives a command the flags of an endpoint.
func (a *app) addEndpoint(cmd *cobra.Command, f *endpointFlags) {
	cmd.Long += endpointHelp
	f.envURL, f.envKey = envEndpoint, envKey
	flags := cmd.Flags()
	flags.StringVar(&f.url, "endpoint", "", "URL of an endpoint of the Cosmos DB protocol, such as https://localhost:8081 ("+envEndpoint+")")
	f.addKey(cmd)
}

// operatorHelp ends the help of commands that work with the key of an operator.
const operatorHelp = `

With --endpoint it works with the key of an operator, which millrace keys create makes,
and needs no credentials for NATS: at http.listen of a store or of millrace up, with
its key in ` + envOperatorKey + ` or --key-file, and with --ca the certificate to trust,
which a node keeps in DIR/http/ca.pem. A key shows nothing of items.`

// addOperator gives a command the flags of an endpoint that takes keys of operators.
func (a *app) addOperator(cmd *cobra.Command, f *endpointFlags) {
	cmd.Long += operatorHelp
	f.envURL, f.envKey = envOperatorEndpoint, envOperatorKey
	flags := cmd.Flags()
	flags.StringVar(&f.url, "endpoint", "", "URL of http.listen of a node, such as https://store-1:8082 ("+envOperatorEndpoint+")")
	f.addKey(cmd)
}

func (f *endpointFlags) addKey(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.keyFile, "key-file", "", "file with the key of the endpoint (default "+f.envKey+")")
	flags.String("ca", "", "PEM file that signs the server's certificate (MILLRACE_CONNECT_CA), or the endpoint's")
}

// The values of --consistency.
const (
	readsStrong   = "strong"
	readsEventual = "eventual"
)

// addConsistency gives a command that reads the choice of what it must see.
func (a *app) addConsistency(cmd *cobra.Command, f *endpointFlags) {
	cmd.Flags().StringVar(&f.consistency, "consistency", readsStrong,
		"strong sees all that was written before; with eventual a standby may answer, which may lack the latest writes")
}

// resolve takes the endpoint of the environment if the command line names neither an
// endpoint nor a server, also not by the directory or the credentials of one.
func (f *endpointFlags) resolve(cmd *cobra.Command) error {
	if f.consistency != "" && f.consistency != readsStrong && f.consistency != readsEventual {
		return &usageError{fmt.Errorf("--consistency %s: %s or %s is expected", f.consistency, readsStrong, readsEventual)}
	}
	flags := cmd.Flags()
	server := flags.Changed("server")
	named := server || flags.Changed("dir") || flags.Changed("creds")
	switch {
	case f.url != "" && server:
		return &usageError{errors.New("--endpoint and --server: one of them is expected")}
	case f.url == "" && !named:
		f.url = os.Getenv(f.envURL)
		f.fromEnv = f.url != ""
	}
	if f.keyFile != "" && f.url == "" {
		return &usageError{errors.New("--key-file is the key of an endpoint; name that with --endpoint")}
	}
	return nil
}

// key reads the key of the endpoint. It is never on the command line, which others on
// the machine can see.
func (f *endpointFlags) key() (string, error) {
	if f.keyFile == "" {
		if key := strings.TrimSpace(os.Getenv(f.envKey)); key != "" {
			return key, nil
		}
		return "", &usageError{fmt.Errorf("endpoint %s: its key is expected in %s, or in a file named with --key-file", f.url, f.envKey)}
	}
	data, err := os.ReadFile(f.keyFile)
	if err != nil {
		return "", fmt.Errorf("read the key: %w", err)
	}
	if key := strings.TrimSpace(string(data)); key != "" {
		return key, nil
	}
	return "", &usageError{fmt.Errorf("--key-file %s is empty; a key is expected, such as millrace keys show primary prints", f.keyFile)}
}

// withClient runs work with a client of the endpoint, or over NATS if there is none.
func (a *app) withClient(cmd *cobra.Command, f *endpointFlags, work func(ctx context.Context, c client) error) error {
	if err := f.resolve(cmd); err != nil {
		return err
	}
	if f.consistency == readsEventual {
		strong := work
		work = func(ctx context.Context, c client) error { return strong(ctx, eventualClient{c}) }
	}
	if f.url == "" {
		return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error { return work(ctx, localClient{s}) })
	}
	return a.withRemote(cmd, f, func(ctx context.Context, c *remote.Client) error { return work(ctx, remoteClient{c}) })
}

// withRemote runs work with a client of the endpoint.
func (a *app) withRemote(cmd *cobra.Command, f *endpointFlags, work func(ctx context.Context, c *remote.Client) error) error {
	key, err := f.key()
	if err != nil {
		return err
	}
	c, err := remote.Open(cmd.Context(), remote.Config{Endpoint: f.url, Key: key, CA: cmd.Flag("ca").Value.String(), Timeout: a.timeout})
	if err != nil {
		return err
	}
	defer c.Close()
	return work(cmd.Context(), c)
}

// withOperator runs work with a client that shows the key of an operator, or else over NATS.
func (a *app) withOperator(cmd *cobra.Command, f *endpointFlags, work func(ctx context.Context, c *operator.Client) error, over func(ctx context.Context, s *session) error) error {
	if err := f.resolve(cmd); err != nil {
		return err
	}
	if f.url == "" {
		return a.withSession(cmd.Context(), over)
	}
	key, err := f.key()
	if err != nil {
		return err
	}
	c, err := operator.NewClient(operator.ClientConfig{Endpoint: f.url, Key: key, CA: cmd.Flag("ca").Value.String(), Timeout: a.timeout})
	if err != nil {
		return err
	}
	defer c.Close()
	return work(cmd.Context(), c)
}

// remoteClient is a client of an endpoint.
type remoteClient struct{ *remote.Client }

func (c remoteClient) Container(ctx context.Context, database, name string) (container, error) {
	ct, err := c.Client.Container(ctx, database, name)
	if err != nil {
		return nil, err
	}
	return remoteContainer{ct}, nil
}

// remoteContainer is a container of an endpoint.
type remoteContainer struct{ *remote.Container }

func (c remoteContainer) Eventual() container { return remoteContainer{c.Container.Eventual()} }

// eventualClient finds containers whose reads may lack the latest writes.
type eventualClient struct{ client }

func (c eventualClient) Container(ctx context.Context, database, name string) (container, error) {
	ct, err := c.client.Container(ctx, database, name)
	if err != nil {
		return nil, err
	}
	return ct.Eventual(), nil
}

// localClient is a client over NATS.
type localClient struct{ s *session }

func (c localClient) Container(ctx context.Context, database, name string) (container, error) {
	ct, err := c.s.client.Container(ctx, database, name)
	if err != nil {
		return nil, err
	}
	return localContainer{ct}, nil
}

func (c localClient) Containers(ctx context.Context, database string) ([]store.ContainerInfo, error) {
	return c.s.containers(ctx, database, "")
}

func (c localClient) Create(ctx context.Context, database, name string, spec store.ContainerSpec) error {
	_, err := c.s.client.Catalog().Create(ctx, database, name, spec)
	return err
}

// localContainer is a container over NATS.
type localContainer struct{ *store.Container }

func (c localContainer) Eventual() container { return localContainer{c.Container.Eventual()} }

func (c localContainer) Upsert(ctx context.Context, body []byte) error {
	_, err := c.Container.Upsert(ctx, body)
	return err
}

func (c localContainer) Put(ctx context.Context, body []byte, etag string) (store.Item, error) {
	match, err := store.ParseETag(etag)
	if err != nil {
		return store.Item{}, err
	}
	if match == (store.ETag{}) {
		return c.Container.Upsert(ctx, body)
	}
	id, _ := document.ID(body)
	return c.Replace(ctx, id, body, store.WriteOptions{IfMatch: match})
}

func (c localContainer) Delete(ctx context.Context, key feed.PartitionKey, id, etag string) error {
	match, err := store.ParseETag(etag)
	if err != nil {
		return err
	}
	return c.Container.Delete(ctx, key, id, store.WriteOptions{IfMatch: match})
}

func (c localContainer) Count(ctx context.Context) (int, error) { return countItems(ctx, c.Container) }

// Items reads the physical partitions one after the other.
func (c localContainer) Items(ctx context.Context, s remote.Selection, f func([]store.Item) error) error {
	request := store.Scan{ItemsMax: s.PageMax}
	partitions := c.Partitions()
	if !s.Key.IsZero() {
		request.Key = s.Key
		partitions = []feed.Partition{c.PartitionFor(s.Key)}
	}
	for _, p := range partitions {
		err := scan(ctx, c.Container, p, request, func(items []store.Item) error {
			if s.ID != "" {
				items = slices.DeleteFunc(items, func(item store.Item) bool { return item.ID != s.ID })
			}
			return f(items)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
