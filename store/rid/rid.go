// Package rid makes and reads the resource ids of the Azure Cosmos DB protocol, of
// which its links by id are made. Clients take them apart, so they have the service's form:
//
//	database     4 bytes
//	container    those of its database and 4 more, of which the first has the high bit set
//	in it        those of its container and 8 more; the high half of the last byte tells the kind
//	user         those of its database and 4 more, of which the first has the high bit clear
//	permission   those of its user and 8 more
//
// As text they are base64 with - for /.
package rid

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/millrace/millrace/feed"
)

// Database is the resource id of a database; zero is none.
type Database [4]byte

// Container is that of a container.
type Container [8]byte

// Inside is that of an item, or of a physical partition, in a container.
type Inside [16]byte

// User is that of a user of a database.
type User [8]byte

// Permission is that of a permission of a user.
type Permission [16]byte

// The kinds of what is in a container.
const (
	kindItem  = 0x00
	kindRange = 0x50
)

// scriptKinds are those of scripts, by their words in links.
var scriptKinds = map[string]byte{"sprocs": 0x80, "triggers": 0x70, "udfs": 0x60}

// ImpliedDatabase is the resource id of a database that was given none: its name decides.
func ImpliedDatabase(name string) Database {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	return Database(h.Sum(nil))
}

// NewContainer is the resource id of a container in a database. What is made anew has another.
func NewContainer(in Database, id feed.ResourceID) (c Container) {
	copy(c[:], in[:])
	if raw, err := base32.StdEncoding.DecodeString(strings.ToUpper(string(id))); err == nil && len(raw) == 5 {
		copy(c[len(in):], raw[1:])
	}
	c[len(in)] |= 0x80
	return c
}

// Item is the resource id of an item, a hash of its partition key and id behind the container's: so one
// that is deleted and made again has the same.
func Item(in Container, key feed.PartitionKey, id string) (i Inside) {
	var buf [256]byte
	// The encoding of a key ends itself, so what follows it is the id.
	sum := sha256.Sum256(append(append(buf[:0], key.Encoded()...), id...))
	copy(i[copy(i[:], in[:]):], sum[:])
	i[len(i)-1] = i[len(i)-1]&0x0f | kindItem
	return i
}

// Script is the resource id of a stored procedure, trigger or function, a hash of its id; kind is the word for it in links.
func Script(in Container, kind, id string) (i Inside) {
	sum := sha256.Sum256([]byte(kind + "/" + id))
	copy(i[copy(i[:], in[:]):], sum[:])
	i[len(i)-1] = i[len(i)-1]&0x0f | scriptKinds[kind]
	return i
}

// Range is the resource id of a physical partition.
func Range(in Container, number uint32) (i Inside) {
	binary.LittleEndian.PutUint32(i[copy(i[:], in[:]):], number)
	i[len(i)-1] = kindRange
	return i
}

// NewUser draws the resource id of a user of a database. Two users have the same once in two thousand million times.
func NewUser(in Database) (u User) {
	rand.Read(u[copy(u[:], in[:]):]) // never returns an error since Go 1.24
	u[len(in)] &= 0x7f
	return u
}

// NewPermission draws the resource id of a permission of a user.
func NewPermission(of User) (p Permission) {
	rand.Read(p[copy(p[:], of[:]):])
	return p
}

// Database is the resource id of the container's database.
func (c Container) Database() Database { return Database(c[:len(Database{})]) }

// Container is the resource id of the container in which i is.
func (i Inside) Container() Container { return Container(i[:len(Container{})]) }

// IsItem reports whether i is that of an item.
func (i Inside) IsItem() bool { return i[len(i)-1]&0xf0 == kindItem }

func (d Database) String() string  { return text(d[:]) }
func (c Container) String() string { return text(c[:]) }
func (i Inside) String() string    { return text(i[:]) }

func (u User) String() string       { return text(u[:]) }
func (p Permission) String() string { return text(p[:]) }

// Self is the link to the database. Links end with a slash.
func (d Database) Self() string { return "dbs/" + d.String() + "/" }

// Self is the link to the container.
func (c Container) Self() string { return c.Database().Self() + "colls/" + c.String() + "/" }

// ItemSelf is the link to an item.
func (i Inside) ItemSelf() string {
	// Every answer has one for each item.
	var scratch [96]byte
	b := encoding.AppendEncode(append(scratch[:0], "dbs/"...), i[:len(Database{})])
	b = encoding.AppendEncode(append(b, "/colls/"...), i[:len(Container{})])
	b = encoding.AppendEncode(append(b, "/docs/"...), i[:])
	return string(append(b, '/'))
}

// ScriptSelf is the link to a script of a kind.
func (i Inside) ScriptSelf(kind string) string {
	return i.Container().Self() + kind + "/" + i.String() + "/"
}

// RangeSelf is the link to a physical partition.
func (i Inside) RangeSelf() string { return i.Container().Self() + "pkranges/" + i.String() + "/" }

// Self is the link to the user.
func (u User) Self() string {
	return Database(u[:len(Database{})]).Self() + "users/" + u.String() + "/"
}

// Self is the link to the permission.
func (p Permission) Self() string {
	return User(p[:len(User{})]).Self() + "permissions/" + p.String() + "/"
}

// encoding is base64 with - for /.
var encoding = base64.NewEncoding("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-").Strict()

func text(raw []byte) string { return encoding.EncodeToString(raw) }

// IsDatabase tells whether a text is the resource id of a database. It is asked of the names in every path.
func IsDatabase(s string) bool {
	var d Database
	return decode(s, d[:])
}

// ParseDatabase reads the text of a database's resource id.
func ParseDatabase(s string) (d Database, err error) {
	err = parse(s, d[:])
	return d, err
}

// ParseContainer reads that of a container's.
func ParseContainer(s string) (c Container, err error) {
	err = parse(s, c[:])
	return c, err
}

// ParseInside reads that of what is in a container.
func ParseInside(s string) (i Inside, err error) {
	err = parse(s, i[:])
	return i, err
}

// ParseUser reads that of a user's.
func ParseUser(s string) (u User, err error) {
	err = parse(s, u[:])
	return u, err
}

// ParsePermission reads that of a permission's.
func ParsePermission(s string) (p Permission, err error) {
	err = parse(s, p[:])
	return p, err
}

func parse(s string, into []byte) error {
	if !decode(s, into) {
		return fmt.Errorf("%.40q is no resource id: base64, with - for /, of %d bytes is expected", s, len(into))
	}
	return nil
}

// decode takes the one text alone that String returns. It leaves into as it is otherwise.
func decode(s string, into []byte) bool {
	// Decode writes all that the letters of the longest stand for, bytes that are too many among them.
	var raw [(len(Inside{}) + 2) / 3 * 3]byte
	if len(s) != encoding.EncodedLen(len(into)) || strings.ContainsAny(s, "\r\n") { // which base64 skips
		return false
	}
	n, err := encoding.Decode(raw[:], []byte(s))
	if err != nil || n != len(into) {
		return false
	}
	copy(into, raw[:])
	return true
}
