package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/millrace/millrace/store"
)

// Policies for vectors and words are checked as the service checks them, in its words where its SDKs' tests
// want them, kept and shown again. They make no index: a search reads the items.

// vectorPolicy is a vectorEmbeddingPolicy.
type vectorPolicy struct {
	Embeddings []vectorEmbedding `json:"vectorEmbeddings"`
}

// vectorEmbedding says what vectors stand at a path. What is left out has the service's default.
type vectorEmbedding struct {
	Path       string          `json:"path"`
	DataType   string          `json:"dataType"`         // float32
	Dimensions *int            `json:"dimensions"`       // 1536
	Distance   string          `json:"distanceFunction"` // cosine
	Source     json.RawMessage `json:"embeddingSource"`
}

// vectorIndex is one of the vectorIndexes of an indexing policy.
type vectorIndex struct {
	Path       string   `json:"path"`
	Type       string   `json:"type"`
	Quantizer  string   `json:"quantizerType"`
	Bytes      *int     `json:"quantizationByteSize"`
	SearchList *int     `json:"indexingSearchListSize"`
	ShardKey   []string `json:"vectorIndexShardKey"`
}

// textPolicy is a fullTextPolicy.
type textPolicy struct {
	Default string `json:"defaultLanguage"`
	Paths   []struct {
		Path     string `json:"path"`
		Language string `json:"language"`
	} `json:"fullTextPaths"`
}

// searchIndexes are the indexes of vectors and words of an indexing policy.
type searchIndexes struct {
	Vectors []vectorIndex `json:"vectorIndexes"`
	Texts   []indexPath   `json:"fullTextIndexes"`
}

// The service's bounds.
const (
	dimensionsDefault    = 1536
	dimensionsMax        = 4096
	flatDimensionsMax    = 505 // of a flat index
	quantizationBytesMax = 512 // and no more than there are dimensions
	searchListMin        = 25
	searchListMax        = 500
	shardPathsMax        = 1
)

var (
	vectorTypes   = []string{"float32", "float16", "int8", "uint8"}
	distances     = []string{"cosine", "dotproduct", "euclidean"}
	indexTypes    = []string{"flat", "quantizedflat", "diskann"}
	textLanguages = []string{"en-us", "de-de", "es-es", "fr-fr", "it-it", "pt-br", "pt-pt"}
)

// known reports whether a word is left out or among those that a policy knows, in any case.
func known(words []string, word string) bool {
	return word == "" || slices.Contains(words, strings.ToLower(word))
}

// decodePolicy reads a part of a container's body that may be missing.
func decodePolicy(name string, raw json.RawMessage, into any) error {
	if isNull(raw) {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return refuse(http.StatusBadRequest, "One of the specified inputs is invalid: %s: %v", name, err)
	}
	return nil
}

// checkSearch checks the policies for vectors and words of a body, and the indexes of them.
func (c *containerJSON) checkSearch() error {
	var vectors vectorPolicy
	var texts textPolicy
	var indexes searchIndexes
	for _, part := range []struct {
		name string
		raw  json.RawMessage
		into any
	}{
		{"vectorEmbeddingPolicy", c.VectorEmbedding, &vectors}, {"fullTextPolicy", c.FullText, &texts}, {"indexingPolicy", c.IndexingPolicy, &indexes},
	} {
		if err := decodePolicy(part.name, part.raw, part.into); err != nil {
			return err
		}
	}
	dimensions, err := vectors.check()
	if err != nil {
		return err
	}
	for i := range indexes.Vectors {
		if err := indexes.Vectors[i].check(dimensions); err != nil {
			return err
		}
	}
	if err := texts.check(); err != nil {
		return err
	}
	for _, index := range indexes.Texts {
		if _, err := pointerOf(index.Path); err != nil {
			return refuse(http.StatusBadRequest, "The Full Text Indexing Policy contains an invalid Path: %s; a path such as /text is expected", clip(index.Path))
		}
	}
	return nil
}

// check returns how many numbers the vectors at each path have.
func (p *vectorPolicy) check() (dimensions map[string]int, err error) {
	dimensions = map[string]int{}
	for _, e := range p.Embeddings {
		n := dimensionsDefault
		if e.Dimensions != nil {
			n = *e.Dimensions
		}
		_, bad := pointerOf(e.Path)
		_, twice := dimensions[e.Path]
		switch {
		case bad != nil || strings.ContainsAny(e.Path, "*[]"):
			return nil, refuse(http.StatusBadRequest, "The Vector Embedding Policy has an invalid Path:%s; a path such as /vector is expected", clip(e.Path))
		case twice:
			return nil, refuse(http.StatusBadRequest, "The Vector Embedding Policy has the Path:%s twice", clip(e.Path))
		case !known(vectorTypes, e.DataType):
			return nil, refuse(http.StatusBadRequest, "The Vector Embedding Policy has an invalid DataType:%s for Path:%s; one of %v is expected",
				clip(e.DataType), clip(e.Path), vectorTypes)
		case !known(distances, e.Distance):
			return nil, refuse(http.StatusBadRequest, "The Vector Embedding Policy has an invalid DistanceFunction:%s for Path:%s; one of %v is expected",
				clip(e.Distance), clip(e.Path), distances)
		case n > dimensionsMax:
			return nil, refuse(http.StatusBadRequest, "The Vector Embedding Policy has Dimensions:%d which is more than the maximum supported value %d for Path:%s",
				n, dimensionsMax, clip(e.Path))
		case n < 1:
			return nil, refuse(http.StatusBadRequest, "The Vector Embedding Policy has Dimensions:%d for Path:%s; 1 to %d are allowed", n, clip(e.Path), dimensionsMax)
		case !isNull(e.Source):
			return nil, refuse(http.StatusBadRequest, "vectorEmbeddingPolicy: embeddingSource of %s is not served by Millrace, which calls no model", clip(e.Path))
		}
		dimensions[e.Path] = n
	}
	return dimensions, nil
}

