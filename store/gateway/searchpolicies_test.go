package gateway_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/store/gateway"
)

// Policies for vectors and words are kept and shown as they were sent, and their indexes too.
func TestContainer_SearchPoliciesAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	const (
		vectors = `{"vectorEmbeddings":[{"path":"/v","dataType":"float32","dimensions":505,"distanceFunction":"dotproduct"},
			{"path":"/w","dataType":"uint8","dimensions":4096,"distanceFunction":"euclidean"}]}`
		texts    = `{"defaultLanguage":"en-US","fullTextPaths":[{"path":"/title","language":"de-DE"},{"path":"/body"}]}`
		indexing = `{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/*"}],"excludedPaths":[{"path":"/\"_etag\"/?"},{"path":"/v/*"}],
			"fullTextIndexes":[{"path":"/title"}],"vectorIndexes":[{"path":"/v","type":"flat"},
			{"path":"/w","type":"diskANN","quantizerType":"product","quantizationByteSize":512,"indexingSearchListSize":25,"vectorIndexShardKey":["/country/city"]}]}`
	)
	body := func(policies string) string {
		return `{"id":"things","partitionKey":{"paths":["/pk"]},` + policies + `}`
	}
	whole := body(`"vectorEmbeddingPolicy":` + vectors + `,"fullTextPolicy":` + texts + `,"indexingPolicy":` + indexing)
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	w.ask("POST", "/dbs/shop/colls", whole).is(201)
	type policies struct{ VectorEmbeddingPolicy, FullTextPolicy, IndexingPolicy any }
	var want policies
	(&answer{t: t, body: []byte(whole)}).into(&want)
	shows := func(want policies) {
		t.Helper()
		var got policies
		w.ask("GET", "/dbs/shop/colls/things", "").is(200).into(&got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	shows(want)
	// What vectors are is not changed, nor how they are indexed; what words are is.
	for policies, said := range map[string]string{
		`"indexingPolicy":` + indexing: "path::/v not matching in Embedding's path",
		`"fullTextPolicy":` + texts:    "existing embedding policy cannot be modified",
		`"vectorEmbeddingPolicy":` + strings.Replace(vectors, "4096", "4095", 1) + `,"indexingPolicy":` + indexing:                            "existing embedding policy cannot be modified",
		`"vectorEmbeddingPolicy":` + vectors + `,"indexingPolicy":` + strings.Replace(indexing, `"type":"flat"`, `"type":"quantizedFlat"`, 1): "existing vector indexing policy cannot be modified",
	} {
		if a := w.ask("PUT", "/dbs/shop/colls/things", body(policies)).is(400); !strings.Contains(string(a.body), said) {
			t.Errorf("%s: %s; want %q in it", policies, a.body, said)
		}
		shows(want)
	}
	w.ask("PUT", "/dbs/shop/colls/things", body(`"vectorEmbeddingPolicy":`+vectors+`,"fullTextPolicy":null,"indexingPolicy":`+indexing)).is(200)
	want.FullTextPolicy = nil
	shows(want)
}

func TestContainer_SearchPoliciesRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{})
	w.ask("POST", "/dbs", `{"id":"shop"}`).is(201)
	vectors := func(more string) string { return `"vectorEmbeddingPolicy":{"vectorEmbeddings":[` + more + `]}` }
	index := func(more string) string {
		return vectors(`{"path":"/v","dimensions":600}`) + `,"indexingPolicy":{"vectorIndexes":[` + more + `]}`
	}
	texts := func(more string) string { return `"fullTextPolicy":` + more }
	for policies, said := range map[string]string{
		`"vectorEmbeddingPolicy":[]`:                                                 "vectorEmbeddingPolicy",
		vectors(`{"path":"v"}`):                                                      "invalid Path:v",
		vectors(`{"path":"/v/[]/w"}`):                                                "invalid Path:/v/[]/w",
		vectors(`{"path":"/v"},{"path":"/v"}`):                                       "twice",
		vectors(`{"path":"/v","dataType":"float33"}`):                                "invalid DataType:float33",
		vectors(`{"path":"/v","distanceFunction":"measured"}`):                       "invalid DistanceFunction:measured",
		vectors(`{"path":"/v","dimensions":4097}`):                                   "Dimensions:4097 which is more than the maximum supported value",
		vectors(`{"path":"/v","dimensions":0}`):                                      "Dimensions:0",
		vectors(`{"path":"/v","dimensions":1.5}`):                                    "vectorEmbeddingPolicy",
		vectors(`{"path":"/v","embeddingSource":{}}`):                                "embeddingSource",
		index(`{"path":"/other","type":"flat"}`):                                     "path::/other not matching in Embedding's path",
		index(`{"path":"/v"}`):                                                       "Index Type:: is invalid",
		index(`{"path":"/v","type":"round"}`):                                        "Index Type::round is invalid",
		index(`{"path":"/v","type":"flat"}`):                                         "600 dimensions",
		index(`{"path":"/v","type":"diskANN","quantizationByteSize":0}`):             "QuantizationByteSize value :: 0 is out of range",
		index(`{"path":"/v","type":"diskANN","quantizationByteSize":513}`):           "QuantizationByteSize value :: 513 is out of range",
		index(`{"path":"/v","type":"diskANN","indexingSearchListSize":501}`):         "IndexingSearchListSize value :: 501 is out of range",
		index(`{"path":"/v","type":"diskANN","vectorIndexShardKey":["city"]}`):       "invalid Shard Path: city.",
		index(`{"path":"/v","type":"diskANN","vectorIndexShardKey":["/a","/b"]}`):    "2 exceeds the maximum: 1",
		index(`{"path":"/v","type":"diskANN","vectorIndexShardKey":"/a"}`):           "One of the specified inputs is invalid",
		texts(`{"defaultLanguage":"spa-SPA"}`):                                       "default language: spa-SPA",
		texts(`{"fullTextPaths":[{"path":"text"}]}`):                                 "The Full Text Policy contains an invalid Path: text",
		texts(`{"fullTextPaths":[{"path":"/text","language":"Latin"}]}`):             "language: Latin",
		texts(`{"fullTextPaths":"/text"}`):                                           "fullTextPolicy",
		texts(`{}`) + `,"indexingPolicy":{"fullTextIndexes":[{"not_path":"/text"}]}`: "The Full Text Indexing Policy contains an invalid Path",
	} {
		a := w.ask("POST", "/dbs/shop/colls", `{"id":"things","partitionKey":{"paths":["/pk"]},`+policies+`}`).is(400)
		if !strings.Contains(string(a.body), said) {
			t.Errorf("%s: %s; want %q in it", policies, a.body, said)
		}
	}
	w.ask("GET", "/dbs/shop/colls/things", "").is(404)
}

