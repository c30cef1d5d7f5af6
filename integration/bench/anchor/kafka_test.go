//go:build linux

package anchor

import (
	"bytes"
	"testing"

	"github.com/millrace/millrace/integration/bench/dataset"
)

// A product that is missing, that has the old name of its category, or whose bytes are not its own is found.
func TestWrongCopiesAreFound(t *testing.T) {
	set, err := dataset.New(dataset.Config{Seed: 1, Products: 1000})
	if err != nil {
		t.Fatal(err)
	}
	c := set.Sized(0)
	renamed := set.Category(c, 1)
	names := map[string]string{renamed.ID: renamed.Name}
	var one string
	copies := map[string][]byte{}
	for p := range set.Products() {
		copies[set.ProductID(p)] = set.AppendProduct(nil, p)
	}
	for p := range set.InCategory(c) {
		one = set.ProductID(p)
		copies[one] = bytes.Replace(copies[one], []byte(set.Category(c, 0).Name), []byte(renamed.Name), 1)
	}
	is := func(id string, want []byte) bool { return bytes.Equal(copies[id], want) }
	if err := compare(set, names, is); err != nil {
		t.Fatal(err)
	}
	right := copies[one]
	for name, wrong := range map[string][]byte{
		"missing":      nil,
		"the old name": bytes.Replace(right, []byte(renamed.Name), []byte(set.Category(c, 0).Name), 1),
		"torn":         right[:len(right)-1],
	} {
		copies[one] = wrong
		if err := compare(set, names, is); err == nil {
			t.Errorf("%s: it was not found", name)
		}
	}
	copies[one] = right
	if err := compare(set, nil, is); err == nil {
		t.Error("a rename of nothing was not found")
	}
}

func TestAnswersAreToldFromItems(t *testing.T) {
	if n, ok := answered([]byte(`{"copies":12}`)); !ok || n != 12 {
		t.Errorf("an answer: %d, %t", n, ok)
	}
	item := []byte(`{"id":"A","categoryId":"B"}`)
	if _, ok := answered(item); ok || idOf(item) != "A" {
		t.Errorf("an item: %t, its id %q", ok, idOf(item))
	}
}
