package gateway

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/users"
)

// dateWindow is how far the date of a signature may be off, as in the service.
const dateWindow = 15 * time.Minute

// access is what a key allows.
type access uint8

const (
	accessNone access = iota
	accessRead
	accessWrite
)

// authorize checks the signature of a request, or of the token that it carries, and returns what that allows.
func (s *Server) authorize(x *exchange) (right, error) {
	signature, token, err := parseAuthorization(x.r.Header.Get("Authorization"))
	if err != nil {
		return right{}, err
	}
	if token != nil {
		return s.authorizeToken(x, token)
	}
	date := x.r.Header.Get(headerDate)
	text := newSignedText(x.r.Method, &x.target, date, x.r.Header.Get("Date"))
	// Clients sign one of several forms of the link, so each is tried, with each key.
	var granted *secret
	keys := s.keys.current()
	for link := range s.links(&x.target) {
		if granted = verify(keys, text.of(link), signature); granted != nil {
			break
		}
	}
	if granted == nil {
		return right{}, refuse(http.StatusUnauthorized,
			"the signature is not that of a key in force; the text to sign, with \\n at the end of each of its five lines, is %q", text.of(x.target.link))
	}
	// After the signature: only a sender with a key is told the server's time.
	if date == "" {
		date = x.r.Header.Get("Date")
	}
	if err := checkDate(date, time.Now()); err != nil {
		return right{}, err
	}
	if granted.only != nil {
		return s.authorizeApplication(x.ctx, &x.target, granted)
	}
	return right{access: granted.access, master: granted.raw}, nil
}

// authorizeApplication returns what an application's key allows. It names its container, whichever has the name now: a
// path by resource ids is compared with that one's.
func (s *Server) authorizeApplication(ctx context.Context, t *target, key *secret) (right, error) {
	g := &grant{of: ofKey, database: key.only.Database, container: key.only.Container}
	if t.byRID() {
		ctx, cancel := context.WithTimeout(ctx, permitTimeout)
		defer cancel()
		c, err := s.directory.find(ctx, g.database, g.container)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return right{}, err
		}
		if err == nil {
			g.rid = c.rid
		}
	}
	return right{access: key.access, grant: g}, nil
}

// authorizeToken returns what a resource token allows. Nothing is read of what it says, and nobody asked, before it is known
// that a key in force has signed it.
func (s *Server) authorizeToken(x *exchange, signed *users.Signed) (right, error) {
	known := false
	for _, key := range s.keys.master.Now() {
		known = known || key.access == accessWrite && signed.By(key.raw)
	}
	if !known {
		return right{}, refuse(http.StatusUnauthorized, "the resource token is not signed with a key in force; read its permission again")
	}
	token, err := signed.Token()
	if err != nil {
		return right{}, refuse(http.StatusUnauthorized, "the resource token: %v", err)
	}
	// The status of the service: clients take it for a right that they have no more, and not for a wrong key.
	if now := time.Now(); !now.Before(token.Expires) {
		return right{}, refuse(http.StatusForbidden, "the resource token expired at %s and it is %s here; read its permission again",
			token.Expires.UTC().Format(http.TimeFormat), now.UTC().Format(http.TimeFormat))
	}
	r, err := s.permits.of(x.ctx, token)
	if err == nil && r.access == accessNone {
		err = refuse(http.StatusUnauthorized, "the resource token was revoked: its permission was changed or deleted; read it again")
	}
	return r, err
}

// parseAuthorization reads the header: type, version and signature, URL-encoded as a whole. It
// also accepts a header that is not encoded, or only in part. It returns the signature of a request, or a token.
func parseAuthorization(header string) (signature []byte, token *users.Signed, err error) {
	if header == "" {
		return nil, nil, refuse(http.StatusUnauthorized, "the header authorization is missing; sign the request with a master key")
	}
	// PathUnescape and not QueryUnescape, which would make a space of the + of base64.
	text, err := url.PathUnescape(header)
	if err != nil {
		return nil, nil, refuse(http.StatusUnauthorized, "the header authorization is not URL-encoded")
	}
	fields := map[string]string{}
	for field := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	switch {
	case fields["type"] != "master" && fields["type"] != "resource":
		return nil, nil, refuse(http.StatusUnauthorized, "authorization of type %q is not served; master keys and resource tokens are", clip(fields["type"]))
	case fields["ver"] != "1.0" && fields["ver"] != "1":
		return nil, nil, refuse(http.StatusUnauthorized, "authorization has version %q; 1.0 is expected", clip(fields["ver"]))
	}
	if fields["type"] == "resource" {
		if token, err = users.ParseToken(fields["sig"]); err != nil {
			err = refuse(http.StatusUnauthorized, "the resource token: %v", err)
		}
		return nil, token, err
	}
	signature, err = base64.StdEncoding.DecodeString(fields["sig"])
	if err != nil || len(signature) != sha256.Size {
		return nil, nil, refuse(http.StatusUnauthorized, "the signature is not base64 of %d bytes", sha256.Size)
	}
	return signature, nil, nil
}

