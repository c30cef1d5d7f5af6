package reference

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// schema is what is read of a JSON Schema: the words that the generator uses.
type schema struct {
	Ref           string              `json:"$ref"`
	Title         string              `json:"title"`
	Description   string              `json:"description"`
	Type          string              `json:"type"`
	Const         any                 `json:"const"`
	Enum          []any               `json:"enum"`
	Default       any                 `json:"default"`
	Pattern       string              `json:"pattern"`
	Minimum       json.Number         `json:"minimum"`
	Maximum       json.Number         `json:"maximum"`
	MinItems      int                 `json:"minItems"`
	MaxItems      int                 `json:"maxItems"`
	MinProperties int                 `json:"minProperties"`
	MaxProperties int                 `json:"maxProperties"`
	Items         *schema             `json:"items"`
	Properties    properties          `json:"properties"`
	Additional    additional          `json:"additionalProperties"`
	Required      []string            `json:"required"`
	Dependent     map[string][]string `json:"dependentRequired"`
	OneOf         []*schema           `json:"oneOf"`
	AnyOf         []*schema           `json:"anyOf"`
	Examples      []any               `json:"examples"`
	Definitions   map[string]*schema  `json:"$defs"`
}

// property is a named schema.
type property struct {
	name string
	*schema
}

// properties are in the order of the text, which is that of the fields in Go: what belongs
// together stands together.
type properties []property

// UnmarshalJSON implements json.Unmarshaler.
func (p *properties) UnmarshalJSON(data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil { // {
		return err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return err
		}
		s := &schema{}
		if err := dec.Decode(s); err != nil {
			return err
		}
		*p = append(*p, property{fmt.Sprint(name), s})
	}
	return nil
}

// additional is what the entries of a mapping are, nil if it may have none beside its
// properties.
type additional struct{ *schema }

// UnmarshalJSON implements json.Unmarshaler.
func (a *additional) UnmarshalJSON(data []byte) error {
	if string(data) == "false" {
		return nil
	}
	a.schema = &schema{}
	return json.Unmarshal(data, a.schema)
}

// definition returns the name that a schema refers to, "" if it does not.
func (s *schema) definition() string { return strings.TrimPrefix(s.Ref, "#/$defs/") }
