package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// secret is the master key of both systems.
var secret = []byte("the key of a benchmark, sixty-four bytes of it, which is the size")

// system is a process that speaks the protocol over plain HTTP.
type system struct {
	name, dir, path string
	port            string
	cmd             *exec.Cmd
	transport       *http.Transport
	client          *azcosmos.Client
	items           *azcosmos.ContainerClient // for creates and reads
	customers       *azcosmos.ContainerClient
}

func (s *system) endpoint() string { return "http://127.0.0.1:" + s.port }

func freePort(ctx context.Context) (string, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	return port, l.Close()
}

// start runs the process and waits until it answers.
func (s *system) start(ctx context.Context) (err error) {
	if s.port, err = freePort(ctx); err != nil {
		return err
	}
	key := base64.StdEncoding.EncodeToString(secret)
	switch s.name {
	case "millrace":
		nats, err := freePort(ctx)
		if err != nil {
			return err
		}
		s.cmd = exec.CommandContext(ctx, s.path, "up")
		s.cmd.Env = append(os.Environ(), "MILLRACE_DIR="+s.dir, "MILLRACE_NATS_PORT="+nats, "MILLRACE_HTTP_LISTEN=off",
			"MILLRACE_GATEWAY_LISTEN=127.0.0.1:"+s.port, "MILLRACE_GATEWAY_TLS=off", "MILLRACE_GATEWAY_KEYS_PRIMARY="+key)
	case bareName:
		s.cmd = exec.CommandContext(ctx, s.path)
		s.cmd.Env = append(os.Environ(), barePort+"="+s.port)
	default:
		s.cmd = exec.CommandContext(ctx, s.path, "-Host", "127.0.0.1", "-Port", s.port, "-DisableTls", "-LogLevel", "silent", "-AccountKey", key)
	}
	log, err := os.Create(s.dir + ".log")
	if err != nil {
		return err
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := errors.Join(s.cmd.Start(), log.Close()); err != nil {
		return err
	}
	var dialer net.Dialer
	for deadline := time.Now().Add(time.Minute); ; {
		conn, err := dialer.DialContext(ctx, "tcp", "127.0.0.1:"+s.port)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			said, _ := os.ReadFile(s.dir + ".log")
			return fmt.Errorf("%s does not listen: %w\n%s", s.name, err, said)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *system) stop() {
	_ = s.cmd.Process.Kill() // it may have ended already
	_ = s.cmd.Wait()
}

// prepare makes the containers and fills the one that is queried.
func (s *system) prepare(ctx context.Context, c *config) error {
	s.transport = &http.Transport{MaxIdleConnsPerHost: c.connections, MaxConnsPerHost: c.connections}
	if s.name == bareName {
		return nil
	}
	credential, err := azcosmos.NewKeyCredential(base64.StdEncoding.EncodeToString(secret))
	if err != nil {
		return err
	}
	s.client, err = azcosmos.NewClientWithKey(s.endpoint(), credential, &azcosmos.ClientOptions{
		ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: s.transport}},
	})
	if err != nil {
		return err
	}
	if _, err := s.client.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: "bench"}, nil); err != nil {
		return err
	}
	db, err := s.client.NewDatabase("bench")
	if err != nil {
		return err
	}
	for _, id := range []string{"items", "customers"} {
		if _, err := db.CreateContainer(ctx, azcosmos.ContainerProperties{
			ID: id, PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/pk"}, Version: 2},
			IndexingPolicy: &azcosmos.IndexingPolicy{
				Automatic: true, IndexingMode: azcosmos.IndexingModeConsistent, IncludedPaths: []azcosmos.IncludedPath{{Path: "/salesOrderCount/?"}},
				ExcludedPaths: []azcosmos.ExcludedPath{{Path: "/*"}},
			},
		}, nil); err != nil {
			return err
		}
	}
	if s.items, err = db.NewContainer("items"); err != nil {
		return err
	}
	if s.customers, err = db.NewContainer("customers"); err != nil {
		return err
	}
	for i := range c.customers {
		id := fmt.Sprint("c", i)
		body := fmt.Sprintf(`{"id":%q,"pk":%q,"type":"customer","salesOrderCount":%d,"text":%q}`, id, id, i*7919%1000, text[:300])
		if _, err := s.customers.CreateItem(ctx, azcosmos.NewPartitionKeyString(id), []byte(body), nil); err != nil {
			return err
		}
	}
	for i := range readable {
		if _, err := s.items.CreateItem(ctx, azcosmos.NewPartitionKeyString(readPK(i)), readBody(i), nil); err != nil {
			return err
		}
	}
	return nil
}

// tick is the unit of times in /proc on Linux.
const tick = 10 * time.Millisecond

// processorTime is what the process has used of the processors, as Linux counts it;
// 0 elsewhere.
func (s *system) processorTime() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), ") ") // behind the name
	fields := strings.Fields(rest)
	var sum time.Duration
	for _, i := range []int{11, 12} { // utime and stime
		if i < len(fields) {
			if n, err := strconv.ParseInt(fields[i], 10, 64); err == nil {
				sum += time.Duration(n) * tick
			}
		}
	}
	return sum
}
