package users

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/store/naming"
	"github.com/millrace/millrace/store/rid"
)

// Limits.
const (
	// Max bounds the users of a database.
	Max = 10_000
	// PermissionsMax bounds the permissions of a user.
	PermissionsMax = 500
	// recordBytesMax bounds a user's record, half of what NATS takes of a message by default.
	recordBytesMax = 512 << 10
)

// User is a user of a database.
type User struct {
	Database string `json:"database"`
	// DatabaseRID is the text of the resource id of the database. A user of one that was deleted is none of
	// the one that was made anew under its name.
	DatabaseRID string       `json:"databaseRid"`
	Name        string       `json:"name"`
	RID         string       `json:"rid"`
	Tag         string       `json:"tag"` // another after each change of the user, but not of its permissions
	Modified    time.Time    `json:"modified"`
	Permissions []Permission `json:"permissions,omitempty"`

	revision uint64
}

// Mode is what a permission allows.
type Mode string

// The modes.
const (
	Read Mode = "Read"
	All  Mode = "All" // to read, write and delete
)

// Permission is one resource that a user may use.
type Permission struct {
	Name     string    `json:"name"`
	RID      string    `json:"rid"`
	Tag      string    `json:"tag"` // another after each change
	Modified time.Time `json:"modified"`
	// Serial is what its tokens name: another after each change of what the permission opens.
	Serial Serial `json:"serial"`
	Scope
}

// Scope is what a permission opens.
type Scope struct {
	Mode Mode `json:"mode"`
	// Word is the mode in the case in which it was given, which is shown; "": as Mode has it.
	Word string `json:"word,omitempty"`
	// Resource is the link to the resource as it was given; what follows says what it leads to.
	Resource string `json:"resource"`
	// Container is the name of the container, ContainerRID the text of its resource id.
	Container    string `json:"container"`
	ContainerRID string `json:"containerRid"`
	// Key is the partition key within which the permission holds, a JSON array; "": within all.
	Key string `json:"key,omitempty"`
	// Item is the id of the only item that is opened, or ItemRID the text of its resource id; "": all items.
	Item    string `json:"item,omitempty"`
	ItemRID string `json:"itemRid,omitempty"`
}

// SameResource tells whether two permissions are for the same: a user may have one of them.
func (s *Scope) SameResource(other *Scope) bool {
	return s.ContainerRID == other.ContainerRID && s.Key == other.Key && s.Item == other.Item && s.ItemRID == other.ItemRID
}

// Serial tells the tokens of one state of a permission from all others.
type Serial [16]byte

// MarshalText writes a serial in hexadecimal.
func (s Serial) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(s[:])), nil }

// UnmarshalText reads one.
func (s *Serial) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(s) {
		return fmt.Errorf("serial %.40q has not %d bytes", text, len(s))
	}
	_, err := hex.Decode(s[:], text)
	return err
}

func newTag() string {
	var b [8]byte
	rand.Read(b[:]) // never returns an error since Go 1.24
	return hex.EncodeToString(b[:])
}

// now is the time of a change, in the seconds that the protocol shows.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// CheckName returns an error unless a user or permission may be called so: as a container.
func CheckName(name string) error { return naming.Check(name) }

// Permission returns the permission of a name, nil if there is none.
func (u *User) Permission(name string) *Permission {
	return u.find(func(p *Permission) bool { return p.Name == name })
}

// PermissionOf returns the permission of a serial, nil if there is none.
func (u *User) PermissionOf(serial Serial) *Permission {
	return u.find(func(p *Permission) bool { return p.Serial == serial })
}

// PermissionOfRID returns the permission of a resource id, nil if there is none.
func (u *User) PermissionOfRID(text string) *Permission {
	return u.find(func(p *Permission) bool { return p.RID == text })
}

func (u *User) find(is func(*Permission) bool) *Permission {
	for i := range u.Permissions {
		if is(&u.Permissions[i]) {
			return &u.Permissions[i]
		}
	}
	return nil
}

// Permit adds a permission, or returns *TakenError or *FullError.
func (u *User) Permit(name string, scope Scope) (*Permission, error) {
	if len(u.Permissions) >= PermissionsMax {
		return nil, &FullError{fmt.Sprintf("user %s has %d permissions, which is as many as are allowed", u.Name, PermissionsMax)}
	}
	own, err := rid.ParseUser(u.RID)
	if err != nil {
		return nil, err
	}
	if err := u.checkFree(nil, name, &scope); err != nil {
		return nil, err
	}
	u.Permissions = append(u.Permissions, Permission{Name: name, RID: rid.NewPermission(own).String()})
	p := &u.Permissions[len(u.Permissions)-1]
	p.set(name, scope)
	return p, nil
}

// Replace changes a permission of u, or returns *TakenError. Where it opens another thing than before, the
// tokens that were given open nothing any more.
func (u *User) Replace(p *Permission, name string, scope Scope) error {
	if err := u.checkFree(p, name, &scope); err != nil {
		return err
	}
	p.set(name, scope)
	return nil
}

// checkFree refuses the name, and the resource, of a permission other than p.
func (u *User) checkFree(p *Permission, name string, scope *Scope) error {
	if other := u.find(func(o *Permission) bool { return o != p && o.Name == name }); other != nil {
		return &TakenError{fmt.Sprintf("user %s has a permission %s already", u.Name, name)}
	}
	if other := u.find(func(o *Permission) bool { return o != p && o.SameResource(scope) }); other != nil {
		return &TakenError{fmt.Sprintf("user %s has a permission for the same resource already: %s", u.Name, other.Name)}
	}
	return nil
}

func (p *Permission) set(name string, scope Scope) {
	before := p.Scope
	p.Name, p.Scope, p.Tag, p.Modified = name, scope, newTag(), now()
	before.Resource, before.Word = scope.Resource, scope.Word // which may be written in several ways
	if before != scope || p.Serial == (Serial{}) {
		rand.Read(p.Serial[:])
	}
}

// Forbid removes a permission of u.
func (u *User) Forbid(p *Permission) {
	name := p.Name // p is in the list that changes
	u.Permissions = slices.DeleteFunc(u.Permissions, func(o Permission) bool { return o.Name == name })
}