// A query takes the distance function of the container's policy where it names none.
func TestQuery_DistanceOfThePolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, gateway.Config{Partitions: 2})
	w.container("things", `{"partitionKey":{"paths":["/pk"]},"vectorEmbeddingPolicy":{"vectorEmbeddings":[{"path":"/v","distanceFunction":"Euclidean","dimensions":2}]}}`)
	for id, v := range map[string]string{"near": "[1,1]", "far": "[34,24]"} {
		w.ask("POST", "/dbs/shop/colls/things/docs", `{"id":"`+id+`","pk":"`+id+`","v":`+v+`,"w":`+v+`}`, "x-ms-documentdb-partitionkey", `["`+id+`"]`).is(201)
	}
	for text, want := range map[string]string{
		"SELECT VALUE VectorDistance(c.v, @to) FROM c ORDER BY VectorDistance(c.v, @to)":                            "[5,45]",
		"SELECT VALUE c.id FROM c ORDER BY VectorDistance(c.v, @to)":                                                `["near","far"]`,
		`SELECT VALUE VectorDistance(c.v, @to, false, {"distanceFunction":"dotproduct"}) FROM c ORDER BY c.id DESC`: "[-5,-140]",
		"SELECT VALUE ROUND(1000 * VectorDistance(c.w, @to)) FROM c ORDER BY c.id":                                  "[-933,-981]",
	} {
		query, err := json.Marshal(map[string]any{"query": text, "parameters": []any{map[string]any{"name": "@to", "value": []int{-2, -3}}}})
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Documents json.RawMessage }
		w.ask("POST", "/dbs/shop/colls/things/docs", string(query), isQuery, "true", "x-ms-documentdb-query-enablecrosspartition", "true").is(200).into(&got)
		if string(got.Documents) != want {
			t.Errorf("%s: %s, want %s", text, got.Documents, want)
		}
	}
}
