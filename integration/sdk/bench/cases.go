package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// readable is the number of items that are read.
const readable = 1000

// text fills items up to 1 KiB.
var text = strings.Repeat("lorem ipsum ", 80)

func readPK(i int) string { return fmt.Sprint("r", i%50) }
func readBody(i int) []byte {
	return fmt.Appendf(nil, `{"id":"r%d","pk":%q,"text":%q}`, i, readPK(i), text)
}

// workload is one thing that all clients do over and over; n is new in each call.
type workload struct {
	name string
	one  bool // by one client alone
	// plain says that it asks by HTTP alone, which the bare server answers too.
	plain bool
	do    func(ctx context.Context, s *system, n string, i int) error
}

// topTen is the query of the articles.
const topTen = "SELECT TOP 10 * FROM c WHERE c.type = 'customer' ORDER BY c.salesOrderCount DESC"

var cases = []workload{
	{"http: create 1 KiB", false, true, func(ctx context.Context, s *system, n string, _ int) error {
		body := fmt.Sprintf(`{"id":%q,"pk":%q,"text":%q}`, n, n, text)
		return s.http(ctx, http.MethodPost, "dbs/bench/colls/items", "docs", n, body, http.StatusCreated)
	}},
	{"http: point read 1 KiB", false, true, func(ctx context.Context, s *system, _ string, i int) error {
		return s.http(ctx, http.MethodGet, fmt.Sprintf("dbs/bench/colls/items/docs/r%d", i%readable), "", readPK(i%readable), "", http.StatusOK)
	}},
	{"azcosmos: create 1 KiB", false, false, func(ctx context.Context, s *system, n string, _ int) error {
		_, err := s.items.CreateItem(ctx, azcosmos.NewPartitionKeyString(n), fmt.Appendf(nil, `{"id":%q,"pk":%q,"text":%q}`, n, n, text), nil)
		return err
	}},
	{"azcosmos: point read 1 KiB", false, false, func(ctx context.Context, s *system, _ string, i int) error {
		_, err := s.items.ReadItem(ctx, azcosmos.NewPartitionKeyString(readPK(i%readable)), fmt.Sprint("r", i%readable), nil)
		return err
	}},
	{"azcosmos: query of one partition", false, false, func(ctx context.Context, s *system, _ string, i int) error {
		id := fmt.Sprint("c", i%100)
		page, err := s.customers.NewQueryItemsPager("SELECT * FROM c WHERE c.pk = \""+id+"\"", azcosmos.NewPartitionKeyString(id), nil).NextPage(ctx)
		if err == nil && len(page.Items) != 1 {
			err = fmt.Errorf("%d items, want 1", len(page.Items))
		}
		return err
	}},
	{"azcosmos: top ten, one client", true, false, func(ctx context.Context, s *system, _ string, _ int) error {
		query := strings.ReplaceAll(topTen, "'", `"`) // cosmium knows double quotes alone
		page, err := s.customers.NewQueryItemsPager(query, azcosmos.NewPartitionKey(), nil).NextPage(ctx)
		if err == nil && len(page.Items) != 10 {
			err = fmt.Errorf("%d items, want 10", len(page.Items))
		}
		return err
	}},
}

// http sends one signed request on an item or, with a kind, on the items of a link.
func (s *system) http(ctx context.Context, method, link, kind, key, body string, want int) error {
	path := link
	if kind != "" {
		path += "/" + kind
	}
	r, err := http.NewRequestWithContext(ctx, method, s.endpoint()+"/"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	date := time.Now().UTC().Format(http.TimeFormat)
	mac := hmac.New(sha256.New, secret)
	_, _ = io.WriteString(mac, strings.ToLower(method)+"\ndocs\n"+link+"\n"+strings.ToLower(date)+"\n\n") // a hash takes everything
	r.Header.Set("x-ms-date", date)
	r.Header.Set("x-ms-version", "2020-07-15")
	r.Header.Set("authorization", url.QueryEscape("type=master&ver=1.0&sig="+base64.StdEncoding.EncodeToString(mac.Sum(nil))))
	r.Header.Set("x-ms-documentdb-partitionkey", `["`+key+`"]`)
	r.Header.Set("prefer", "return=minimal")
	if body != "" {
		r.Header.Set("content-type", "application/json")
	}
	resp, err := s.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != want {
		err = fmt.Errorf("status %d, want %d", resp.StatusCode, want)
	}
	return err
}

// measure runs a case on a system for the time of a round. The first part of it only
// warms up.
func (s *system) measure(ctx context.Context, c *config, w workload, round int) (result, error) {
	clients := c.connections
	if w.one {
		clients = 1
	}
	begin := time.Now().Add(c.time / 5)
	end := begin.Add(c.time)
	took := make([][]time.Duration, clients)
	var failed atomic.Pointer[error]
	var done atomic.Int64 // the warming up included
	spent := s.processorTime()
	var working sync.WaitGroup
	for client := range clients {
		working.Go(func() {
			for i := 0; failed.Load() == nil; i++ {
				began := time.Now()
				if began.After(end) {
					return
				}
				n := fmt.Sprintf("%s-%d-%d-%d", strings.ReplaceAll(w.name[:6], " ", ""), round, client, i)
				if err := w.do(ctx, s, strings.ReplaceAll(n, ":", ""), i*clients+client); err != nil {
					failed.Store(&err)
					return
				}
				done.Add(1)
				if began.After(begin) {
					took[client] = append(took[client], time.Since(began))
				}
			}
		})
	}
	working.Wait()
	if err := failed.Load(); err != nil {
		return result{}, *err
	}
	all := slices.Concat(took...)
	if len(all) == 0 {
		return result{}, errors.New("nothing was done in time")
	}
	slices.Sort(all)
	return result{
		perSecond: float64(len(all)) / c.time.Seconds(),
		cpu:       (s.processorTime() - spent) / time.Duration(done.Load()),
		p50:       all[len(all)/2].Round(10 * time.Microsecond), p99: all[len(all)*99/100].Round(10 * time.Microsecond),
	}, nil
}
