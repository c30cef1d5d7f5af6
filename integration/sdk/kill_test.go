package sdk_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// Writers write through the SDK while the process is killed and started again. What
// the SDK said was written must be there, whole batches or nothing, and the SDK goes
// on by itself.
func TestGo_KilledUnderLoad(t *testing.T) {
	rounds := 3
	if *long {
		rounds = 15
	}
	s := start(t, false)
	db := s.database(t)
	c := container(t, db, azcosmos.ContainerProperties{}, "/pk")
	const writers = 8
	var stop atomic.Bool
	var acknowledged [writers]int // the number n of the last batch of each writer
	var written atomic.Int64
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			key := fmt.Sprint("w", w)
			for n := 1; !stop.Load(); n++ {
				for {
					b := c.NewTransactionalBatch(pk(key))
					b.UpsertItem(object{"id": "head", "pk": key, "n": n}.json(), nil)
					b.UpsertItem(object{"id": fmt.Sprint("item", n), "pk": key, "n": n}.json(), nil)
					resp, err := c.ExecuteTransactionalBatch(t.Context(), b, nil)
					if err == nil && resp.Success {
						break
					}
					if err == nil { // an upsert is never refused
						t.Errorf("batch %d of %s: %+v", n, key, resp.OperationResults)
						return
					}
					if t.Context().Err() != nil {
						return
					}
				}
				acknowledged[w] = n
				written.Add(1)
			}
		})
	}
	var byNode atomic.Int64
	script := writeByNode(t, s, db.ID(), &byNode)
	goOn := func() {
		t.Helper()
		before, beforeNode := written.Load(), byNode.Load()
		eventually(t, func() (bool, string) { return written.Load() >= before+writers, "the writers in Go do not go on" })
		eventually(t, func() (bool, string) {
			return script == nil || byNode.Load() > beforeNode, "the writer in JavaScript does not go on"
		})
	}
	for range rounds {
		goOn()
		s.Kill()
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
	}
	goOn()
	stop.Store(true)
	writing.Wait()
	if script != nil {
		told := script()
		items := query(t, c, pk("js"), "SELECT VALUE c.n FROM c WHERE c.id != 'head'", 0)
		if len(items) < told || told == 0 {
			t.Errorf("the writer in JavaScript was told %d batches and there are %d items", told, len(items))
		}
		t.Logf("%d batches acknowledged in JavaScript", told)
	}
	total := 0
	for w := range writers {
		key := pk(fmt.Sprint("w", w))
		read, err := c.ReadItem(t.Context(), key, "head", nil)
		must(t, err)
		head := int(parse(t, read.Value)["n"].(float64))
		items := query(t, c, key, "SELECT VALUE c.n FROM c WHERE c.id != 'head'", 0)
		if head < acknowledged[w] || len(items) != head {
			t.Errorf("writer %d was told %d batches, the head says %d and there are %d items", w, acknowledged[w], head, len(items))
		}
		total += acknowledged[w]
	}
	t.Logf("%d batches acknowledged over %d kills", total, rounds)
	// The feed shows each item once, in whole batches: the last one of each writer
	// with its head.
	if got := strings.Fields(follow(t, c, azcosmos.ChangeFeedOptions{}).rest()); len(got) < total+writers {
		t.Errorf("the change feed shows %d items, at least %d were written", len(got), total+writers)
	}
}

// writeByNode writes with the JavaScript SDK until the function that it returns is
// called, which tells the last batch that the SDK said was written; nil if there is
// no SDK.
func writeByNode(t *testing.T, s *server, database string, written *atomic.Int64) func() int {
	t.Helper()
	if err := packages(); err != nil {
		t.Logf("@azure/cosmos cannot be had, nothing is written with it: %v", err)
		return nil
	}
	cmd := exec.CommandContext(t.Context(), "node", "writer.js")
	cmd.Dir = "js"
	cmd.Env = append(os.Environ(), "MILLRACE_ENDPOINT="+s.endpoint, "MILLRACE_KEY="+masterKey, "MILLRACE_DATABASE="+database)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	must(t, cmd.Start())
	last := make(chan int, 1)
	go func() {
		n := 0
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if v, err := strconv.Atoi(lines.Text()); err == nil {
				n = v
				written.Add(1)
			}
		}
		last <- n
	}()
	return func() int {
		_ = stdin.Close() // the script ends behind the batch at hand
		told := <-last
		if err := cmd.Wait(); err != nil {
			t.Errorf("node writer.js: %v\n%s", err, stderr.String())
		}
		return told
	}
}

// TLS with the certificate that the process made for itself, trusted by its file.
func TestGo_TLS(t *testing.T) {
	s := start(t, true)
	if !strings.HasPrefix(s.endpoint, "https://") {
		t.Fatal(s.endpoint)
	}
	client := s.client(t, masterKey, trusting(t, s.certificate()))
	c := container(t, newDatabase(t, client), azcosmos.ContainerProperties{}, "/pk")
	_, err := c.CreateItem(t.Context(), pk("a"), object{"id": "1", "pk": "a"}.json(), nil)
	must(t, err)
	if got := query(t, c, pk(), "SELECT * FROM c", 0); len(got) != 1 {
		t.Errorf("%d items over TLS", len(got))
	}
	// Plain HTTP gets no answer of the protocol, and a stranger's trust none at all.
	plain := &http.Client{Timeout: 10 * time.Second}
	if resp, err := plain.Get("http://" + strings.TrimPrefix(s.endpoint, "https://") + "/"); err == nil {
		resp.Body.Close()
		if resp.StatusCode < 400 {
			t.Errorf("plain HTTP is answered with %d", resp.StatusCode)
		}
	}
	if resp, err := plain.Get(s.endpoint + "/"); err == nil {
		resp.Body.Close()
		t.Error("a client that does not trust the certificate is served")
	}
}

// certificate is the file of the authority that the process made.
func (s *server) certificate() string { return filepath.Join(s.dir, "gateway", "ca.pem") }
