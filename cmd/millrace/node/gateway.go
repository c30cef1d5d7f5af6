package node

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/millrace/millrace/store/gateway"
	"github.com/millrace/millrace/store/script"
)

// openGateway opens the listener of the Cosmos DB protocol.
func (n *Node) openGateway(ctx context.Context) error {
	cfg := n.cfg.Gateway
	// A node that is everything is what applications connect to. Stores that share
	// their work are told where and with which keys.
	if cfg.Listen == "" && n.roles.NATS {
		cfg.Listen = gateway.ListenDefault
	}
	if !n.roles.Store || cfg.Listen == "" || cfg.Listen == gateway.Off {
		return nil
	}
	cfg.Logger = n.log
	// It ends before its share of the stop is over: a client that holds a request must not make the
	// stop an unclean one.
	cfg.Drain = time.Duration(shareWork * 0.8 * float64(n.cfg.DrainTimeout))
	cfg.Users, cfg.Queries = n.users, n.queries
	cfg.Engine = n.scripts
	keys, err := n.openKeys()
	if err != nil {
		return err
	}
	server, err := gateway.New(n.client, keys, cfg)
	if err != nil {
		return err
	}
	n.gateway, err = server.Listen(ctx)
	return err
}

// openScripts makes the engine that runs scripts, for the gateway and for owners, if they are enabled. Its processes are this
// program again.
func (n *Node) openScripts() error {
	cfg := n.cfg.Gateway.Scripts
	if !cfg.Enabled {
		return nil
	}
	if len(cfg.Command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("gateway.scripts: the program that runs scripts: %w", err)
		}
		cfg.Command = []string{self}
	}
	var err error
	n.scripts, err = script.NewEngine(cfg)
	return err
}

// openKeys opens the master keys, with which applications sign and people sign in.
func (n *Node) openKeys() (*gateway.KeyRing, error) {
	if n.keys == nil {
		keys, err := gateway.OpenKeys(&n.cfg.Gateway, n.log)
		if err != nil {
			return nil, err
		}
		n.keys = keys
	}
	return n.keys, nil
}

// users names the pipelines that use a container.
func (n *Node) users(ctx context.Context, database, container string) ([]string, error) {
	records, err := n.registry.Users(ctx, database, container)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(records))
	for i := range records {
		names[i] = records[i].Name
	}
	return names, nil
}

// Gateway is where the Cosmos DB protocol is served; nil if it is off.
func (n *Node) Gateway() *gateway.Listener { return n.gateway }