// check checks an index over vectors of so many numbers at each path.
func (x *vectorIndex) check(dimensions map[string]int) error {
	n, ok := dimensions[x.Path]
	bytesMax := min(n, quantizationBytesMax)
	switch {
	case !ok:
		return refuse(http.StatusBadRequest, "The Vector Indexing Policy's path::%s not matching in Embedding's path.", clip(x.Path))
	case x.Type == "" || !known(indexTypes, x.Type):
		return refuse(http.StatusBadRequest, "The Vector Indexing Policy's Index Type::%s is invalid; flat, quantizedFlat or diskANN is expected", clip(x.Type))
	case strings.EqualFold(x.Type, "flat") && n > flatDimensionsMax:
		return refuse(http.StatusBadRequest, "The Vector Indexing Policy has a flat index of %s, whose vectors have %d dimensions; it takes up to %d",
			clip(x.Path), n, flatDimensionsMax)
	case x.Bytes != nil && (*x.Bytes < 1 || *x.Bytes > bytesMax):
		return refuse(http.StatusBadRequest, "The Vector Indexing Policy parameter QuantizationByteSize value :: %d is out of range. "+
			"The allowed range is between 1 and %d.", *x.Bytes, bytesMax)
	case x.SearchList != nil && (*x.SearchList < searchListMin || *x.SearchList > searchListMax):
		return refuse(http.StatusBadRequest, "The Vector Indexing Policy parameter IndexingSearchListSize value :: %d is out of range. "+
			"The allowed range is between %d and %d.", *x.SearchList, searchListMin, searchListMax)
	case len(x.ShardKey) > shardPathsMax:
		return refuse(http.StatusBadRequest, "The number of shard paths defined in the Vector Indexing Policy: %d exceeds the maximum: %d.",
			len(x.ShardKey), shardPathsMax)
	}
	for _, path := range x.ShardKey {
		if _, err := pointerOf(path); err != nil {
			return refuse(http.StatusBadRequest, "The Vector Indexing Policy has an invalid Shard Path: %s.", clip(path))
		}
	}
	return nil
}

func (p *textPolicy) check() error {
	if !known(textLanguages, p.Default) {
		return refuse(http.StatusBadRequest, "The Full Text Policy has an unsupported default language: %s; one of %v is expected", clip(p.Default), textLanguages)
	}
	for _, path := range p.Paths {
		if _, err := pointerOf(path.Path); err != nil {
			return refuse(http.StatusBadRequest, "The Full Text Policy contains an invalid Path: %s; a path such as /text is expected", clip(path.Path))
		}
		if !known(textLanguages, path.Language) {
			return refuse(http.StatusBadRequest, "The Full Text Policy has an unsupported language: %s of %s; one of %v is expected",
				clip(path.Language), clip(path.Path), textLanguages)
		}
	}
	return nil
}

// checkReplaced refuses a body that changes what the vectors at a path are, or how they are indexed: the service has that
// done by a new container, or by dropping the index first.
func (c *containerJSON) checkReplaced(before *containerJSON) error {
	var vectors, vectorsBefore vectorPolicy
	var indexes, indexesBefore searchIndexes
	for _, part := range []struct {
		raw  json.RawMessage
		into any
	}{
		{c.VectorEmbedding, &vectors}, {before.VectorEmbedding, &vectorsBefore}, {c.IndexingPolicy, &indexes}, {before.IndexingPolicy, &indexesBefore},
	} {
		if err := decodePolicy("policies", part.raw, part.into); err != nil {
			return err
		}
	}
	for _, e := range vectorsBefore.Embeddings {
		if !slices.ContainsFunc(vectors.Embeddings, func(now vectorEmbedding) bool { return reflect.DeepEqual(now, e) }) {
			return refuse(http.StatusBadRequest, "Paths in existing embedding policy cannot be modified in Collection Replace: %s", clip(e.Path))
		}
	}
	for _, x := range indexesBefore.Vectors {
		if slices.ContainsFunc(indexes.Vectors, func(now vectorIndex) bool { return now.Path == x.Path && !reflect.DeepEqual(now, x) }) {
			return refuse(http.StatusBadRequest, "Paths in existing vector indexing policy cannot be modified in Collection Replace: %s; drop the index first", clip(x.Path))
		}
	}
	return nil
}

// measure gives calls of VECTORDISTANCE in a query that name no distance function the one that the container's policy has of
// the property, as the service does. Such a query is sent on with the values of its parameters.
func (s *Server) measure(ctx context.Context, c *collection, r *store.QueryRequest) error {
	if !strings.Contains(strings.ToUpper(r.Text), "VECTORDISTANCE") {
		return nil
	}
	// The directory does not follow what is declared anew of a container.
	info, err := s.client.Catalog().Get(ctx, c.info.Database, c.info.Name)
	if err != nil {
		return err
	}
	kept, err := keptOf(&info)
	if err != nil {
		return err
	}
	var policy vectorPolicy
	if err := decodePolicy("vectorEmbeddingPolicy", kept.VectorEmbedding, &policy); err != nil {
		return err
	}
	of := map[string]string{}
	for _, e := range policy.Embeddings {
		if pointer, err := pointerOf(e.Path); err == nil && e.Distance != "" {
			of[pointer] = strings.ToLower(e.Distance)
		}
	}
	if len(of) == 0 {
		return nil
	}
	q, err := store.ParseQuery(r.Text, r.Params)
	if err != nil {
		return err
	}
	r.Text, r.Params = q.WithDistances(of).String(), nil
	return nil
}
