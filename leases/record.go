package leases

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// recordVersion is the version of all records that this package writes.
// FORMAT.md describes them.
const recordVersion = 1

// ttlMax bounds the lifetime that a record may claim.
const ttlMax = 10 * time.Minute

// VersionError says that a record was written by a later release.
type VersionError struct {
	Key     string
	Version int
}

// Error names the key and the version.
func (e *VersionError) Error() string {
	return fmt.Sprintf("leases: record %s has version %d, this release reads up to %d", e.Key, e.Version, recordVersion)
}

// leaseRecord is the value of a lease's key.
type leaseRecord struct {
	Version    int     `json:"v"`
	Resource   string  `json:"resource"`
	Owner      string  `json:"owner,omitempty"` // node/incarnation; empty: free
	Last       string  `json:"last,omitempty"`  // owner before the lease became free
	Host       string  `json:"host,omitempty"`
	Epoch      uint64  `json:"epoch"`
	Write      uint64  `json:"write"` // number of this write among those of its writer
	TTL        int64   `json:"ttlMs"`
	Weight     float64 `json:"weight,omitempty"` // 0 means 1
	Checkpoint []byte  `json:"checkpoint,omitempty"`
	LastError  string  `json:"lastError,omitempty"`
	Attempts   int     `json:"attempts,omitempty"`
	Used       *use    `json:"used,omitempty"`       // nil: as an earlier release wrote it
	Bound      bool    `json:"bound,omitempty"`      // see Held.Bind
	Right      string  `json:"right,omitempty"`      // incarnation of the owner's read right
	Waits      bool    `json:"waits,omitempty"`      // the owner may have to wait before it serves, see Held.Settle
	Acquired   int64   `json:"acquiredMs,omitempty"` // unix ms, informative
	Progress   int64   `json:"progressMs,omitempty"` // unix ms, informative
}

// memberRecord is the value of a member's key.
type memberRecord struct {
	Version     int      `json:"v"`
	Node        string   `json:"node"`
	Incarnation string   `json:"incarnation"`
	Host        string   `json:"host,omitempty"`
	Beat        uint64   `json:"beat"` // number of this write among those of its writer
	TTL         int64    `json:"ttlMs"`
	Locked      bool     `json:"locked,omitempty"`
	Closed      bool     `json:"closed,omitempty"` // takes nothing: not running yet, draining, or ending
	Drains      bool     `json:"drains,omitempty"` // closed only because its node is to drain
	Left        bool     `json:"left,omitempty"`
	Resources   uint64   `json:"resources,omitempty,string"` // digest of the set it knows
	Declines    []string `json:"declines,omitempty"`         // resources it will not take for now
	Started     int64    `json:"startedMs,omitempty"`        // unix ms, informative
	// Warm are the resources that the member is prepared to take, and how far it is with each.
	Warm    map[string]uint64 `json:"warm,omitempty"`
	Loading []string          `json:"loading,omitempty"` // resources for which it is about to become warm
	Remarks map[string]string `json:"remarks,omitempty"` // on resources, for people
	Level   int               `json:"level,omitempty"`   // see Config.Level
	// Answers says that the process answers who asks whether it is there, Gone which holder found that nobody does.
	Answers bool   `json:"answers,omitempty"`
	Gone    string `json:"gone,omitempty"`
	Right   string `json:"right,omitempty"` // incarnation of its read right
}

// isLoading reports whether the member says that it is about to become warm for a resource.
func (r *memberRecord) isLoading(resource string) bool {
	return r != nil && slices.Contains(r.Loading, resource)
}

func (r *memberRecord) holder() string { return r.Node + "/" + r.Incarnation }

func (r *leaseRecord) ttl() time.Duration  { return boundTTL(r.TTL) }
func (r *memberRecord) ttl() time.Duration { return boundTTL(r.TTL) }

