package node

import (
	"context"
	"log/slog"

	"github.com/millrace/millrace/cmd/millrace/console"
	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/cmd/millrace/internal/operator"
)

// openConsole opens the console of a store, on the listener of health and metrics. People sign in
// with the gateway's keys, which they send as they are: so off the loopback it is served with TLS
// alone.
func (n *Node) openConsole(context.Context) error {
	if !n.roles.Store || n.listener == nil {
		return nil
	}
	if !n.listener.loopback && n.listener.certificate == nil {
		n.log.Info("the console is not served off the loopback without TLS; millrace console shows it elsewhere", slog.String("listen", n.cfg.HTTP.Listen))
		return nil
	}
	keys, err := n.openKeys()
	if err != nil {
		n.log.Error("there is no console, because nobody could sign in", slog.Any("error", err))
		return nil // the store is worth more; a gateway says the same, and ends
	}
	looks := inspect.Config{
		JetStream: n.js, Client: n.client, Registry: n.registry, Replicas: ReplicasWish(n.cfg), Log: n.cfg.Feed.Log,
	}
	n.openOperator(looks)
	n.console = console.New(&console.Config{
		Inspect: looks,
		KeyRole: func(key string) console.Role {
			switch read, write := keys.Allows(key); {
			case write:
				return console.RoleWrite
			case read:
				return console.RoleRead
			}
			return console.RoleNone
		},
		Loopback: n.listener.loopback, Logger: n.log,
	})
	return nil
}

// openOperator opens what keys of operators allow, beside the console: they are sent as they are, too.
func (n *Node) openOperator(looks inspect.Config) {
	keys, err := operator.OpenKeys(operator.KeysPath(&n.cfg.Gateway), n.log)
	if err != nil {
		n.log.Error("keys of operators are not taken", slog.Any("error", err))
		return // the store is worth more
	}
	n.operator = operator.New(&operator.Config{Inspect: looks, Keys: keys, Logger: n.log})
}

// ConsoleURL is where the console is; "" if it is off.
func (n *Node) ConsoleURL() string {
	if n.console == nil {
		return ""
	}
	return n.URL() + "/"
}
