package store

import "time"

// Kind is a kind of request. It is what the wire, the client and the handlers of an owner
// look up in their tables.
type Kind byte

// The kinds of requests. Their numbers are on the wire (WIRE.md): none changes, and none
// is used again.
const (
	KindTransact Kind = iota + 1
	KindRead
	KindScan
	KindCount
	KindPatchMany
	KindRepair
	KindStatus
	kindError // of a response that refuses
	KindFold
	KindGroups
	KindPutRows
	KindVersions
	KindQuery
	KindPendingRows
	KindSources
	KindPatchUntil
	KindPin
	KindPinned
	KindSnapshot
	KindStates
	KindSplit
	KindGuarded
	KindFunctionQuery
)

// kinds has each kind, by its number. A new kind is a file with its types and its entry,
// a field in Request and in Response, a line here, and a handler in store/owner.
var kinds = [...]kind{
	KindTransact:    transactKind,
	KindRead:        readKind,
	KindScan:        scanKind,
	KindCount:       countKind,
	KindPatchMany:   patchManyKind,
	KindRepair:      repairKind,
	KindStatus:      statusKind,
	KindFold:        foldKind,
	KindGroups:      groupsKind,
	KindPutRows:     putRowsKind,
	KindVersions:    versionsKind,
	KindQuery:       queryKind,
	KindPendingRows: pendingRowsKind,
	KindSources:     sourcesKind,
	KindPatchUntil:  patchUntilKind,
	KindPin:         pinKind,
	KindPinned:      pinnedKind,
	KindSnapshot:    snapshotKind,
	KindStates:      statesKind,
	KindSplit:       splitKind,
	KindGuarded:     guardedKind,

	KindFunctionQuery: functionQueryKind,
}

// kind is all that this package knows of one kind of request.
type kind struct {
	name string // in spans and messages
	// asked tells whether a request is of the kind.
	asked func(*Request) bool
	// writes tells whether it may change something; nil if no request of the kind does.
	writes func(*Request) bool
	// mayRead says that some requests of a kind that writes change nothing; what they hold tells.
	mayRead bool
	// once says that a write must not happen twice: the client sends it again only where
	// the first time certainly did nothing, or under an idempotency key. The other writes
	// say from which state they go on, so that a second time changes nothing.
	once bool
	// goesOn says that a second time does no harm, but is answered otherwise: it goes on where the
	// first one ended, and what the first answer told is told by nobody else. So it is sent
	// again as one of once is, and its sender knows where an answer is missing.
	goesOn bool
	// slow says that one answer may take most of the time of the client.
	slow bool

	encode       func(*wireWriter, *Request)
	decode       func(*wireReader, *Request)
	encodeAnswer func(*wireWriter, *Response)
	decodeAnswer func(*wireReader, *Response)
}

// always is kind.writes of requests that may all change something.
func always(*Request) bool { return true }

// known tells whether a number is that of a kind of requests.
func (k Kind) known() bool { return int(k) < len(kinds) && kinds[k].asked != nil }

// String is the name of the kind; "unknown" for what is none.
func (k Kind) String() string {
	if !k.known() {
		return "unknown"
	}
	return kinds[k].name
}

// Kind returns what the request asks for; 0 if it asks for nothing.
func (r *Request) Kind() Kind {
	for k := range kinds {
		if asked := kinds[k].asked; asked != nil && asked(r) {
			return Kind(k)
		}
	}
	return 0
}

// Reads says whether a request changes nothing, whatever it is answered.
func (r *Request) Reads() bool {
	k := &kinds[r.Kind()]
	return k.writes == nil || !k.writes(r)
}

// Writes says whether a request may change something.
func (r *Request) Writes() bool {
	k := &kinds[r.Kind()]
	return k.writes != nil && k.writes(r)
}

// once says whether a second time may do something that the first one did already, or be
// answered otherwise.
func (r *Request) once() bool {
	k := &kinds[r.Kind()]
	return (k.once || k.goesOn) && k.writes(r)
}

// repeatable says whether asking twice is as good as asking once.
func (r *Request) repeatable() bool {
	return !r.once() || r.Transact != nil && r.Transact.IdempotencyKey != ""
}

// slow says whether one answer may take most of the time of the client.
func (r *Request) slow() bool { return kinds[r.Kind()].slow }

// attemptTime is how long one attempt waits for an answer. A request that may be repeated does
// not spend all of its time on one owner, which may have died, or been cut off without a word.
// A slow one gets most of the time, and leaves some for another attempt:
//
//	timeout 10s    read 2s    query 6.7s    write without a key 10s
func (r *Request) attemptTime(timeout time.Duration) time.Duration {
	switch {
	case r.slow():
		return timeout * 2 / 3
	case r.mayRepeat():
		return min(timeout, 2*time.Second)
	}
	return timeout
}

// mayRepeat says whether somebody asks again where nobody answers: the client, or the request's sender.
func (r *Request) mayRepeat() bool { return r.repeatable() || kinds[r.Kind()].goesOn }

// name names the request in messages: a single operation by what it does.
func (r *Request) name() string {
	if op := r.single(); op != nil {
		return op.Kind.String()
	}
	return r.Kind().String()
}

// spanName names the span of a request. The names of the commonest are put
// together once.
func (r *Request) spanName() string {
	if op := r.single(); op != nil && int(op.Kind) < len(spanNames) {
		return spanNames[op.Kind]
	}
	return spanPrefix + r.name()
}

const spanPrefix = "millrace.request "

// spanNames are those of single operations, by their kind.
var spanNames = func() (names [OpPatch + 1]string) {
	for kind := range names {
		names[kind] = spanPrefix + OpKind(kind).String()
	}
	return names
}()
