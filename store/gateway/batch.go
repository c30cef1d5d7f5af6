package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// batchOperation is one operation of a batch as it is sent.
type batchOperation struct {
	Type         string          `json:"operationType"`
	ID           string          `json:"id"`
	IfMatch      string          `json:"ifMatch"`
	IfNoneMatch  string          `json:"ifNoneMatch"`
	PartitionKey json.RawMessage `json:"partitionKey"`
	Body         json.RawMessage `json:"resourceBody"`
}

// batchBody is the body of a batch. There is no list if n is too many.
type batchBody struct {
	list []batchOperation
	n    int
}

func (b *batchBody) UnmarshalJSON(data []byte) (err error) {
	b.list, b.n, err = document.DecodeList[batchOperation](data, store.BatchOpsMax)
	return err
}

// batchKinds are the operations of a batch by their names.
var batchKinds = map[string]store.OpKind{
	"Create": store.OpCreate, "Upsert": store.OpUpsert, "Replace": store.OpReplace, "Read": store.OpRead,
	"Delete": store.OpDelete, "Patch": store.OpPatch,
}

// hybridRow is the version byte with which a body in HybridRow begins. No JSON begins so.
const hybridRow = 0x81

// batch carries out a transactional batch, or operations in bulk, each of which succeeds or
// fails alone. The header x-ms-cosmos-batch-atomic tells which.
func (s *Server) batch(x *exchange) error {
	if x.namesTriggers() {
		return refuse(http.StatusBadRequest, "a batch has no triggers; a stored procedure writes several items")
	}
	c, err := s.collection(x)
	if err != nil {
		return err
	}
	if len(x.body) > 0 && x.body[0] == hybridRow {
		return refuse(http.StatusBadRequest, "the batch is written in HybridRow, the binary form of the .NET SDK, and JSON is expected: "+
			"batch and bulk of that SDK are not served; leave AllowBulkExecution off, and write the items of a batch one by one")
	}
	var body batchBody
	if err := x.decode(&body); err != nil {
		return err
	}
	asked := body.list
	if n := body.n; n < 1 || n > store.BatchOpsMax {
		return refuse(http.StatusBadRequest, "the batch has %d operations; 1 to %d are allowed", n, store.BatchOpsMax)
	}
	key, given, err := c.parseKey(x.header(headerKey))
	if err != nil {
		return err
	}
	if atomic := x.header(headerBatchAtomic); atomic != "" && !isTrue(atomic) {
		return s.bulk(x, c, asked, key, given)
	}
	if !given {
		return errNoKey
	}
	return s.transact(x, c, asked, key)
}

// transact carries out a transactional batch on one logical partition.
func (s *Server) transact(x *exchange, c *collection, asked []batchOperation, key feed.PartitionKey) error {
	writes := make([]*itemWrite, len(asked))
	ops := make([]store.Operation, len(asked))
	size := 0
	for i := range asked {
		w, err := c.newOperation(&asked[i], key, true)
		if err != nil {
			return answerFailed(x, len(asked), i, translate(err))
		}
		writes[i], ops[i] = w, w.op
		size += len(asked[i].Body)
	}
	if size > store.BatchBytesMax {
		return refuse(http.StatusRequestEntityTooLarge, "the bodies of the batch have %d bytes; at most %d are allowed", size, store.BatchBytesMax)
	}
	result, err := s.commit(x, c, &store.Transact{Key: key, Ops: ops, Batch: true})
	if err != nil {
		x.saw(c.PartitionFor(key), refusedAt(err))
		return s.explainAbsence(x, c, err)
	}
	x.saw(c.PartitionFor(key), result.LSN)
	if result.Failed {
		for i := range result.Results {
			res := &result.Results[i]
			// One operation failed for its own reason, the others because of it.
			if res.Status != store.StatusFailedDependency {
				return answerFailed(x, len(asked), i, translate(writes[i].explain(&store.Error{Status: res.Status, Message: res.Message})))
			}
		}
	}
	answers := make([]operationAnswer, len(asked))
	for i := range answers {
		answers[i] = writes[i].answer(&result.Results[i], x.minimal())
	}
	answerOperations(x, http.StatusOK, answers)
	return nil
}

