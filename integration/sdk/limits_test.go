package sdk_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// once is a client that does not try again by itself.
var once = &azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: -1}}}

// A server that carries out one request at a time tells the others 429; the SDKs try
// again until each is done.
func TestSDKs_AreThrottledAndGoOn(t *testing.T) {
	s := start(t, false, "MILLRACE_GATEWAY_REQUESTS_MAX=1")
	db := s.database(t)
	container(t, db, azcosmos.ContainerProperties{}, "/pk")
	var throttled atomic.Int64
	write := func(o *azcosmos.ClientOptions, round string) {
		c, err := s.client(t, masterKey, o).NewContainer(db.ID(), "items")
		must(t, err)
		var writing sync.WaitGroup
		for w := range 8 {
			writing.Go(func() {
				for i := range 10 {
					_, err := c.UpsertItem(t.Context(), pk("a"), object{"id": fmt.Sprintf("%s-%d-%d", round, w, i), "pk": "a"}.json(), nil)
					if status(err) == http.StatusTooManyRequests && o == once {
						throttled.Add(1)
					} else if err != nil {
						t.Errorf("%s: %v", round, err)
					}
				}
			})
		}
		writing.Wait()
	}
	eventually(t, func() (bool, string) {
		write(once, "once")
		return throttled.Load() > 0, "nothing is throttled"
	})
	// azcore tries three times by default, which chance can use up where so many ask.
	write(&azcosmos.ClientOptions{ClientOptions: azcore.ClientOptions{Retry: policy.RetryOptions{MaxRetries: 1000}}}, "again")
	c, err := s.client(t, masterKey, nil).NewContainer(db.ID(), "items")
	must(t, err)
	if got := query(t, c, pk("a"), "SELECT VALUE c.id FROM c WHERE STARTSWITH(c.id, 'again')", 0); len(got) != 80 {
		t.Errorf("%d items of 80 are there after throttling", len(got))
	}
	node(t, s, []string{"MILLRACE_DATABASE=" + db.ID()}, "throttled.js")
}

// A store whose disk is nearly full refuses writes and goes on reading.
func TestGo_RefusedForWantOfDisk(t *testing.T) {
	s := start(t, false)
	db := s.database(t)
	c := container(t, db, azcosmos.ContainerProperties{}, "/pk")
	_, err := c.CreateItem(t.Context(), pk("a"), object{"id": "1", "pk": "a"}.json(), nil)
	must(t, err)
	s.Kill()
	s.env = append(s.env, "MILLRACE_STORE_DISK_RESERVE=1125899906842624") // a pebibyte, so it is not ready for long
	must(t, s.run())
	eventually(t, func() (bool, string) {
		// A client for ever repeats the answer to its first question.
		c, err = s.client(t, masterKey, once).NewContainer(db.ID(), "items")
		must(t, err)
		_, err := c.ReadItem(t.Context(), pk("a"), "1", nil)
		return err == nil, fmt.Sprint("a read is answered with ", err)
	})
	last := 1
	eventually(t, func() (bool, string) { // a partition learns of it within a second
		last++
		_, err := c.CreateItem(t.Context(), pk("a"), object{"id": strconv.Itoa(last), "pk": "a"}.json(), nil)
		return status(err) == http.StatusServiceUnavailable, fmt.Sprint("a write is answered with ", err)
	})
	read, err := c.ReadItem(t.Context(), pk("a"), "1", nil)
	must(t, err)
	if parse(t, read.Value)["id"] != "1" {
		t.Errorf("read %s", read.Value)
	}
	_, err = c.ReadItem(t.Context(), pk("a"), strconv.Itoa(last), nil)
	if s := status(err); s != http.StatusNotFound {
		t.Errorf("the refused item is read with %d: %v", s, err)
	}
}
