package propose_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/cmd/millrace/internal/propose"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/pipelines/spec"
	"github.com/millrace/millrace/store"
)

// shop is what containers hold: a key, and the items, each a line of JSON.
type shop map[string]struct{ key, items string }

// run proposes from all that a shop holds.
func run(t *testing.T, s shop, database string, there ...spec.Pipeline) *propose.Result {
	t.Helper()
	var samples []propose.Sample
	existing := spec.Existing{Pipelines: there}
	kept := map[string]map[store.ItemRef]store.Item{}
	for name, c := range s {
		info := store.ContainerInfo{Database: database, Name: name, State: store.ContainerReady, Spec: store.ContainerSpec{PartitionKey: strings.Fields(c.key), Partitions: 1}}
		sample := propose.Sample{Container: info}
		kept[name] = map[store.ItemRef]store.Item{}
		for line := range strings.Lines(c.items) {
			body := []byte(strings.TrimSpace(line))
			if len(body) == 0 {
				continue
			}
			ref := refOf(t, body, info.Spec.PartitionKey)
			kept[name][ref] = store.Item{ID: ref.ID, Key: ref.Key, Body: body}
			sample.Items = append(sample.Items, body)
		}
		samples = append(samples, sample)
		existing.Containers = append(existing.Containers, info)
	}
	r, err := propose.Run(t.Context(), samples, nil, existing, database, func(_ context.Context, container string, refs []store.ItemRef) ([]store.Item, error) {
		items := make([]store.Item, len(refs))
		for i, ref := range refs {
			items[i] = kept[container][ref]
		}
		return items, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func refOf(t *testing.T, body []byte, pointers []string) store.ItemRef {
	t.Helper()
	var item struct{ ID string }
	if err := json.Unmarshal(body, &item); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	var paths []document.Path
	for _, pointer := range pointers {
		path, err := document.ParsePointer(pointer)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	key, err := store.KeyAt(body, paths)
	if err != nil {
		t.Fatal(err)
	}
	return store.ItemRef{Key: key, ID: item.ID}
}

// short writes proposals in a line each.
func short(all []propose.Proposal) (lines []string) {
	for i := range all {
		p := &all[i]
		line := fmt.Sprintf("%s[%s] > %s[%s]", p.Source, p.SourceWhere, p.Into, p.Where)
		if p.Each != "" {
			line += " each " + p.Each
		}
		for _, m := range p.Match {
			line += " " + m.Field + "=" + strings.Join(m.Source, "+")
		}
		line += " (" + p.Names.String() + ")"
		for _, c := range p.Set {
			line += fmt.Sprintf(" %s:%s(%s)", c.Field, c.Source, c.Equal)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		shop shop
		want []string
	}{
		"a nested copy": {
			shop{
				"author": {"/id", `{"id":"a1","name":"Ann","born":1970}
					{"id":"a2","name":"Bob","born":1980}`},
				"book": {"/id", `{"id":"b1","author":{"id":"a1","name":"Ann"}}
					{"id":"b2","author":{"id":"a2","name":"old name"}}
					{"id":"b3","author":{"id":"gone","name":"Eve"}}`},
			},
			[]string{"author[] > book[] author.id=id (2 of 3) author.name:name(1 of 2)"},
		},
		"no copy yet, by the name of the field": {
			shop{
				"stock":   {"/id", `{"id":"MSFT","name":"Microsoft","price":400}`},
				"holding": {"/userId", `{"id":"h1","userId":"u1","stockId":"MSFT"}`},
			},
			[]string{"stock[] > holding[] stockId=id (1 of 1) stockName:name(0 of 0)"},
		},
		"no copy yet, by the values": {
			shop{
				"stock":   {"/id", `{"id":"MSFT","name":"Microsoft","price":400}`},
				"holding": {"/userId", `{"id":"h1","userId":"u1","symbol":"MSFT"}`},
			},
			[]string{"stock[] > holding[] symbol=id (1 of 1) symbolName:name(0 of 0)"},
		},
		"elements that name items by another name than id": {
			shop{
				"product": {"/id", `{"id":"p1","name":"Racer"}
					{"id":"p2","name":"Tourer"}`},
				"order": {"/customerId", `{"id":"o1","customerId":"c1","cart":{"lines":[{"productId":"p1","productName":"Racer"},{"productId":"p2","productName":"Tourer"}]}}`},
			},
			[]string{"product[] > order[] each cart.lines productId=id (2 of 2) productName:name(2 of 2)"},
		},
		"a post's id is its partition key": {
			shop{"post": {"/postId", `{"id":"p1","postId":"p1","type":"post","title":"Hello"}
				{"id":"k1","postId":"p1","type":"comment","postTitle":"Hello"}
				{"id":"k2","postId":"p1","type":"comment","postTitle":"Hello"}`}},
			[]string{`post[type = "post"] > post[type = "comment"] postId=postId+id (2 of 2) postTitle:title(2 of 2)`},
		},
		"the partition key lies beside": {
			shop{
				"product": {"/region", `{"id":"p1","region":"eu","name":"Racer"}`},
				"review":  {"/id", `{"id":"r1","region":"eu","productId":"p1"}`},
			},
			[]string{"product[] > review[] productId=id region=region (1 of 1) productName:name(0 of 0)"},
		},
		"a partition key that nothing fixes": {
			shop{
				"product": {"/region", `{"id":"p1","region":"eu","name":"Racer"}`},
				"review":  {"/id", `{"id":"r1","productId":"p1"}`},
			},
			nil,
		},
		"values that are equal by chance": {
			shop{
				"product": {"/id", `{"id":"p1","stock":1,"open":true,"note":"x"}
					{"id":"p2","stock":1,"open":true,"note":"x"}`},
				"line": {"/id", `{"id":"l1","productId":"p1","quantity":1,"paid":true,"comment":"x"}
					{"id":"l2","productId":"p2","quantity":1,"paid":true,"comment":"x"}`},
			},
			nil,
		},
		"most name nothing": {
			shop{
				"product": {"/id", `{"id":"p1","name":"Racer"}`},
				"line": {"/id", `{"id":"l1","productId":"p1"}
					{"id":"l2","productId":"x1"}
					{"id":"l3","productId":"x2"}`},
			},
			nil,
		},
		"items that name themselves": {
			shop{"customer": {"/customerId", `{"id":"c1","customerId":"c1","name":"Ann"}`}},
			nil,
		},
		"names that YAML and the dialect would read otherwise": {
			shop{
				"c": {"/type", `{"id":"1","type":"a \"b\": c","name":"Ann"}`},
				"t": {"/id", `{"id":"t1","a.b":{"no":{"id":"1","name":"Ann"}}}`},
			},
			[]string{`c[type = "a \"b\": c"] > t[] ["a.b"].no.id=id (1 of 1) ["a.b"].no.name:name(1 of 1)`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, c.shop, "shop")
			if diff := cmp.Diff(c.want, short(r.Proposals)); diff != "" || len(r.Refused) != 0 {
				t.Errorf("%s\n%+v", diff, r.Refused)
			}
			for i := range r.Proposals {
				if _, err := spec.Decode("proposal", []byte(r.Proposals[i].YAML)); err != nil {
					t.Errorf("%v\n%s", err, r.Proposals[i].YAML)
				}
			}
		})
	}
}

// TestRun_LeavesOutWhatIsWritten names the pipeline that writes the field already, and
// gives another name than one that is taken.
func TestRun_LeavesOutWhatIsWritten(t *testing.T) {
	s := shop{
		"author": {"/id", `{"id":"a1","name":"Ann"}`},
		"book":   {"/id", `{"id":"b1","authorId":"a1","authorName":"Ann","editorId":"a1","editorName":"Ann"}`},
	}
	first := run(t, s, "shop")
	if len(first.Proposals) != 2 {
		t.Fatalf("%+v", first)
	}
	there, err := spec.Decode("there", []byte(first.Proposals[0].YAML))
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, s, "shop", there.Pipelines[0])
	if len(r.Proposals) != 1 || r.Proposals[0].Name == first.Proposals[0].Name || r.Proposals[0].Field != "editorId" {
		t.Errorf("%+v", r.Proposals)
	}
	if len(r.Refused) != 1 || r.Refused[0].Field != "authorId" || !strings.Contains(r.Refused[0].Finding, "authorName") {
		t.Errorf("%+v", r.Refused)
	}
}

// TestRun_ReadsABoundedNumber reads no more than a part of what a sample names.
func TestRun_ReadsABoundedNumber(t *testing.T) {
	sample := propose.Sample{Container: store.ContainerInfo{Database: "d", Name: "line", Spec: store.ContainerSpec{PartitionKey: []string{"/id"}}}}
	source := propose.Sample{
		Container: store.ContainerInfo{Database: "d", Name: "product", Spec: store.ContainerSpec{PartitionKey: []string{"/id"}}},
		Items:     [][]byte{[]byte(`{"id":"p0","name":"n"}`)},
	}
	for i := range 3000 {
		sample.Items = append(sample.Items, fmt.Appendf(nil, `{"id":"l%d","productId":"p%d"}`, i, i))
	}
	there := spec.Existing{Containers: []store.ContainerInfo{sample.Container, source.Container}}
	asked := 0
	r, err := propose.Run(t.Context(), []propose.Sample{sample, source}, nil, there, "d", func(_ context.Context, container string, refs []store.ItemRef) ([]store.Item, error) {
		asked += len(refs)
		items := make([]store.Item, len(refs))
		for i, ref := range refs {
			if container == "product" {
				items[i] = store.Item{ID: ref.ID, Body: fmt.Appendf(nil, `{"id":%q,"name":"n"}`, ref.ID)}
			}
		}
		return items, nil
	})
	if err != nil || len(r.Proposals) != 1 || r.Proposals[0].Names != (propose.Share{Is: 200, Of: 200}) {
		t.Errorf("%v, %+v", err, r)
	}
	if asked > 400 { // of products, and of lines
		t.Errorf("%d items were read", asked)
	}
}

// TestRun_AsksABoundedNumberOfTimes: many containers with many fields are not all held
// against each other, what a sample proves is found all the same, and what was left out is told.
func TestRun_AsksABoundedNumberOfTimes(t *testing.T) {
	var samples []propose.Sample
	var there spec.Existing
	for c := range 100 {
		info := store.ContainerInfo{Database: "d", Name: fmt.Sprintf("c%03d", c), Spec: store.ContainerSpec{PartitionKey: []string{"/id"}}}
		item := fmt.Sprintf(`{"id":"i%03d","name":"n"`, c)
		for f := range 10 {
			item += fmt.Sprintf(`,"f%dId":"nobody"`, f)
		}
		if c == 99 {
			item += `,"otherId":"i000","otherName":"n"`
		}
		samples = append(samples, propose.Sample{Container: info, Items: [][]byte{[]byte(item + "}")}})
		there.Containers = append(there.Containers, info)
	}
	asked := 0
	r, err := propose.Run(t.Context(), samples, nil, there, "d", func(_ context.Context, container string, refs []store.ItemRef) ([]store.Item, error) {
		asked++
		items := make([]store.Item, len(refs))
		for i, ref := range refs {
			if container == "c000" && ref.ID == "i000" {
				items[i] = store.Item{ID: ref.ID, Body: []byte(`{"id":"i000","name":"n"}`)}
			}
		}
		return items, nil
	})
	if err != nil || len(r.Proposals) != 1 || r.Proposals[0].Field != "otherId" {
		t.Errorf("%v, %+v", err, r.Proposals)
	}
	if asked > 2000 || r.Left < 900 {
		t.Errorf("%d requests, %d fields left out", asked, r.Left)
	}
}
