package gateway

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
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

// authorize checks the signature of a request and returns what its key allows.
func (s *Server) authorize(x *exchange) (access, error) {
	signature, err := parseAuthorization(x.r.Header.Get("Authorization"))
	if err != nil {
		return accessNone, err
	}
	date := x.r.Header.Get(headerDate)
	text := signedText(x.r.Method, &x.target, date, x.r.Header.Get("Date"))
	// Clients sign one of several forms of the link, so each is tried: at most six, and four
	// keys of each.
	granted, keys := accessNone, s.keys.current()
	for _, link := range s.links(&x.target) {
		if granted = verify(keys, text(link), signature); granted != accessNone {
			break
		}
	}
	if granted == accessNone {
		return accessNone, refuse(http.StatusUnauthorized,
			"the signature is not that of a key in force; the text to sign, with \\n at the end of each of its five lines, is %q", text(x.target.link))
	}
	// After the signature: only a sender with a key is told the server's time.
	if date == "" {
		date = x.r.Header.Get("Date")
	}
	return granted, checkDate(date, time.Now())
}

// parseAuthorization reads the header: type, version and signature, URL-encoded as a whole. It
// also accepts a header that is not encoded, or only in part.
func parseAuthorization(header string) (signature []byte, err error) {
	if header == "" {
		return nil, refuse(http.StatusUnauthorized, "the header authorization is missing; sign the request with a master key")
	}
	// PathUnescape and not QueryUnescape, which would make a space of the + of base64.
	text, err := url.PathUnescape(header)
	if err != nil {
		return nil, refuse(http.StatusUnauthorized, "the header authorization is not URL-encoded")
	}
	fields := map[string]string{}
	for field := range strings.SplitSeq(text, "&") {
		name, value, _ := strings.Cut(field, "=")
		fields[name] = value
	}
	switch {
	case fields["type"] != "master":
		return nil, refuse(http.StatusUnauthorized, "authorization of type %q is not served; master keys are", clip(fields["type"]))
	case fields["ver"] != "1.0" && fields["ver"] != "1":
		return nil, refuse(http.StatusUnauthorized, "authorization has version %q; 1.0 is expected", clip(fields["ver"]))
	}
	signature, err = base64.StdEncoding.DecodeString(fields["sig"])
	if err != nil || len(signature) != sha256.Size {
		return nil, refuse(http.StatusUnauthorized, "the signature is not base64 of %d bytes", sha256.Size)
	}
	return signature, nil
}

// signedText returns the function from a link to the text that is signed: verb, type, link,
// x-ms-date and Date, each on a line of its own. Date counts only without x-ms-date.
func signedText(method string, t *target, msDate, date string) func(link string) string {
	if msDate != "" {
		date = ""
	}
	head := strings.ToLower(method) + "\n" + strings.ToLower(t.kind) + "\n"
	tail := "\n" + strings.ToLower(msDate) + "\n" + strings.ToLower(date) + "\n"
	return func(link string) string { return head + link + tail }
}

// links returns the forms of a link that clients sign: by name, as it is in the URL, in lower
// case, and by the resource id in lower case, which some clients use for what they know
// by its id.
func (s *Server) links(t *target) []string {
	links := append(make([]string, 0, 6), t.link)
	add := func(link string) {
		if !slices.Contains(links, link) {
			links = append(links, link)
		}
	}
	add(t.raw)
	add(strings.ToLower(t.link))
	if t.noun == nounRanges || t.noun == nounItems || t.noun == nounContainer { // one item is not signed so
		if c := s.directory.cached(t.database, t.container); c != nil {
			add(strings.ToLower(c.ridText))
		}
	}
	if t.byRID() && endsInRID(t.link) { // by the last of its ids alone; a name would be good for every container
		add(strings.ToLower(t.link[strings.LastIndexByte(t.link, '/')+1:]))
	}
	return links
}

// verify returns what the key allows that has signed text, accessNone if no key has. Each
// comparison takes constant time. That the loop ends at the key that fits tells
// its sender only what it knows already.
func verify(keys []secret, text string, signature []byte) access {
	for _, key := range keys {
		mac := hmac.New(sha256.New, key.raw)
		_, _ = mac.Write([]byte(text)) // a hash takes everything
		if hmac.Equal(mac.Sum(nil), signature) {
			return key.access
		}
	}
	return accessNone
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
