package store

import "github.com/millrace/millrace/feed"

// KeyOfValues returns the partition key whose components are raw JSON values, one for
// each path; ok is false if they are none, such as an array.
func KeyOfValues(values [][]byte) (key feed.PartitionKey, ok bool) {
	components := make([]any, len(values))
	for i, raw := range values {
		if len(raw) == 0 {
			return key, false
		}
		v, err := keyComponent(raw)
		if err != nil {
			return key, false
		}
		components[i] = v
	}
	key, err := feed.NewPartitionKey(components...)
	return key, err == nil
}
