package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/connections"
	"github.com/millrace/millrace/store/gateway/binaryjson"
)

// exchange is one request and its answer. The goroutine that serves the request owns it, except
// that operations in bulk read it at the same time.
type exchange struct {
	w        http.ResponseWriter
	r        *http.Request
	ctx      context.Context //nolint:containedctx // an exchange is the scope of one request
	target   target
	right    right      // of the sender
	op       *operation // nil until it is known
	body     []byte
	activity string
	status   int  // of the answer; 0 before it
	whole    bool // the body was read to its end, or there is none

	bodies *bodyRoom
	room   int   // bytes that the body has reserved in bodies
	slot   *slot // nil unless the request is being carried out

	values [8]string // of headers of the answer, see set; whoever keeps those keeps the exchange
	used   int       // of values
}

func newExchange(w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{w: w, r: r, ctx: r.Context(), activity: activityID(r.Header.Get(headerActivity))}
	x.set(headerActivity, x.activity)
	h := w.Header()
	h[headerGateway], h[headerSchemaVersion], h[headerCache] = gatewayVersion, schemaVersion, noCache
	return x
}

// The headers that all answers have alike. net/http reads them alone.
var (
	gatewayVersion = []string{"version=2.0.0"}
	schemaVersion  = []string{"1.16"}
	noCache        = []string{"no-store, no-cache"}
	typeJSON       = []string{"application/json"}
)

// set sets a header of the answer. name is one of this package's, which are canonical; http.Header.Set would look at each
// of its letters, and allocate a list of one value.
func (x *exchange) set(name, value string) {
	if x.used == len(x.values) {
		x.w.Header()[name] = []string{value}
		return
	}
	x.values[x.used] = value
	x.used++
	x.w.Header()[name] = x.values[x.used-1 : x.used : x.used]
}

func (x *exchange) name() string {
	if x.op == nil {
		return "refused"
	}
	return x.op.name
}

const activityBytesMax = 64

// activityID returns the client's id if it is short and harmless in a log, else a new one.
func activityID(asked string) string {
	ok := asked != "" && len(asked) <= activityBytesMax
	for i := 0; ok && i < len(asked); i++ {
		c := asked[i]
		ok = c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
	}
	if ok {
		return asked
	}
	var b [16]byte
	rand.Read(b[:]) // never returns an error since Go 1.24
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	text := hex.AppendEncode(make([]byte, 0, 36), b[:4])
	for _, part := range [][]byte{b[4:6], b[6:8], b[8:10], b[10:]} {
		text = hex.AppendEncode(append(text, '-'), part)
	}
	return string(text)
}

// header returns a header of the request.
func (x *exchange) header(name string) string { return x.r.Header.Get(name) }

// bodyStart bounds the bytes that are allocated for a body before its first byte has come.
const bodyStart = 64 << 10

// readBody reads the body of a request, of at most limit bytes. The bytes that it allocates are
// reserved in x.bodies until the answer begins, or the exchange ends.
func (x *exchange) readBody(limit int64) error {
	if limit == 0 || x.r.Body == nil {
		if x.r.ContentLength == 0 {
			x.endBodyTime()
		}
		return nil
	}
	if x.r.ContentLength > limit {
		return tooLarge(limit)
	}
	body := make([]byte, 0, min(max(x.r.ContentLength, 512), bodyStart)+1)
	// One byte beyond the limit shows that the body is longer.
	in := io.LimitReader(x.r.Body, limit+1)
	for {
		// Content-Length is only what the client says, so memory is reserved as it grows.
		if more := cap(body) - x.room; more > 0 {
			if !x.bodies.reserve(more) {
				return errNoRoom
			}
			x.room += more
		}
		n, err := in.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > limit:
			return tooLarge(limit)
		case errors.Is(err, io.EOF):
			x.body, x.whole = body, true
			x.endBodyTime()
			return nil
		case err != nil:
			return refuse(http.StatusRequestTimeout, "the body did not come whole and in time: %v", err)
		case len(body) == cap(body):
			body = append(body, 0)[:len(body)]
		}
	}
}

