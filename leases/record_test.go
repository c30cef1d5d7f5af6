package leases

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var updateGolden = flag.Bool("update", false, "write golden files")

func TestGoldenRecords(t *testing.T) {
	lease := leaseRecord{
		Version: 1, Resource: "category-names/3/c7k2x4ab/0", Owner: "n4x/abcdefgh", Last: "m2q/hgfedcba", Host: "store-1",
		Epoch: 12, Write: 345, TTL: 7000, Weight: 4, Checkpoint: []byte("at 17.2"),
		LastError: "read source: timeout", Attempts: 2, Acquired: 1763694300123, Progress: 1763694301000,
	}
	member := memberRecord{
		Version: 1, Node: "n4x", Incarnation: "abcdefgh", Host: "store-1", Beat: 17, TTL: 7000, Locked: true,
		Closed: true, Left: true, Resources: 18446744073709551615, Declines: []string{"c7k2x4ab/1"}, Started: 1763694300000,
	}
	golden := func(name string, value any) []byte {
		path := filepath.Join("testdata", name)
		data := append(encode(value), '\n')
		if *updateGolden {
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(data)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		return want
	}
	gotLease, err := decodeLease("k", golden("lease.v1.json", &lease))
	if diff := cmp.Diff(&lease, gotLease); diff != "" || err != nil {
		t.Errorf("decoded lease: %v\n%s", err, diff)
	}
	gotMember, err := decodeMember("k", golden("member.v1.json", &member))
	if diff := cmp.Diff(&member, gotMember); diff != "" || err != nil {
		t.Errorf("decoded member: %v\n%s", err, diff)
	}
}

func TestRecordsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		``:                                  "lease.g.r",
		`[]`:                                "lease.g.r",
		`{}`:                                "version 0",
		`{"v":-1}`:                          "version -1",
		`{"v":1}`:                           "no resource",
		`{"v":1,"resource":"r","epoch":-1}`: "lease.g.r",
		`{"v":1,"resource":"r","owner":"nobody"}`: "node/incarnation",
		`{"v":2,"resource":5}`:                    "has version 2, this release reads up to 1",
	} {
		_, err := decodeLease("lease.g.r", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	_, err := decodeLease("lease.g.r", []byte(`{"v":9}`))
	if version, ok := errors.AsType[*VersionError](err); !ok || version.Version != 9 {
		t.Errorf("got %v, want a VersionError", err)
	}
}

func FuzzKeys(f *testing.F) {
	for _, name := range []string{"c7k2x4ab/0", "a.b*c>d e", "=41", "=", "=4", "ü\x00\xff", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		key := leaseKey("g", name)
		kind, group, escaped, ok := splitKey(key)
		if !ok || kind != leasePrefix || group != "g" || unescape(escaped) != name {
			t.Errorf("%q became %q and %q", name, key, unescape(escaped))
		}
		if strings.ContainsAny(escaped, ".*> \t\r\n") {
			t.Errorf("%q became %q", name, escaped)
		}
		_ = unescape(name)
	})
}

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"lease.v1.json", "member.v1.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decodeLease("k", data); err == nil {
			if r.ttl() <= 0 || r.ttl() > ttlMax || roundWeight(r.Weight) < weightMin || roundWeight(r.Weight) > weightMax {
				t.Errorf("ttl %v weight %v", r.ttl(), roundWeight(r.Weight))
			}
			again, err := decodeLease("k", encode(r))
			if err != nil || !cmp.Equal(r, again) {
				if len(r.Checkpoint) == 0 { // empty and missing are one
					return
				}
				t.Errorf("%v: %s", err, cmp.Diff(r, again))
			}
		}
		if r, err := decodeMember("k", data); err == nil && (r.ttl() <= 0 || r.ttl() > ttlMax) {
			t.Errorf("ttl %v", r.ttl())
		}
	})
}

func TestConfigReportsAllThatIsWrong(t *testing.T) {
	_, err := Config{
		Replicas: 9, TTL: time.Millisecond, RenewInterval: time.Hour, BalanceInterval: -1, StallTimeout: -1,
		DrainTimeout: -1, RetryBackoff: time.Minute, RetryBackoffMax: time.Second, TakeMax: -1, Group: "a b", Node: "a/b",
	}.withDefaults()
	for _, want := range []string{"replicas 9", "ttl 1ms", "renewInterval 1h", "balanceInterval", "stallTimeout", "drainTimeout", "retryBackoffMax 1s", "takeMax -1", `group "a b"`, `node "a/b"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
	if _, err := (Config{Group: "g", NodeLocked: true}).withDefaults(); err == nil {
		t.Error("a locked node without a name was accepted")
	}
	c, err := Config{Group: "g"}.withDefaults()
	if err != nil || c.TTL != 7*time.Second || c.RenewInterval != 2*time.Second {
		t.Errorf("defaults: %v every %v, %v", c.TTL, c.RenewInterval, err)
	}
}
