package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// bulkParallel bounds the logical partitions of one request whose operations run at once.
const bulkParallel = 32

// bulkAnswerMax bounds the bodies in the answer of one request, in bytes: a hundred reads are a
// few kilobytes, and each may be answered with an item of two megabytes. Operations that run at
// once may be in memory beyond it.
const bulkAnswerMax = 4 << 20

// bulkRun is one request of operations that succeed or fail alone.
type bulkRun struct {
	s     *Server
	x     *exchange
	bytes atomic.Int64 // of the bodies that are answered
	seen  seenStates
}

// bulkTask is the operations of one logical partition, with their indexes in the request.
type bulkTask struct {
	indexes []int
	writes  []*itemWrite
}

// bulk carries out operations each of which succeeds or fails alone. Operations on one logical
// partition run in their order; those of different logical partitions run at the same time,
// so that owners put them into common commits.
func (s *Server) bulk(x *exchange, c *collection, asked []batchOperation, headerKey feed.PartitionKey, given bool) error {
	ranges, err := c.rangeIDs(x.header(headerRange))
	if err != nil {
		return err
	}
	answers := make([]operationAnswer, len(asked))
	tasks := map[feed.PartitionKey]*bulkTask{}
	var order []*bulkTask
	for i := range asked {
		w, err := c.bulkOperation(&asked[i], headerKey, given, ranges)
		// An operation that cannot be read fails alone too.
		if err != nil {
			answers[i] = failedOperation(translate(err))
			continue
		}
		t := tasks[w.key]
		if t == nil {
			t = &bulkTask{}
			tasks[w.key] = t
			order = append(order, t)
		}
		t.indexes, t.writes = append(t.indexes, i), append(t.writes, w)
	}
	run := &bulkRun{s: s, x: x}
	if isTrue(x.header(headerBatchContinue)) {
		run.tasks(order, answers)
	} else {
		run.untilFailure(order, answers)
	}
	status := http.StatusOK
	for i := range answers {
		if answers[i].status >= http.StatusBadRequest {
			status = http.StatusMultiStatus
		}
	}
	x.session(run.seen.tokens()...)
	answerOperations(x, status, answers)
	return nil
}

// bulkOperation reads one operation. Its partition key is JSON, or a string that holds JSON, as
// some SDKs send it; without one it is that of the header.
func (c *collection) bulkOperation(asked *batchOperation, key feed.PartitionKey, given bool, ranges []uint32) (*itemWrite, error) {
	if len(asked.PartitionKey) > 0 && string(asked.PartitionKey) != "null" {
		text := string(asked.PartitionKey)
		if text[0] == '"' {
			if err := json.Unmarshal(asked.PartitionKey, &text); err != nil {
				return nil, refuse(http.StatusBadRequest, "partitionKey: %v", err)
			}
		}
		var err error
		if key, given, err = c.parseKey(text); err != nil {
			return nil, err
		}
	}
	if kind := batchKinds[asked.Type]; !given && (kind == store.OpRead || kind == store.OpDelete || kind == store.OpPatch) {
		return nil, errNoKey
	}
	w, err := c.newOperation(asked, key, given)
	if err != nil {
		return nil, err
	}
	if number := c.PartitionFor(w.key).Number; ranges != nil && !slices.Contains(ranges, number) {
		return nil, refuseAs(http.StatusGone, subRangeGone, "the partition key %s lies in range %d; read the ranges again", w.key, number)
	}
	return w, nil
}

// tasks runs all operations, also when others fail. Each goroutine writes to the answers of
// its own operations alone.
func (r *bulkRun) tasks(tasks []*bulkTask, answers []operationAnswer) {
	slots := make(chan struct{}, bulkParallel)
	var wg sync.WaitGroup
	for _, t := range tasks {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for n, w := range t.writes {
				answers[t.indexes[n]] = r.one(w)
			}
		})
	}
	wg.Wait()
}

// untilFailure runs operations one by one in the order of the request. Those behind one that
// fails are not carried out.
func (r *bulkRun) untilFailure(tasks []*bulkTask, answers []operationAnswer) {
	writes := make([]*itemWrite, len(answers))
	for _, t := range tasks {
		for n, at := range t.indexes {
			writes[at] = t.writes[n]
		}
	}
	failed := false
	for i, w := range writes {
		switch {
		case failed:
			answers[i] = operationAnswer{status: http.StatusFailedDependency}
		case w != nil:
			answers[i] = r.one(w)
		}
		failed = failed || answers[i].status >= http.StatusBadRequest
	}
}

// one carries out one operation. What finds no room in the answer is not read; what was written is
// answered without its item.
func (r *bulkRun) one(w *itemWrite) operationAnswer {
	reads := w.op.Kind == store.OpRead
	if reads && r.bytes.Load() >= bulkAnswerMax {
		return failedOperation(errAnswerTooLarge)
	}
	result, err := r.s.commit(r.x, w.c, &store.Transact{Key: w.key, Ops: []store.Operation{w.op}})
	partition := w.c.PartitionFor(w.key)
	if err != nil {
		r.seen.note(partition, refusedAt(err))
		return failedOperation(translate(w.explain(err)))
	}
	r.seen.note(partition, result.LSN)
	a := w.answer(&result.Results[0], r.x.minimal())
	switch size := int64(len(a.body)); {
	case size == 0, r.bytes.Add(size) <= bulkAnswerMax:
		return a
	case reads:
		return failedOperation(errAnswerTooLarge)
	default:
		a.body = nil
		return a
	}
}

var errAnswerTooLarge = refuseAs(http.StatusRequestEntityTooLarge, subAnswerTooLarge, "the items that the request is answered with would have more than %d MiB; read this one by itself, or ask for fewer at once", bulkAnswerMax>>20)

// deleteKey deletes the items of a partition key, in transactions of store.BatchOpsMax, and answers when all are deleted. The service does
// so in the background and hides them at once; here readers see some of them go before others. It goes through the ids once, in their
// order, so that somebody who makes items meanwhile does not keep it busy. Cut short, it has deleted the first ones, and is asked for again.
func (s *Server) deleteKey(x *exchange) error {
	c, err := s.collection(x)
	if err != nil {
		return err
	}
	key, given, err := c.parseKey(x.header(headerKey))
	if err != nil {
		return err
	}
	if !given {
		return errNoKey
	}
	if err := x.right.admitKey(key); err != nil {
		return err
	}
	charge, partition := chargePage, c.PartitionFor(key)
	r := store.QueryRequest{Text: "SELECT VALUE c.id FROM c", Key: key, RowsMax: store.BatchOpsMax}
	for {
		page, err := c.owned.Query(x.ctx, r)
		if err != nil {
			return s.explainAbsence(x, c, err)
		}
		ops := make([]store.Operation, len(page.Rows))
		for i, row := range page.Rows {
			ops[i].Kind = store.OpDelete
			if err := json.Unmarshal(row, &ops[i].ID); err != nil {
				return fmt.Errorf("id %s of partition key %s: %w", row, key, err)
			}
		}
		if len(ops) > 0 {
			result, err := s.commit(x, c, &store.Transact{Key: key, Ops: ops})
			switch {
			case errors.Is(err, store.ErrNotFound) || err == nil && result.Failed:
				continue // somebody else has deleted one of these meanwhile: read them again
			case err != nil:
				x.saw(partition, refusedAt(err))
				return s.explainAbsence(x, c, err)
			}
			x.saw(partition, result.LSN)
			charge += chargeWrite * float64(len(ops))
		}
		if r.Continuation = page.Continuation; r.Continuation == "" {
			x.answer(http.StatusOK, charge, nil)
			return nil
		}
	}
}