// textBody replaces a body in the binary form of JSON, as the SDK for Rust sends items, by its text, of at most limit bytes.
func (x *exchange) textBody(limit int64) error {
	if !binaryjson.Is(x.body) {
		return nil
	}
	text, err := binaryjson.Text(x.body, int(limit))
	switch {
	case errors.Is(err, binaryjson.ErrTooLarge):
		return tooLarge(limit)
	case err != nil:
		return refuse(http.StatusBadRequest, "the body is not the binary JSON that is served: %v", err)
	case !x.bodies.reserve(cap(text)):
		return errNoRoom
	}
	x.bodies.release(x.room)
	x.body, x.room = text, cap(text)
	return nil
}

func tooLarge(limit int64) *failure {
	return refuse(http.StatusRequestEntityTooLarge, "the body has more than the %d bytes that are allowed", limit)
}

// endBodyTime ends what BodyTimeout bounds: all of the request has come, and RequestTimeout counts. The
// server reads on, to learn whether the client has gone, and would take the end of that time for it.
func (x *exchange) endBodyTime() {
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{}) // tests have no connection
}

// releaseBody forgets the body and gives back its bytes.
func (x *exchange) releaseBody() {
	if x.room > 0 {
		x.bodies.release(x.room)
		x.body, x.room = nil, 0
	}
}

// releaseSlot gives back the right to be carried out.
func (x *exchange) releaseSlot() {
	x.slot.giveBack(x.ctx)
	x.slot = nil
}

// cutOff ends the writing of the answer, and the connection with it. It may be called by another goroutine
// while the request has its slot.
func (x *exchange) cutOff() {
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Unix(1, 0)) // tests have no connection
}

// discardBytesMax bounds what is read of a body that is refused, only to be thrown
// away.
const discardBytesMax = 64 << 20

// refuse sends an error and then reads the rest of the request's body, within BodyTimeout. Most
// clients send a whole body before they read the answer. If the connection is closed
// meanwhile, such a client sees a broken network and not the refusal, and sends the body
// again. A client that asks first (Expect: 100-continue) sends nothing more.
func (x *exchange) refuse(f *failure) {
	if x.whole || x.r.ContentLength == 0 || x.r.Body == nil || x.header("Expect") != "" {
		x.fail(f)
		return
	}
	control := http.NewResponseController(x.w)
	// Otherwise the answer would wait for the body, which a slow client may never finish.
	if err := control.EnableFullDuplex(); err != nil {
		x.fail(f)
		return
	}
	x.w.Header().Set("Connection", "close") // the rest of the body may never come
	x.fail(f)
	if control.Flush() == nil { // an error: the client has gone
		connections.Yield(x.ctx) // nothing but good manners holds it any more
		_, _ = io.CopyN(io.Discard, x.r.Body, discardBytesMax)
	}
}

// bodyRoom bounds the bytes of all bodies that are being received or are held, so that many
// slow senders cannot fill the memory.
type bodyRoom struct {
	max   int64
	taken atomic.Int64
}

func (r *bodyRoom) reserve(bytes int) bool {
	if r.taken.Add(int64(bytes)) <= r.max {
		return true
	}
	r.taken.Add(-int64(bytes))
	return false
}

func (r *bodyRoom) release(bytes int) { r.taken.Add(-int64(bytes)) }

// errNoConnection is for the metrics: nobody is there to read it.
var errNoConnection = &failure{
	status: http.StatusTooManyRequests, substatus: subRequestRateLarge, retryAfter: retryAfterDefault,
	message: "the connection made room for another, because there were as many as are allowed (gateway.connectionsMax)",
}

var errNoRoom = &failure{
	status: http.StatusTooManyRequests, substatus: subRequestRateLarge, retryAfter: retryAfterDefault,
	message: "the bodies of all requests under way are as many bytes as are allowed (gateway.bodiesMax); try again",
}

var errNoAnswerRoom = &failure{
	status: http.StatusTooManyRequests, substatus: subRequestRateLarge, retryAfter: retryAfterDefault,
	message: "the answers that clients are taking are as many bytes as are allowed (gateway.answersMax); try again",
}

// decode reads the body as one JSON value.
func (x *exchange) decode(into any) error {
	if err := json.Unmarshal(x.body, into); err != nil {
		return refuse(http.StatusBadRequest, "the body is not the JSON that is expected: %v", err)
	}
	return nil
}

