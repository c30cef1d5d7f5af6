package spec

import "encoding/json"

// SourceFields are the fields of a source that one field of a copy equals; one, but
// for sources that hold one value in several fields, such as an item whose id is also
// its partition key. One field is written as a text, several as a list of texts.
type SourceFields []string

// MarshalJSON writes one field as a text, several as an array.
func (f SourceFields) MarshalJSON() ([]byte, error) {
	if len(f) == 1 {
		return json.Marshal(f[0])
	}
	return json.Marshal([]string(f))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *SourceFields) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		*f = make(SourceFields, 1)
		return json.Unmarshal(data, &(*f)[0])
	}
	return json.Unmarshal(data, (*[]string)(f))
}

// MarshalYAML writes one field as a text, several as a list.
func (f SourceFields) MarshalYAML() (any, error) {
	if len(f) == 1 {
		return f[0], nil
	}
	return []string(f), nil
}
