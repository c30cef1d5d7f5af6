package engine

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/feed"
)

// Values of version 1, as they stand on disks.
const (
	goldenItem  = "01" + "ac02" + "03" + "f09fabfef962" + "ab02" + "808291fff962" + "7b226964223a2231227d"
	goldenState = "01" + "01020000000000000000000000000000" + "8008" + "00000000deadbeef" + "d00f" + "07" +
		"06" + "6e6f64652f31" + "7365"
)

func TestItem_form(t *testing.T) {
	it := Item{
		Body: []byte(`{"id":"1"}`), Position: feed.Position{LSN: 300, Index: 3}, Modified: 1_700_000_000_000 - 8,
		Written: 299, Expires: 1_700_000_833_728 - 64,
	}
	got := appendItem(nil, &it)
	var f fields
	if !f.decode(got) {
		t.Fatalf("%x cannot be read", got)
	}
	back := Item{Body: f.body, Position: f.position, Modified: f.modified, Written: f.written, Expires: f.expires}
	if diff := cmp.Diff(it, back, cmp.Comparer(func(a, b feed.PartitionKey) bool { return a == b })); diff != "" {
		t.Errorf("item (-want +got):\n%s", diff)
	}
	if s := hex.EncodeToString(got); s != goldenItem {
		t.Errorf("the form of an item is %s, was %s", s, goldenItem)
	}
}

func TestState_form(t *testing.T) {
	s := State{
		Log: feed.LogID{1, 2}, Applied: 1024, Sum: 0xdeadbeef, Time: 1000, Epoch: 7, Owner: "node/1", Settings: []byte("se"),
	}
	got := appendState(nil, &s)
	back, err := decodeState(got)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, back); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	if s := hex.EncodeToString(got); s != goldenState {
		t.Errorf("the form of a state is %s, was %s", s, goldenState)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{goldenItem, goldenState, "", "01", "02", "01ffffffffffffffffffffff"} {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var v fields
		if v.decode(b) && !bytes.HasSuffix(b, v.body) {
			t.Errorf("the body of %x is %x", b, v.body)
		}
		if s, err := decodeState(b); err == nil {
			if again, err := decodeState(appendState(nil, &s)); err != nil || !cmp.Equal(s, again) {
				t.Errorf("%x was read as %v and then as %v, %v", b, s, again, err)
			}
		}
	})
}
