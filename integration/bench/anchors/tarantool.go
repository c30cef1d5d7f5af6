//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/integration/bench/anchor"
	"github.com/millrace/millrace/integration/bench/dataset"
)

// tarantool is Tarantool in a process of its own: items in memory, a log that is synced, and a stored function. Each client has a
// connection, or all share one on which their requests are under way together, as its drivers do.
type tarantool struct {
	server
	shared  bool
	address string
	admin   *iproto
	one     *iproto
	conns   []net.Conn
}

// tarantoolInit is the program that the server runs. The customer's item is a map, Tarantool's own form of JSON, and is updated by
// path; an order is a string.
const tarantoolInit = `
box.cfg{listen='%s', wal_mode='fsync', memtx_memory=4*1024*1024*1024, checkpoint_interval=0, work_dir='%s',
  readahead=1024*1024, net_msg_max=2048}
box.schema.user.grant('guest', 'super')
local json = require('json')
local c = box.schema.space.create('customer')
c:create_index('pk', {parts={{1, 'string'}}})
local o = box.schema.space.create('sales_order')
o:create_index('pk', {parts={{1, 'string'}, {2, 'string'}}})
function add(id, item)
  local t = json.decode(item)
  t.salesOrderCount = 0
  c:insert{id, t}
end
local plus = {{'+', '[2].salesOrderCount', 1}}
function place(cid, oid, item)
  box.begin()
  o:insert{cid, oid, item}
  c:update(cid, plus)
  box.commit()
end
function counts()
  local sum = 0
  for _, t in c:pairs() do sum = sum + t[2].salesOrderCount end
  return o:count(), sum
end
`

// loaders is the number of customers that are under way while they are stored.
const loaders = 64

func (t *tarantool) open(ctx context.Context, dir string, shop *dataset.Shop) error {
	store := anchor.Tarantool
	if t.shared {
		store = anchor.TarantoolShared
	}
	program, err := lookUp(store, "tarantool", "tarantool")
	if err != nil {
		return err
	}
	host, port, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	t.address = net.JoinHostPort(host, port)
	init := filepath.Join(dir, "init.lua")
	if err := os.WriteFile(init, fmt.Appendf(nil, tarantoolInit, t.address, dir), 0o600); err != nil {
		return err
	}
	err = t.start(ctx, func() (err error) {
		if t.admin == nil {
			if t.admin, err = dialIproto(ctx, t.address); err != nil {
				return err
			}
		}
		_, err = t.admin.call("counts")
		return err
	}, program, init)
	if err != nil {
		return err
	}
	var g errgroup.Group
	for l := range loaders {
		g.Go(func() error {
			for c := l; c < shop.Customers(); c += loaders {
				if _, err := t.admin.call("add", shop.CustomerID(c), string(shop.AppendCustomer(nil, c))); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (t *tarantool) client(ctx context.Context) (place, error) {
	if t.shared {
		if t.one == nil {
			var err error
			if t.one, err = dialIproto(ctx, t.address); err != nil {
				return nil, err
			}
		}
		return func(_ context.Context, customer, order string, item []byte) error {
			_, err := t.one.call("place", customer, order, string(item))
			return err
		}, nil
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	t.conns = append(t.conns, conn)
	r := bufio.NewReader(conn)
	if _, err := r.Discard(greeting); err != nil {
		return nil, err
	}
	var request, reply []byte
	return func(_ context.Context, customer, order string, item []byte) error {
		request = appendCall(request[:0], 1, "place", customer, order, string(item))
		if _, err := conn.Write(request); err != nil {
			return err
		}
		var err error
		if reply, err = readFrame(r, reply); err != nil {
			return err
		}
		_, _, err = parseReply(reply)
		return err
	}, nil
}

func (t *tarantool) totals(context.Context) (orders, counted int64, err error) {
	body, err := t.admin.call("counts")
	if err != nil {
		return 0, 0, err
	}
	v, err := parseCounts(body)
	return v[0], v[1], err
}

func (t *tarantool) close() error {
	var errs []error
	for _, c := range t.conns {
		errs = append(errs, c.Close())
	}
	for _, c := range []*iproto{t.one, t.admin} {
		if c != nil {
			errs = append(errs, c.conn.Close())
		}
	}
	t.stop()
	return errors.Join(errs...)
}
