package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/millrace/millrace/store"
)

// containerJSON is the body of a container as clients send it. Policies for which Millrace has
// no equivalent are stored and returned as they were sent.
type containerJSON struct {
	ID                 string           `json:"id"`
	PartitionKey       json.RawMessage  `json:"partitionKey,omitempty"`
	DefaultTTL         *json.Number     `json:"defaultTtl,omitempty"`
	UniqueKeyPolicy    *uniqueKeyPolicy `json:"uniqueKeyPolicy,omitempty"`
	IndexingPolicy     json.RawMessage  `json:"indexingPolicy,omitempty"`
	ConflictResolution json.RawMessage  `json:"conflictResolutionPolicy,omitempty"`
	Geospatial         json.RawMessage  `json:"geospatialConfig,omitempty"`
	AnalyticalTTL      json.RawMessage  `json:"analyticalStorageTtl,omitempty"`
	ChangeFeedPolicy   json.RawMessage  `json:"changeFeedPolicy,omitempty"`
	VectorEmbedding    json.RawMessage  `json:"vectorEmbeddingPolicy,omitempty"`
	FullText           json.RawMessage  `json:"fullTextPolicy,omitempty"`

	// These change what queries and items mean, so they are refused unless empty.
	ComputedProperties json.RawMessage `json:"computedProperties,omitempty"`
	ClientEncryption   json.RawMessage `json:"clientEncryptionPolicy,omitempty"`
}

type uniqueKeyPolicy struct {
	UniqueKeys []uniqueKey `json:"uniqueKeys"`
}

type uniqueKey struct {
	Paths []string `json:"paths"`
}

// partitionKeyJSON is a partition key definition.
type partitionKeyJSON struct {
	Paths   []string   `json:"paths"`
	Kind    string     `json:"kind,omitempty"`
	Version keyVersion `json:"version,omitempty"`
}

// keyVersion is the version of a definition: a number, which the SDK for Java writes as V1 or V2.
type keyVersion int

// UnmarshalJSON reads it in either form.
func (v *keyVersion) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case `"V1"`:
		*v = 1
	case `"V2"`:
		*v = 2
	default:
		return json.Unmarshal(data, (*int)(v))
	}
	return nil
}

// The kinds of partition keys.
const (
	kindHash  = "Hash"
	kindMulti = "MultiHash"
)

// containerSpec is the spec of a body.
type containerSpec struct{ store.ContainerSpec }

func (c containerSpec) normalized() *store.ContainerSpec {
	c.Normalize()
	return &c.ContainerSpec
}

// spec returns the spec that a body declares.
func (c *containerJSON) spec() (containerSpec, error) {
	var spec containerSpec
	if c.ID == "" {
		return spec, refuse(http.StatusBadRequest, "the container has no id")
	}
	// Not kept like the other policies: a container that ignored them would answer otherwise
	// than its client expects.
	for name, value := range map[string]json.RawMessage{
		"computedProperties": c.ComputedProperties, "clientEncryptionPolicy": c.ClientEncryption,
	} {
		if !isEmpty(value) {
			return spec, refuse(http.StatusBadRequest, "%s is not served by Millrace", name)
		}
	}
	err := c.checkSearch()
	if err != nil {
		return spec, err
	}
	if spec.PartitionKey, err = parsePartitionKey(c.PartitionKey); err != nil {
		return spec, err
	}
	if spec.TTL, err = parseTTL(c.DefaultTTL); err != nil {
		return spec, err
	}
	if c.UniqueKeyPolicy != nil {
		for _, key := range c.UniqueKeyPolicy.UniqueKeys {
			var pointers []string
			for _, path := range key.Paths {
				pointer, err := pointerOf(path)
				if err != nil {
					return spec, refuse(http.StatusBadRequest, "uniqueKeyPolicy: %v", err)
				}
				pointers = append(pointers, pointer)
			}
			spec.UniqueKeys = append(spec.UniqueKeys, pointers)
		}
	}
	spec.Indexes, err = indexesOf(c.IndexingPolicy)
	return spec, err
}

