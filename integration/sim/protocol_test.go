package sim

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// operation is one message of the protocol between clients and servers of NATS, as a client
// sends it. HPUB is a PUB whose header is not empty.
type operation struct {
	verb    string // CONNECT, PING, PONG, PUB, SUB, UNSUB
	subject string
	reply   string
	queue   string
	sid     string
	most    int    // of UNSUB
	header  []byte // with its version and its end
	data    []byte
}

// String tells the operation without what is random in it.
func (o *operation) String() string {
	subject := o.subject
	if strings.HasPrefix(subject, "_INBOX.") {
		subject = "_INBOX"
	}
	if i := strings.Index(subject, ".tail_"); i >= 0 {
		subject = subject[:i]
	}
	return o.verb + " " + subject + " " + strconv.Itoa(len(o.data))
}

// parse takes the first operation from b; ok is false if it is not whole.
func parse(b []byte) (o *operation, rest []byte, ok bool) {
	text, rest, ok := bytes.Cut(b, []byte("\r\n"))
	if !ok {
		return nil, b, false
	}
	verb, args, _ := strings.Cut(string(text), " ")
	verb = strings.ToUpper(verb)
	f := strings.Fields(args)
	switch verb {
	case "CONNECT", "PING", "PONG":
		return &operation{verb: verb}, rest, true
	case "SUB":
		o := &operation{verb: verb, subject: f[0], sid: f[len(f)-1]}
		if len(f) == 3 {
			o.queue = f[1]
		}
		return o, rest, true
	case "UNSUB":
		o := &operation{verb: verb, sid: f[0]}
		if len(f) == 2 {
			o.most = number(f[1])
		}
		return o, rest, true
	case "PUB", "HPUB":
		header, sizes := 0, 1
		if verb == "HPUB" {
			sizes = 2
			header = number(f[len(f)-2])
		}
		size := number(f[len(f)-1])
		if len(rest) < size+2 {
			return nil, b, false
		}
		o := &operation{verb: "PUB", subject: f[0]}
		if len(f) == 2+sizes {
			o.reply = f[1]
		}
		body := bytes.Clone(rest[:size])
		o.header, o.data = body[:header:header], body[header:]
		return o, rest[size+2:], true
	}
	panic(fmt.Sprintf("the simulated server does not know %q", text))
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// headerOf returns a value of a header, "" if it has none.
func headerOf(header []byte, key string) string {
	for l := range strings.SplitSeq(string(header), "\r\n") {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.EqualFold(k, key) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// makeHeader makes a header with a status, or with "".
func makeHeader(status string, pairs ...string) []byte {
	var b bytes.Buffer
	b.WriteString("NATS/1.0")
	if status != "" {
		b.WriteString(" " + status)
	}
	b.WriteString("\r\n")
	for i := 0; i < len(pairs); i += 2 {
		b.WriteString(pairs[i] + ": " + pairs[i+1] + "\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// withHeader adds pairs to a header, which may be empty.
func withHeader(header []byte, pairs ...string) []byte {
	added := makeHeader("", pairs...)
	if len(header) == 0 {
		return added
	}
	first, rest, _ := bytes.Cut(header, []byte("\r\n"))
	_, added, _ = bytes.Cut(added, []byte("\r\n"))
	return bytes.Join([][]byte{first, []byte("\r\n"), bytes.TrimSuffix(added, []byte("\r\n")), rest}, nil)
}

// encode is a message as a server sends it to a client.
func encode(subject, sid, reply string, header, data []byte) []byte {
	var b bytes.Buffer
	if reply != "" {
		reply += " "
	}
	if len(header) == 0 {
		fmt.Fprintf(&b, "MSG %s %s %s%d\r\n", subject, sid, reply, len(data))
	} else {
		fmt.Fprintf(&b, "HMSG %s %s %s%d %d\r\n", subject, sid, reply, len(header), len(header)+len(data))
	}
	b.Write(header)
	b.Write(data)
	b.WriteString("\r\n")
	return b.Bytes()
}

// matches says whether a subject is one of a pattern's.
func matches(pattern, subject string) bool {
	if pattern == "" {
		return true
	}
	for {
		p, moreP, okP := strings.Cut(pattern, ".")
		s, moreS, okS := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return true
		case p != "*" && p != s:
			return false
		case !okP || !okS:
			return okP == okS
		}
		pattern, subject = moreP, moreS
	}
}
