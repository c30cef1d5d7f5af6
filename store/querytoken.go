package store

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	stdhash "hash"
	"time"

	"github.com/millrace/millrace/feed"
)

const (
	queryTokenVersion = 1
	queryHashLen      = 12
)

// queryToken is how far the pages of a query have come. Its text is base64url of
//
//	version 1
//	hash of the container, the query and its parameters (12 bytes)
//	clock of the query (uvarint, microseconds)
//	rows passed (uvarint)
//	via (length uvarint, text)
//	from: where the partition that is being read begins (length uvarint, bytes)
//	after: length plus one (uvarint; 0 is none), the key of the last row
//
// A place is that of a row, or of an item without one, and not a number of rows: so it
// holds whatever is written, and wherever the partition is.
type queryToken struct {
	now    time.Time
	passed int64
	via    string
	from   feed.EPK
	after  []byte
}

// queryHash identifies the query that a token belongs to.
func queryHash(container feed.ResourceID, r *QueryRequest) (hash [queryHashLen]byte) {
	return queryHashes(container, r)(r.Range)
}

// queryHashes returns the hashes of a query over ranges, each of which costs little.
func queryHashes(container feed.ResourceID, r *QueryRequest) func(over feed.Range) [queryHashLen]byte {
	w := wireWriter{}
	w.str(string(container))
	w.str(r.Text)
	w.uint(uint64(len(r.Params)))
	for _, p := range r.Params {
		w.str(p.Name)
		w.bytes(p.Value)
	}
	w.str(r.Key.Encoded())
	query := sha256.New()
	_, _ = query.Write(w.buf) // a hash takes everything
	return func(over feed.Range) (hash [queryHashLen]byte) {
		whole, err := query.(stdhash.Cloner).Clone()
		if err != nil {
			panic(fmt.Sprintf("store: SHA-256 is cloned with %v", err))
		}
		w := wireWriter{}
		w.str(string(over.Min))
		w.str(string(over.Max))
		_, _ = whole.Write(w.buf)
		copy(hash[:], whole.Sum(nil))
		return hash
	}
}

// text returns the token as the client gets it. The error is 400 if it would be
// longer than QueryTokenMax.
func (t *queryToken) text(hash [queryHashLen]byte) (string, error) {
	b := append([]byte{queryTokenVersion}, hash[:]...)
	b = binary.AppendUvarint(b, uint64(max(t.now.UnixMicro(), 0)))
	b = binary.AppendUvarint(b, uint64(t.passed))
	w := wireWriter{b}
	w.str(t.via)
	w.str(string(t.from))
	w.bytes(t.after)
	text := base64.RawURLEncoding.EncodeToString(w.buf)
	if len(text) > QueryTokenMax {
		return "", Refuse(StatusBadRequest, "the query cannot be continued in pages: the values of ORDER BY, the partition key and the id "+
			"of its next item have %d bytes together, and a continuation token has at most %d; order by shorter values, or ask for all rows in one page",
			len(t.after), QueryTokenMax)
	}
	return text, nil
}

var errForeignToken = errors.New("it was made for another query, other parameters or another container")

// parseQueryToken reads what text returned for the same hash. The error is 400.
func parseQueryToken(text string, hash [queryHashLen]byte) (*queryToken, error) {
	t, err := decodeQueryToken(text, hash)
	if err != nil {
		return nil, Refuse(StatusBadRequest, "continuation token: %v; begin the query again without it", err)
	}
	return t, nil
}

func decodeQueryToken(text string, hash [queryHashLen]byte) (*queryToken, error) {
	if len(text) > QueryTokenMax {
		return nil, errWireShort
	}
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errors.New("it is no base64url")
	}
	d := wireReader{buf: data}
	if v := d.byte(); d.err == nil && v != queryTokenVersion {
		return nil, errors.New("its version is not known to this release")
	}
	// By the hash a token that was made for another query is refused, rather than read as a
	// place in this one's order.
	if subtle.ConstantTimeCompare(d.take(queryHashLen), hash[:]) == 0 {
		return nil, errForeignToken
	}
	t := &queryToken{now: time.UnixMicro(int64(d.int())).UTC(), passed: int64(d.int())}
	t.via, t.from, t.after = d.str(), feed.EPK(d.str()), bytes.Clone(d.bytes())
	if err := d.end("token"); err != nil {
		return nil, err
	}
	return t, nil
}
