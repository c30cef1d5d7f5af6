//go:build linux

package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/millrace/millrace/integration/bench/anchor"
	"github.com/millrace/millrace/integration/bench/dataset"
)

// redisServer is Redis in a process of its own, which syncs its file before each answer. Each client has a connection. With json, a
// customer is a JSON string that the script decodes and encodes; else it is a hash with the count as a field, and its item is not
// written again.
type redisServer struct {
	server
	json    bool
	address string
	admin   *redis.Client
	script  *redis.Script
	clients []*redis.Client
}

const (
	redisHash = `redis.call('HSET', KEYS[1], 'item', ARGV[1])
return redis.call('HINCRBY', KEYS[2], 'salesOrderCount', 1)`
	redisJSON = `redis.call('SET', KEYS[1], ARGV[1])
local c = cjson.decode(redis.call('GET', KEYS[2]))
c.salesOrderCount = (c.salesOrderCount or 0) + 1
redis.call('SET', KEYS[2], cjson.encode(c))
return c.salesOrderCount`

	redisCountOfHash = `redis.call('HGET', k, 'salesOrderCount')`
	redisCountOfJSON = `cjson.decode(redis.call('GET', k)).salesOrderCount or 0`

	redisPage    = 1000 // customers of one round trip
	redisTimeout = 30 * time.Second
)

func (r *redisServer) open(ctx context.Context, dir string, shop *dataset.Shop) error {
	store := anchor.Redis
	if r.script = redis.NewScript(redisHash); r.json {
		store, r.script = anchor.RedisJSON, redis.NewScript(redisJSON)
	}
	program, err := lookUp(store, "redis-server", "redis-server")
	if err != nil {
		return err
	}
	host, port, err := freeAddress(ctx)
	if err != nil {
		return err
	}
	r.address = net.JoinHostPort(host, port)
	r.admin = r.dial()
	err = r.start(ctx, func() error { return r.admin.Ping(ctx).Err() }, program, "--port", port, "--bind", host, "--dir", dir, "--appendonly", "yes",
		"--appendfsync", "always", "--save", "", "--auto-aof-rewrite-percentage", "0", "--daemonize", "no", "--maxclients", "500")
	if err != nil {
		return err
	}
	if err := r.script.Load(ctx, r.admin).Err(); err != nil {
		return err
	}
	for from := 0; from < shop.Customers(); from += redisPage {
		_, err := r.admin.Pipelined(ctx, func(p redis.Pipeliner) error {
			for c := from; c < min(from+redisPage, shop.Customers()); c++ {
				if key, item := "c:"+shop.CustomerID(c), shop.AppendCustomer(nil, c); r.json {
					p.Set(ctx, key, item, 0)
				} else {
					p.HSet(ctx, key, "item", item, "salesOrderCount", 0)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *redisServer) dial() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: r.address, PoolSize: 1, MaxRetries: -1, ReadTimeout: redisTimeout, WriteTimeout: redisTimeout, DisableIdentity: true, Protocol: 2,
	})
}

func (r *redisServer) client(context.Context) (place, error) {
	c := r.dial()
	r.clients = append(r.clients, c)
	sha := r.script.Hash()
	return func(ctx context.Context, customer, order string, item []byte) error {
		return c.EvalSha(ctx, sha, []string{"o:" + order, "c:" + customer}, item).Err()
	}, nil
}

func (r *redisServer) totals(ctx context.Context) (orders, counted int64, err error) {
	count := redisCountOfHash
	if r.json {
		count = redisCountOfJSON
	}
	v, err := r.admin.Eval(ctx, `local n, sum = 0, 0
for _, k in ipairs(redis.call('KEYS', 'o:*')) do n = n + 1 end
for _, k in ipairs(redis.call('KEYS', 'c:*')) do sum = sum + (`+count+`) end
return {n, sum}`, nil).Int64Slice()
	if err != nil {
		return 0, 0, err
	}
	return v[0], v[1], nil
}

func (r *redisServer) close() error {
	var errs []error
	for _, c := range r.clients {
		errs = append(errs, c.Close())
	}
	if r.admin != nil {
		errs = append(errs, r.admin.Close())
	}
	r.stop()
	return errors.Join(errs...)
}