// answerFailed answers a batch of n operations of which operation i failed, so that none was
// carried out.
func answerFailed(x *exchange, n, i int, f *failure) error {
	answers := make([]operationAnswer, n)
	for j := range answers {
		answers[j].status = http.StatusFailedDependency
	}
	answers[i] = failedOperation(f)
	answerOperations(x, http.StatusMultiStatus, answers)
	return nil
}

// newOperation reads one operation on the logical partition key.
func (c *collection) newOperation(asked *batchOperation, key feed.PartitionKey, given bool) (*itemWrite, error) {
	kind, ok := batchKinds[asked.Type]
	if !ok {
		return nil, refuse(http.StatusBadRequest, "operationType is %q; Create, Upsert, Replace, Read, Delete or Patch is expected", clip(asked.Type))
	}
	w := &itemWrite{c: c, key: key, op: store.Operation{Kind: kind, IfMatch: parseMatching(asked.IfMatch).etag}}
	switch kind {
	case store.OpCreate, store.OpUpsert, store.OpReplace:
		if kind == store.OpReplace {
			w.op.ID = asked.ID
		}
		if kind == store.OpUpsert {
			if err := w.guardUpsert(asked.IfMatch, asked.IfNoneMatch); err != nil {
				return nil, err
			}
		}
		return w, w.setBody(asked.Body, given)
	case store.OpPatch:
		var err error
		w.op.ID = asked.ID
		w.op.Patch, w.op.Condition, err = parsePatch(asked.Body)
		return w, err
	case store.OpRead:
		w.op.ID, w.op.IfMatch, w.op.IfNoneMatch = asked.ID, store.ETag{}, parseMatching(asked.IfNoneMatch).etag
	case store.OpDelete:
		w.op.ID = asked.ID
	}
	return w, nil
}

// operationAnswer is the outcome of one operation.
type operationAnswer struct {
	status, substatus int
	charge            float64
	etag              string
	body              []byte
	message           string
	retryAfterMillis  int64
}

func failedOperation(f *failure) operationAnswer {
	return operationAnswer{
		status: f.status, substatus: f.substatus, charge: chargeRefusal, message: f.message, retryAfterMillis: f.retryAfter.Milliseconds(),
	}
}

// answer returns the outcome of an operation that succeeded.
func (w *itemWrite) answer(res *store.OpResult, minimal bool) operationAnswer {
	a := operationAnswer{status: int(res.Status), etag: res.Item.ETag.String()}
	switch w.op.Kind {
	case store.OpDelete:
		a.charge = chargeWrite
	case store.OpRead:
		a.charge = readCharge(len(res.Item.Body))
	default:
		a.charge = writeCharge(len(res.Item.Body))
	}
	if len(res.Item.Body) > 0 && (!minimal || w.op.Kind == store.OpRead) {
		a.body = w.c.appendItem(nil, &res.Item)
	}
	return a
}

// answerOperations answers a batch.
func answerOperations(x *exchange, status int, answers []operationAnswer) {
	// Written by hand: bodies are JSON already, and encoding/json would scan and copy each.
	var out bytes.Buffer
	charge := 0.0
	out.WriteByte('[')
	for i := range answers {
		a := &answers[i]
		if i > 0 {
			out.WriteByte(',')
		}
		charge += a.charge
		out.WriteString(`{"statusCode":` + strconv.Itoa(a.status) + `,"requestCharge":` + formatCharge(a.charge))
		if a.substatus != 0 {
			out.WriteString(`,"subStatusCode":` + strconv.Itoa(a.substatus))
		}
		if a.retryAfterMillis > 0 {
			out.WriteString(`,"retryAfterMilliseconds":` + strconv.FormatInt(a.retryAfterMillis, 10))
		}
		if a.etag != "" {
			out.WriteString(`,"eTag":"\"` + a.etag + `\""`)
		}
		if a.message != "" {
			message, err := json.Marshal(a.message)
			if err != nil {
				panic("gateway: a text cannot be marshalled") // it can
			}
			out.WriteString(`,"message":`)
			out.Write(message)
		}
		if len(a.body) > 0 {
			out.WriteString(`,"resourceBody":`)
			out.Write(a.body)
		}
		out.WriteByte('}')
	}
	out.WriteByte(']')
	x.w.Header().Set(headerItemCount, strconv.Itoa(len(answers)))
	x.answer(status, max(charge, chargeRefusal), out.Bytes())
}