// signedText is the text that is signed, but for its link: verb, type, link, x-ms-date and Date, each on a line of its own.
// Date counts only without x-ms-date.
type signedText struct{ head, tail string }

func newSignedText(method string, t *target, msDate, date string) signedText {
	if msDate != "" {
		date = ""
	}
	return signedText{
		head: strings.ToLower(method) + "\n" + strings.ToLower(t.kind) + "\n",
		tail: "\n" + strings.ToLower(msDate) + "\n" + strings.ToLower(date) + "\n",
	}
}

func (s *signedText) of(link string) string { return s.head + link + s.tail }

// links are the forms of a link that clients sign: by name, as it is in the URL, in lower
// case, and by the resource id in lower case, which some clients use for what they know
// by its id. Nearly all sign the first one, so the others are looked for as they are asked for.
func (s *Server) links(t *target) iter.Seq[string] {
	return func(yield func(string) bool) {
		lower := strings.ToLower(t.link)
		if !yield(t.link) || t.raw != t.link && !yield(t.raw) || lower != t.link && !yield(lower) {
			return
		}
		if t.noun == nounRanges || t.noun == nounItems || t.noun == nounContainer { // one item is not signed so
			if c := s.directory.cached(t.database, t.container); c != nil && !yield(strings.ToLower(c.ridText)) {
				return
			}
		}
		if t.byRID() && endsInRID(t.link) { // by the last of its ids alone; a name would be good for every container
			yield(strings.ToLower(t.link[strings.LastIndexByte(t.link, '/')+1:]))
		}
	}
}

// verify returns the key that has signed text, nil if none has. Each
// comparison takes constant time. That the loop ends at the key that fits tells
// its sender only what it knows already.
func verify(keys []secret, text string, signature []byte) *secret {
	for i := range keys {
		if keys[i].signed(text, signature) {
			return &keys[i]
		}
	}
	return nil
}

// signed tells whether a signature of text was made with the key.
func (k *secret) signed(text string, signature []byte) bool {
	// One that has been at work before has hashed the key already.
	mac, ok := k.macs.Get().(hash.Hash)
	if !ok {
		mac = hmac.New(sha256.New, k.raw)
	}
	defer k.macs.Put(mac)
	mac.Reset()
	_, _ = mac.Write([]byte(text)) // a hash takes everything
	var sum [sha256.Size]byte
	return hmac.Equal(mac.Sum(sum[:0]), signature)
}

// checkDate refuses a signature whose date is more than dateWindow off.
func checkDate(text string, now time.Time) error {
	date, err := parseHTTPDate(text)
	if err != nil {
		return refuse(http.StatusUnauthorized, "x-ms-date is %q; a time such as Thu, 27 Apr 2017 00:51:12 GMT is expected", clip(text))
	}
	if off := now.Sub(date); off > dateWindow || off < -dateWindow {
		return refuse(http.StatusForbidden, "the signature is of %s and it is %s here; more than %s apart are not accepted",
			date.UTC().Format(http.TimeFormat), now.UTC().Format(http.TimeFormat), dateWindow)
	}
	return nil
}

// parseHTTPDate reads a time in HTTP's form, with UTC, GMT or Z as the zone, in any case.
func parseHTTPDate(text string) (time.Time, error) {
	text = strings.TrimSpace(text)
	if i := strings.LastIndexByte(text, ' '); i >= 0 {
		switch strings.ToUpper(text[i+1:]) {
		case "UTC", "GMT", "Z":
			text = text[:i] + " GMT"
		}
	}
	return http.ParseTime(text)
}