// answer sends JSON, or nothing for an empty body.
func (x *exchange) answer(status int, charge float64, body []byte) {
	h := x.w.Header()
	// What was read can be read again. What was written, or read in one request with that, is not undone
	// by a refusal to say so.
	must := status >= http.StatusBadRequest || x.op == nil || x.op.writes
	if x.slot != nil && !x.slot.hold(x.ctx, len(body), must) {
		h.Del(headerContinuation)
		h.Del(headerETag)
		x.fail(errNoAnswerRoom)
		return
	}
	x.set(headerCharge, formatCharge(charge))
	if len(body) > 0 {
		h["Content-Type"] = typeJSON
	}
	if status != http.StatusNoContent && status != http.StatusNotModified {
		x.set("Content-Length", strconv.Itoa(len(body)))
	}
	x.status = status
	x.w.WriteHeader(status)
	if x.r.Method != http.MethodHead {
		x.write(body)
	}
}

// write sends the body of an answer. It frees the room of the request's body first: clients that
// do not read their answers would otherwise hold all the room of bodies.
func (x *exchange) write(body []byte) {
	x.releaseBody()
	for len(body) > 0 {
		if x.slot != nil {
			x.slot.await()
		}
		n, err := x.w.Write(body[:min(len(body), answerPiece)])
		if err != nil {
			return // the client has gone, or did not take it
		}
		body = body[n:]
	}
}

// answerJSON sends a value.
func (x *exchange) answerJSON(status int, charge float64, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	x.answer(status, charge, body)
	return nil
}

// errorBody is the body of every error.
type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Info    string `json:"additionalErrorInfo,omitempty"` // by which the JavaScript SDK knows that it needs a plan
}

// fail sends an error, unless an answer was sent already.
func (x *exchange) fail(f *failure) {
	if x.status != 0 {
		return
	}
	h := x.w.Header()
	if f.substatus != 0 {
		h.Set(headerSubstatus, strconv.Itoa(f.substatus))
	}
	if f.retryAfter > 0 {
		h.Set(headerRetryAfter, strconv.FormatInt(max(f.retryAfter.Milliseconds(), 1), 10))
	}
	code := codeNames[f.status]
	if code == "" {
		code = strconv.Itoa(f.status)
	}
	body, err := json.Marshal(errorBody{code, f.message, f.info})
	if err != nil {
		panic(fmt.Sprintf("gateway: two texts cannot be marshalled: %v", err))
	}
	x.answer(f.status, chargeRefusal, body)
}

// session sets the session token of the answer: for each physical partition, its number and
// an LSN of its log, joined by commas.
func (x *exchange) session(tokens ...string) {
	if len(tokens) > 0 {
		x.set(headerSession, strings.Join(tokens, ","))
	}
}

// sessionToken is the session token of one partition: range, version and LSN. Its
// shape never changes, because clients merge tokens by it.
func sessionToken(p feed.Partition, lsn feed.LSN) string {
	b := strconv.AppendUint(make([]byte, 0, 24), uint64(p.Number), 10)
	b = append(b, ":-1#"...)
	return string(strconv.AppendUint(b, uint64(lsn), 10))
}

// etag sets the answer's etag.
func (x *exchange) etag(text string) { x.set(headerETag, `"`+text+`"`) }

// minimal reports whether the client asked for no content in answers to writes.
func (x *exchange) minimal() bool {
	for _, prefer := range x.r.Header.Values("Prefer") {
		if strings.Contains(strings.ToLower(prefer), "return=minimal") {
			return true
		}
	}
	return false
}

// unixSeconds returns a time in the protocol's form.
func unixSeconds(t time.Time) int64 { return t.Unix() }

// matching is the condition of If-Match or If-None-Match.
type matching struct {
	etag store.ETag // zero: none
	any  bool       // *
}

// noETag is an etag that no item has. It stands for a text that is not an etag of Millrace, so
// that such a text matches nothing.
var noETag = store.ETag{LSN: 1<<64 - 1, Index: 1<<32 - 1}

// parseMatching reads the value of If-Match or If-None-Match.
func parseMatching(text string) matching {
	text = strings.TrimSpace(text)
	switch text {
	case "":
		return matching{}
	case "*":
		return matching{any: true}
	}
	etag, err := store.ParseETag(strings.TrimPrefix(text, "W/"))
	if err != nil || etag == (store.ETag{}) {
		etag = noETag
	}
	return matching{etag: etag}
}
