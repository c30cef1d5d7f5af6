package store

import (
	"github.com/millrace/millrace/feed"
)

// AppendCursor appends to dst the cursor of a scan that ends at an item: the number
// of levels of its partition key, the hash of that, its encoding, and the id. Scans
// show items in the order of their cursors.
func AppendCursor(dst []byte, key feed.PartitionKey, id string) []byte {
	dst = append(dst, byte(key.Levels()))
	dst = append(dst, key.Hash()...)
	dst = append(dst, key.Encoded()...)
	return append(dst, id...)
}
