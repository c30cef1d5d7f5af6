package right

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

// TestGoldenRecords is the format: what it holds is read by every later release.
func TestGoldenRecords(t *testing.T) {
	lives := record{
		Version: 1, Node: "n4x", Incarnation: "abcdefgh", Host: "store-1", Write: 345, State: stateDrains, Level: 3, Trust: 428,
	}
	gone := lives
	gone.State, gone.Host = StateUp, ""
	gone.Deposed = &deposed{By: "m2q/hgfedcba", Why: "nothing answers, and its key stands still for 310ms", At: 1763694300123}
	for name, want := range map[string]*record{"up.v1.json": &lives, "deposed.v1.json": &gone} {
		path := filepath.Join("testdata", name)
		data := append(encode(want), '\n')
		if *updateGolden {
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(golden), string(data)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		got, err := decode("node.g.n4x", golden)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s decoded: %v\n%s", name, err, diff)
		}
	}
}

func TestRecordsThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		``:                                "node.g.a",
		`[]`:                              "node.g.a",
		`{}`:                              "version 0",
		`{"v":-1}`:                        "version -1",
		`{"v":1}`:                         "no node",
		`{"v":1,"node":"a","state":"up"}`: "no incarnation",
		`{"v":1,"node":"b","incarnation":"x","state":"up"}`:                       `of node "b"`,
		`{"v":1,"node":"a","incarnation":"x"}`:                                    `state "" is not`,
		`{"v":1,"node":"a","incarnation":"x","state":"asleep"}`:                   `state "asleep" is not`,
		`{"v":1,"node":"a","incarnation":"x","state":"up","write":-1}`:            "write",
		`{"v":1,"node":"a","incarnation":"x","state":"up","deposed":true}`:        "deposed",
		`{"v":1,"node":"a","incarnation":"x","state":"up"} {}`:                    "node.g.a",
		`{"v":2,"node":{"name":"a"},"incarnations":["x"],"state":0,"deposed":-1}`: "has version 2, this release reads up to 1",
	} {
		_, err := decode("node.g.a", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "node.g.a") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	_, err := decode("node.g.a", []byte(`{"v":9}`))
	if version, ok := errors.AsType[*VersionError](err); !ok || version.Version != 9 {
		t.Errorf("got %v, want a VersionError", err)
	}
}

// TestRecordsThatAreRead have members of a later release of the same version, and numbers that nobody should write.
func TestRecordsThatAreRead(t *testing.T) {
	for text, trust := range map[string]time.Duration{
		`{"v":1,"node":"a","incarnation":"x","state":"up","trustMs":428,"zone":{"name":"z"}}`: Trust,
		`{"v":1,"node":"a","incarnation":"x","state":"left","trustMs":600000,"deposed":null}`: trustMax,
		`{"v":1,"node":"a","incarnation":"x","state":"up","trustMs":600001}`:                  trustMax,
		`{"v":1,"node":"a","incarnation":"x","state":"drains","trustMs":-5}`:                  trustMax,
		`{"v":1,"node":"a","incarnation":"x","state":"up"}`:                                   trustMax,
	} {
		r, err := decode("node.g.a", []byte(text))
		if err != nil || r.trust() != trust || r.Deposed != nil {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
	// Whatever deposed says, it is there.
	r, err := decode("node.g.a", []byte(`{"v":1,"node":"a","incarnation":"x","state":"up","deposed":{}}`))
	if err != nil || r.Deposed == nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// FuzzDecode has foreign bytes in the bucket: what is read has its limits, and is written as it was read.
func FuzzDecode(f *testing.F) {
	for _, name := range []string{"up.v1.json", "deposed.v1.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add("node.g.n4x", data)
	}
	f.Add("", []byte(`{"v":2}`))
	f.Fuzz(func(t *testing.T, key string, data []byte) {
		r, err := decode(key, data)
		if err != nil {
			return
		}
		if r.trust() < time.Millisecond || r.trust() > trustMax || r.Node != nodeOf(key) || r.Incarnation == "" || r.Version != recordVersion {
			t.Errorf("%q at %q: %+v", data, key, r)
		}
		again, err := decode(key, encode(r))
		if diff := cmp.Diff(r, again); diff != "" || err != nil {
			t.Errorf("%v: %s", err, diff)
		}
		if why := clip(string(data), 7); len(why) > 7 {
			t.Errorf("%q is cut to %q", data, why)
		}
	})
}

func TestConfigReportsAllThatIsWrong(t *testing.T) {
	_, err := Config{
		Trust: 1500 * time.Microsecond, Wait: time.Millisecond, RenewInterval: time.Hour, Group: "a b", Node: "a/b",
	}.withDefaults()
	for _, want := range []string{"trust 1.5ms is not between", "trust 1.5ms is not in whole", "wait 1ms", "renewInterval 1h", `group "a b"`, `node "a/b"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	for name, test := range map[string]struct {
		trust, wait                     time.Duration
		wantTrust, wantWait, wantRenews time.Duration
	}{
		"nothing said":       {0, 0, 428 * time.Millisecond, 500 * time.Millisecond, 150 * time.Millisecond},
		"a longer trust":     {1712 * time.Millisecond, 0, 1712 * time.Millisecond, 1997333334, 600 * time.Millisecond},
		"a shorter trust":    {42800 * time.Microsecond, 0, 0, 0, 0}, // no whole milliseconds
		"a longer wait":      {0, 2 * time.Second, 1714 * time.Millisecond, 2 * time.Second, 600700934},
		"both, as it may be": {600 * time.Millisecond, 700 * time.Millisecond, 600 * time.Millisecond, 700 * time.Millisecond, 210280373},
		"a wait too short":   {600 * time.Millisecond, 699 * time.Millisecond, 0, 0, 0},
	} {
		c, err := Config{Group: "g", Node: "a", Trust: test.trust, Wait: test.wait}.withDefaults()
		if test.wantTrust == 0 {
			if err == nil {
				t.Errorf("%s: accepted", name)
			}
			continue
		}
		if err != nil || c.Trust != test.wantTrust || c.Wait != test.wantWait || c.RenewInterval != test.wantRenews {
			t.Errorf("%s: trust %v, wait %v, every %v; %v", name, c.Trust, c.Wait, c.RenewInterval, err)
		}
	}
	if Trust != 428*time.Millisecond || waitFor(Trust) > Wait {
		t.Errorf("the constants: trust %v needs a wait of %v, and it is %v", Trust, waitFor(Trust), Wait)
	}
}
