package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

// bulkParallel bounds the logical partitions of one request whose operations run at once.
const bulkParallel = 32

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
	if isTrue(x.header(headerBatchContinue)) {
		s.runTasks(x, order, answers)
	} else {
		s.runUntilFailure(x, order, answers)
	}
	status := http.StatusOK
	for i := range answers {
		if answers[i].status >= http.StatusBadRequest {
			status = http.StatusMultiStatus
		}
	}
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

// runTasks runs all operations, also when others fail. Each goroutine writes to the answers of
// its own operations alone.
func (s *Server) runTasks(x *exchange, tasks []*bulkTask, answers []operationAnswer) {
	slots := make(chan struct{}, bulkParallel)
	var wg sync.WaitGroup
	for _, t := range tasks {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			for n, w := range t.writes {
				answers[t.indexes[n]] = s.runOne(x, w)
			}
		})
	}
	wg.Wait()
}

// runUntilFailure runs operations one by one in the order of the request. Those behind one that
// fails are not carried out.
func (s *Server) runUntilFailure(x *exchange, tasks []*bulkTask, answers []operationAnswer) {
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
			answers[i] = s.runOne(x, w)
		}
		failed = failed || answers[i].status >= http.StatusBadRequest
	}
}

// runOne carries out one operation of a bulk request.
func (s *Server) runOne(x *exchange, w *itemWrite) operationAnswer {
	result, err := s.commit(x, w.c, &store.Transact{Key: w.key, Ops: []store.Operation{w.op}})
	if err != nil {
		return failedOperation(translate(w.explain(err)))
	}
	return w.answer(&result.Results[0], x.minimal())
}
