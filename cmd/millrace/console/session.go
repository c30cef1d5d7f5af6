package console

import (
	"crypto/rand"
	"crypto/sha256"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	cookiePrefix = "millrace_session_"
	// sessionTimeout ends a session after so long without a request, and sessionMax in any case.
	sessionTimeout = 12 * time.Hour
	sessionMax     = 7 * 24 * time.Hour
	// sessionsMax bounds the sessions that are kept; the one that was used least recently goes.
	sessionsMax = 1000
	// ticketTimeout is how long a ticket waits for the browser that it is for.
	ticketTimeout = 5 * time.Minute
)

// session is a browser that is signed in.
type session struct {
	key   string // that it signed in with; "" for a ticket
	role  Role   // of the ticket
	began time.Time
	used  time.Time
}

// sessions are all of them, by the digest of their number.
type sessions struct {
	keyRole func(string) Role

	mu      sync.Mutex
	open    map[[sha256.Size]byte]*session
	tickets map[[sha256.Size]byte]*session
}

func newSessions(keyRole func(string) Role) *sessions {
	if keyRole == nil {
		keyRole = func(string) Role { return RoleNone }
	}
	return &sessions{keyRole: keyRole, open: map[[sha256.Size]byte]*session{}, tickets: map[[sha256.Size]byte]*session{}}
}

// begin opens a session and returns its number.
func (s *sessions) begin(of session) string {
	number, now := rand.Text(), time.Now()
	of.began, of.used = now, now
	s.mu.Lock()
	defer s.mu.Unlock()
	// At each begin, not by a timer: only a new session makes them more.
	s.sweep(now)
	s.open[sha256.Sum256([]byte(number))] = &of
	return number
}

// ticket returns a number that begins a session, once.
func (s *sessions) ticket(role Role) string {
	number := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickets[sha256.Sum256([]byte(number))] = &session{role: role, began: time.Now()}
	return number
}

// redeem begins the session of a ticket; false if that was used, is too old or none.
func (s *sessions) redeem(ticket string) (number string, ok bool) {
	digest := sha256.Sum256([]byte(ticket))
	s.mu.Lock()
	of := s.tickets[digest]
	// Before its age is looked at, and under the lock: of two browsers with one ticket, one gets in.
	delete(s.tickets, digest)
	s.mu.Unlock()
	if of == nil || time.Since(of.began) > ticketTimeout {
		return "", false
	}
	return s.begin(session{role: of.role}), true
}

// sweep forgets sessions that are over, and the one used least recently if there are too many.
// Callers hold mu.
func (s *sessions) sweep(now time.Time) {
	for len(s.open) > 0 {
		var oldest [sha256.Size]byte
		var of *session
		for digest, one := range s.open {
			if now.Sub(one.used) > sessionTimeout || now.Sub(one.began) > sessionMax {
				delete(s.open, digest)
			} else if of == nil || one.used.Before(of.used) {
				oldest, of = digest, one
			}
		}
		// Less than sessionsMax, for one more is about to come.
		if len(s.open) < sessionsMax {
			return
		}
		delete(s.open, oldest)
	}
}

// roleOf returns what the session of a request may do.
func (s *sessions) roleOf(r *http.Request) Role {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return RoleNone
	}
	digest, now := sha256.Sum256([]byte(cookie.Value)), time.Now()
	s.mu.Lock()
	// Looked at again: sweep runs only when a session begins, which may be days later.
	of := s.open[digest]
	if of == nil || now.Sub(of.used) > sessionTimeout || now.Sub(of.began) > sessionMax {
		delete(s.open, digest)
		s.mu.Unlock()
		return RoleNone
	}
	if r.URL.Path != "/events" && !isPart(r) { // these the page asks for by itself
		of.used = now
	}
	// keyRole is asked without the lock, by which every request passes.
	key, role := of.key, of.role
	s.mu.Unlock()
	if key != "" {
		role = s.keyRole(key) // the key may have been replaced since
	}
	return role
}

// end ends the session of a request.
func (s *sessions) end(r *http.Request) {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sha256.Sum256([]byte(cookie.Value)))
}

// cookieName is the name of the cookie of the listener that was asked. Browsers send the cookies of
// a host to all its ports, and several consoles may be forwarded to one machine.
func cookieName(r *http.Request) string {
	_, port, _ := net.SplitHostPort(r.Host)
	return cookiePrefix + port
}

// setCookie gives a browser the number of its session; "" takes it away.
func setCookie(w http.ResponseWriter, r *http.Request, number string) {
	cookie := &http.Cookie{
		Name: cookieName(r), Value: number, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	}
	if number == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// showSignIn shows the form, or takes a ticket.
func (c *Console) showSignIn(w http.ResponseWriter, r *http.Request) {
	if ticket := r.URL.Query().Get("ticket"); ticket != "" {
		if number, ok := c.sessions.redeem(ticket); ok {
			setCookie(w, r, number)
			http.Redirect(w, r, "/", http.StatusSeeOther)
			return
		}
		c.render(w, r, http.StatusUnauthorized, "sign-in", signInPage{
			To: "/", Keys: c.cfg.KeyRole != nil,
			Problem: "This address was used before, or is too old. Run millrace console again, or sign in with a key.",
		})
		return
	}
	c.render(w, r, http.StatusOK, "sign-in", signInPage{
		To: local(r.URL.Query().Get("to")), Keys: c.cfg.KeyRole != nil, Followed: r.Header.Get("Sec-Fetch-Site") == "cross-site",
	})
}

// signInPage is the form to sign in.
type signInPage struct {
	To   string // where to go then
	Keys bool   // keys are taken
	// Followed says that a link of another site led here. Browsers keep the cookie back then
	// (SameSite=Strict), so who is signed in looks as if they were not, until they follow a link of
	// the console's own.
	Followed bool
	Problem  string
}

// signIn takes a key.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<14)
	key, to := strings.TrimSpace(r.PostFormValue("key")), local(r.PostFormValue("to"))
	if c.sessions.keyRole(key) == RoleNone {
		if n := c.failures.Count(time.Now()); n > 0 {
			c.log.Warn("console: somebody tried to sign in with a key that is not in force", "from", r.RemoteAddr, "times", n)
		}
		c.render(w, r, http.StatusUnauthorized, "sign-in", signInPage{
			To: to, Keys: c.cfg.KeyRole != nil,
			Problem: "This is no key in force. millrace keys show tells them.",
		})
		return
	}
	setCookie(w, r, c.sessions.begin(session{key: key}))
	http.Redirect(w, r, to, http.StatusSeeOther)
}

func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	c.sessions.end(r)
	setCookie(w, r, "")
	http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
}

// local returns the path to go to after signing in, the root if it is not one of the console's:
// //host and /\host lead browsers elsewhere.
func local(path string) string {
	if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	return path
}
