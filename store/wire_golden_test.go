package store_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store"
)

var update = flag.Bool("update", false, "write golden files anew")

// TestWire_BytesStay: every kind of request and response has the bytes that earlier
// releases send and read.
func TestWire_BytesStay(t *testing.T) {
	const path = "testdata/wire.golden"
	var got strings.Builder
	asked := requests(t)
	for i, r := range asked {
		fmt.Fprintf(&got, "request %d: %x\n", i, store.AppendRequest(nil, r))
	}
	for i, r := range responses(t) {
		fmt.Fprintf(&got, "response %d: %x\n", i, store.EncodeResponse(r, asked[i]))
	}
	for _, r := range refusals {
		fmt.Fprintf(&got, "refusal: %x\n", store.EncodeResponse(r, asked[0]))
	}
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