// isEmpty reports whether a value is missing, null, or has nothing in it.
func isEmpty(raw json.RawMessage) bool {
	if len(raw) == 0 {
		return true
	}
	// Read once. Reading what is in it anew at each level took 5.7 s of a policy of 60 KB that
	// was nested 10,000 levels deep.
	var value any
	return json.Unmarshal(raw, &value) == nil && holdsNothing(value)
}

func holdsNothing(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, member := range v {
			if !holdsNothing(member) {
				return false
			}
		}
		return true
	}
	return false
}

// parsePartitionKey reads a partition key definition, or one path as a text.
func parsePartitionKey(raw json.RawMessage) ([]string, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, refuse(http.StatusBadRequest, `the container has no partitionKey; {"paths": ["/path"], "kind": "Hash"} is expected`)
	}
	var def partitionKeyJSON
	if raw[0] == '"' {
		def.Paths = make([]string, 1)
		if err := json.Unmarshal(raw, &def.Paths[0]); err != nil {
			return nil, refuse(http.StatusBadRequest, "partitionKey: %v", err)
		}
	} else if err := json.Unmarshal(raw, &def); err != nil {
		return nil, refuse(http.StatusBadRequest, "partitionKey: %v", err)
	}
	n := len(def.Paths)
	switch {
	case n > store.PartitionKeyPathsMax:
		return nil, refuse(http.StatusBadRequest, "Too many partition key paths: %d; 1 to %d are allowed", n, store.PartitionKeyPathsMax)
	case n == 0:
		return nil, refuse(http.StatusBadRequest, "partitionKey has no paths; 1 to %d are allowed", store.PartitionKeyPathsMax)
	case def.Kind != "" && def.Kind != kindHash && def.Kind != kindMulti:
		return nil, refuse(http.StatusBadRequest, "partitionKey.kind is %q; Hash or MultiHash is expected", clip(def.Kind))
	case n > 1 && def.Kind == kindHash:
		return nil, refuse(http.StatusBadRequest, "partitionKey has %d paths; its kind must be MultiHash", n)
	case def.Version < 0 || def.Version > 2:
		return nil, refuse(http.StatusBadRequest, "partitionKey.version is %d; 2 is expected", def.Version)
	}
	pointers := make([]string, n)
	for i, path := range def.Paths {
		var err error
		if pointers[i], err = pointerOf(path); err != nil {
			return nil, refuse(http.StatusBadRequest, "partitionKey: %v", err)
		}
	}
	return pointers, nil
}

// parseTTL reads defaultTtl: missing is off, -1 on, else seconds.
func parseTTL(n *json.Number) (store.TTL, error) {
	if n == nil {
		return 0, nil
	}
	v, err := n.Int64()
	if err != nil || v < -1 || v == 0 || v > 1<<31-1 {
		return 0, refuse(http.StatusBadRequest, "defaultTtl is %s; -1 or 1 to 2147483647 seconds are allowed", clip(n.String()))
	}
	return store.TTL(v), nil
}

// keptPolicies are what the catalog keeps of a container beside its spec: policies as they were
// sent, and the throughput that was asked for. Containers that YAML declared may have none.
type keptPolicies struct {
	containerJSON
	Offer *offer `json:"offer,omitempty"`
}

// kept returns what is stored of a body beside its spec.
func (c *containerJSON) kept(o *offer) *keptPolicies {
	return &keptPolicies{Offer: o, containerJSON: containerJSON{
		IndexingPolicy: c.IndexingPolicy, ConflictResolution: c.ConflictResolution, Geospatial: c.Geospatial,
		AnalyticalTTL: c.AnalyticalTTL, ChangeFeedPolicy: c.ChangeFeedPolicy,
		VectorEmbedding: c.VectorEmbedding, FullText: c.FullText,
	}}
}

func (k *keptPolicies) encode() (json.RawMessage, error) {
	data, err := json.Marshal(k)
	if err != nil {
		return nil, fmt.Errorf("container policies: %w", err)
	}
	return data, nil
}

// keptOf returns what the catalog keeps of a container.
func keptOf(info *store.ContainerInfo) (*keptPolicies, error) {
	var kept keptPolicies
	if len(info.Policies) > 0 {
		if err := json.Unmarshal(info.Policies, &kept); err != nil {
			return nil, fmt.Errorf("policies of container %s: %w", info.Name, err)
		}
	}
	return &kept, nil
}

