package recent_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/store/owner/internal/recent"
)

// TestMap compares two Maps with plain ones: what they have is what was put last, they never hold more than their bound,
// and what is asked for again and again stays.
func TestMap(t *testing.T) {
	const most = 8_000
	b := recent.NewBound(func() int { return most })
	maps := []*recent.Map[string]{recent.NewMap(b, func(v string) int { return len(v) }), recent.NewMap(b, func(v string) int { return len(v) })}
	all := []map[string]string{{}, {}}
	random := rand.New(rand.NewPCG(1, 2))
	maps[1].Put("hot", "stays")
	for i := range 50_000 {
		n := random.IntN(2)
		m, plain, key := maps[n], all[n], fmt.Sprint("key ", random.IntN(200))
		switch random.IntN(4) {
		case 0, 1:
			plain[key] = fmt.Sprint(i)
			m.Put(key, plain[key])
		case 2:
			_, known := m.Get(key)
			plain[key] = fmt.Sprint(i)
			if had := m.Amend(key, func(v *string) { *v = plain[key] }); had != known {
				t.Fatalf("%s is changed: %t; it was there: %t", key, had, known)
			}
			if v, ok := m.Find([]byte(key)); ok && !known {
				t.Fatalf("%s was not there and is %s", key, v)
			}
		default:
			if v, ok := m.Get(key); ok && v != plain[key] {
				t.Fatalf("%s is %s, want %s", key, v, plain[key])
			}
		}
		if v, ok := maps[1].Get("hot"); !ok || v != "stays" {
			t.Fatalf("what is asked for all the time is forgotten after %d steps", i)
		}
		if held := held(maps...); held > most {
			t.Fatalf("after %d steps they hold %d bytes, at most %d are allowed", i, held, most)
		}
	}
	if held := held(maps...); held < most*9/10 {
		t.Errorf("they hold %d bytes, and could hold %d", held, most)
	}
	b.Clear()
	if _, ok := maps[1].Get("hot"); ok || held(maps...) > 0 {
		t.Error("they were cleared")
	}
	maps[0].Put("a", "b")
	if v, _ := maps[0].Get("a"); v != "b" {
		t.Errorf("after they were cleared, a is %q", v)
	}
}

// held returns what maps hold, of the keys of TestMap.
func held(maps ...*recent.Map[string]) (bytes int) {
	for _, m := range maps {
		for key, v := range m.All() {
			bytes += len(key) + len(v) + recent.Overhead
		}
	}
	return bytes
}

// TestMap_WhatIsAskedForOutlivesAScan reads many keys once, as a sweep does: what others ask for meanwhile stays.
func TestMap_WhatIsAskedForOutlivesAScan(t *testing.T) {
	b := recent.NewBound(func() int { return 100 * (recent.Overhead + 10) })
	m := recent.NewMap(b, func(int) int { return 0 })
	key := func(i int) string { return fmt.Sprintf("%08d", i) }
	for i := range 50 {
		m.Put(key(i), i)
	}
	for scanned := range 10_000 {
		m.Put(key(1000+scanned), scanned)
		m.Get(key(scanned % 50))
	}
	for i := range 50 {
		if v, ok := m.Get(key(i)); !ok || v != i {
			t.Errorf("%d of 50 that are asked for all the time is %d, %v", i, v, ok)
		}
	}
}

// TestBound_FollowsItsMaximum makes the bound smaller: the next Put drops what is too much.
func TestBound_FollowsItsMaximum(t *testing.T) {
	most := 1 << 20
	b := recent.NewBound(func() int { return most })
	m := recent.NewMap(b, func(v string) int { return len(v) })
	for i := range 1000 {
		m.Put(fmt.Sprint(i), "value")
	}
	most = 1000
	m.Put("last", "value")
	if got := held(m); got > most {
		t.Errorf("it holds %d bytes, at most %d are allowed", got, most)
	}
	most = 0
	m.Put("too large", "for any place")
	if got := held(m); got > 0 {
		t.Errorf("it holds %d bytes, none are allowed", got)
	}
}