// boundTTL bounds the lifetime that a record states, so that a wrong one cannot keep a lease
// from ever being taken again.
func boundTTL(ms int64) time.Duration {
	if ms <= 0 || ms > ttlMax.Milliseconds() {
		return ttlMax
	}
	return time.Duration(ms) * time.Millisecond
}

// encode renders a record. Its field types cannot fail to encode.
func encode(record any) []byte {
	data, err := json.Marshal(record)
	if err != nil {
		panic(fmt.Sprintf("leases: encode %+v: %v", record, err))
	}
	return data
}

func decodeLease(key string, data []byte) (*leaseRecord, error) {
	r := new(leaseRecord)
	if err := decode(key, data, r); err != nil {
		return nil, err
	}
	if r.Resource == "" {
		return nil, fmt.Errorf("record %s: no resource", key)
	}
	if r.Owner != "" && NodeOf(r.Owner) == "" {
		return nil, fmt.Errorf("record %s: owner %q is not node/incarnation", key, r.Owner)
	}
	return r, nil
}

func decodeMember(key string, data []byte) (*memberRecord, error) {
	r := new(memberRecord)
	if err := decode(key, data, r); err != nil {
		return nil, err
	}
	if r.Node == "" || r.Incarnation == "" {
		return nil, fmt.Errorf("record %s: no node or no incarnation", key)
	}
	return r, nil
}

func decode(key string, data []byte, record any) error {
	// The version first: the other members of a later version may have other types, and the
	// error must name the version and not a type.
	var head struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	if head.Version > recordVersion {
		return &VersionError{Key: key, Version: head.Version}
	}
	if head.Version < 1 {
		return fmt.Errorf("record %s: version %d", key, head.Version)
	}
	if err := json.Unmarshal(data, record); err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	return nil
}

const (
	leasePrefix  = "lease."
	memberPrefix = "member."
	drainPrefix  = "drain."
)

func leaseKey(group, resource string) string { return leasePrefix + group + "." + escape(resource) }
func memberKey(group, node string) string    { return memberPrefix + group + "." + escape(node) }
func drainKey(node string) string            { return drainPrefix + escape(node) }

// splitKey splits a key into its parts; name is still escaped.
func splitKey(key string) (kind, group, name string, ok bool) {
	parts := strings.SplitN(key, ".", 3)
	if len(parts) != 3 {
		return "", "", "", false
	}
	return parts[0] + ".", parts[1], parts[2], true
}

// escape writes a name with the characters of a key's last token: letters,
// digits, "-", "_" and "/" as they are, any other byte as "=" and two hex
// digits.
func escape(name string) string {
	// The rest has a meaning in subjects (. * >), or is not allowed in keys. = itself is
	// escaped too, so each key is of one name.
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '/':
			b.WriteByte(c)
		default:
			b.WriteByte('=')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String()
}

// NodeOf returns the node of a holder of leases, which is node/incarnation; "" of anything else.
func NodeOf(holder string) string {
	node, _, ok := strings.Cut(holder, "/")
	if !ok {
		return ""
	}
	return node
}

// checkResource returns what is wrong with the name of a resource, nil if nothing is.
func checkResource(name string) error {
	if name == "" {
		return errors.New("leases: resource without a name")
	}
	if !utf8.ValidString(name) {
		return fmt.Errorf("leases: resource name %q is not UTF-8", name)
	}
	if len(name) > ResourceBytesMax {
		return fmt.Errorf("leases: resource name of %d bytes is longer than %d", len(name), ResourceBytesMax)
	}
	return nil
}

// newID returns n random characters of lower-case base32. It is unique, not
// secret.
func newID(n int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	id := make([]byte, n)
	for i := range id {
		id[i] = alphabet[rand.IntN(len(alphabet))]
	}
	return string(id)
}

// unescape undoes escape.
func unescape(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '=' && i+2 < len(name) {
			if c, err := strconv.ParseUint(name[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String()
}