// containerAnswer is the body of a container in answers.
type containerAnswer struct {
	ID                 string           `json:"id"`
	IndexingPolicy     json.RawMessage  `json:"indexingPolicy"`
	PartitionKey       partitionKeyJSON `json:"partitionKey"`
	DefaultTTL         *int64           `json:"defaultTtl,omitempty"`
	UniqueKeyPolicy    *uniqueKeyPolicy `json:"uniqueKeyPolicy,omitempty"`
	ConflictResolution json.RawMessage  `json:"conflictResolutionPolicy"`
	Geospatial         json.RawMessage  `json:"geospatialConfig"`
	AnalyticalTTL      json.RawMessage  `json:"analyticalStorageTtl,omitempty"`
	ChangeFeedPolicy   json.RawMessage  `json:"changeFeedPolicy,omitempty"`
	VectorEmbedding    json.RawMessage  `json:"vectorEmbeddingPolicy,omitempty"`
	FullText           json.RawMessage  `json:"fullTextPolicy,omitempty"`
	RID                string           `json:"_rid"`
	Modified           int64            `json:"_ts"`
	Self               string           `json:"_self"`
	ETag               string           `json:"_etag"`
	Documents          string           `json:"_docs"`
	Procedures         string           `json:"_sprocs"`
	Triggers           string           `json:"_triggers"`
	Functions          string           `json:"_udfs"`
	Conflicts          string           `json:"_conflicts"`

	Statistics []rangeStatistics `json:"statistics,omitempty"`
}

// rangeStatistics are those of a physical partition, as far as they are known: no sizes, and no keys.
type rangeStatistics struct {
	ID        string `json:"id"`
	Documents int64  `json:"documentCount"`
}

var (
	conflictDefault   = json.RawMessage(`{"mode":"LastWriterWins","conflictResolutionPath":"/_ts","conflictResolutionProcedure":""}`)
	geospatialDefault = json.RawMessage(`{"type":"Geography"}`)
)

// containerBody returns the body of a container, whether a client or YAML declared it.
func containerBody(info *store.ContainerInfo) (*containerAnswer, error) {
	kept, err := keptOf(info)
	if err != nil {
		return nil, err
	}
	own := info.RID()
	key := partitionKeyJSON{Kind: kindHash, Version: 2}
	for _, pointer := range info.Spec.PartitionKey {
		key.Paths = append(key.Paths, pathOf(pointer))
	}
	if len(key.Paths) > 1 {
		key.Kind = kindMulti
	}
	c := &containerAnswer{
		ID: info.Name, PartitionKey: key, IndexingPolicy: indexingPolicyOf(&info.Spec, kept.IndexingPolicy),
		ConflictResolution: orDefault(kept.ConflictResolution, conflictDefault),
		Geospatial:         orDefault(kept.Geospatial, geospatialDefault),
		AnalyticalTTL:      kept.AnalyticalTTL, ChangeFeedPolicy: kept.ChangeFeedPolicy,
		VectorEmbedding: orDefault(kept.VectorEmbedding, nil), FullText: orDefault(kept.FullText, nil),
		RID: own.String(), Modified: unixSeconds(info.Created), Self: own.Self(),
		ETag: `"` + revisionTag(info.Revision) + `"`, Documents: "docs/", Procedures: "sprocs/", Triggers: "triggers/",
		Functions: "udfs/", Conflicts: "conflicts/",
	}
	if ttl := int64(info.Spec.TTL); ttl != 0 {
		c.DefaultTTL = &ttl
	}
	if len(info.Spec.UniqueKeys) > 0 {
		c.UniqueKeyPolicy = &uniqueKeyPolicy{}
		for _, pointers := range info.Spec.UniqueKeys {
			var key uniqueKey
			for _, pointer := range pointers {
				key.Paths = append(key.Paths, pathOf(pointer))
			}
			c.UniqueKeyPolicy.UniqueKeys = append(c.UniqueKeyPolicy.UniqueKeys, key)
		}
	}
	return c, nil
}

func orDefault(raw, otherwise json.RawMessage) json.RawMessage {
	if len(raw) == 0 || strings.TrimSpace(string(raw)) == "null" {
		return otherwise
	}
	return raw
}
