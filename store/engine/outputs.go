package engine

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4/pb"
	"google.golang.org/protobuf/runtime/protoiface"
)

const (
	// mergeAdded is what Badger says when a merge has put together the keys of a table, before it
	// makes the table: the merge's compactor, the keys that the table has, those that were left
	// out, and a time. It says so to the log for debugging, in a goroutine that the goroutine of
	// the merge has started. Without keys it makes no table.
	mergeAdded = "[%d] LOG Compact. Added %d keys. Skipped %d keys. Iteration took: %v"

	// mergeFailed is what Badger says when a merge has ended with an error, and what it made is
	// gone: the compactor, the error, and the merge. It says so in the goroutine of the merge.
	mergeFailed = "[Compactor: %d] LOG Compact FAILED with error: %+v: %+v"

	// mergeMethod is in the stack of a merge that hands over what it made.
	mergeMethod = ".(*levelsController).runCompactDef("

	// mergeRetry is how long a compactor waits after a merge that failed. Badger itself would try
	// again after 50 ms, and write up to 32 MiB each time.
	mergeRetry = time.Second
)

// Badger drops the error of a table that a merge cannot make (levels.go, subcompact: a deferred
// call whose argument, the error, is evaluated before there is one). It would write into the
// manifest the tables that it has, and delete all that were merged. So the tables are counted
// that a merge puts together, and compared with those that it hands over, before they count:
//
//	compactor, goroutine 7            its parts, started by goroutine 7
//	tables to merge          ───▶     put together a table, say so      outputs.of[7]++
//	                                  make its file, or fail
//	all parts have ended     ◀───
//	encode the manifest's change      as many tables as were counted?   no: an error
//	write it, replace tables          (only now readers see the new tables)
//
// Encoding is the last step that can fail with nothing changed. Badger then removes what the
// merge made, keeps what it read, and tries again.
type outputs struct {
	mu sync.Mutex
	of map[uint64]int // by the number of the merge's goroutine
}

// unfinished counts the tables of all merges of the process that run: who encodes a change does
// not know of which DB it is. Goroutines have different numbers, and no number is given twice.
var unfinished = outputs{of: make(map[uint64]int)}

// add counts n more tables of a merge.
func (o *outputs) add(merge uint64, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.of[merge] += n
}

// take ends the count of a merge. It is not known if nothing was counted, not even none.
func (o *outputs) take(merge uint64) (n int, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n, known = o.of[merge]
	delete(o.of, merge)
	return n, known
}

// unmadeError says that a merge has not made all of its tables.
type unmadeError struct{ made, want int }

func (e *unmadeError) Error() string {
	return fmt.Sprintf("engine: a merge made %d of %d tables", e.made, e.want)
}

// errUncounted says that Badger's log does not say any more what is counted, as in a version that
// this was not written for.
var errUncounted = errors.New("engine: the tables of a merge were not counted")

var outputsOnce sync.Once

// checkOutputs has merges checked. It must have returned before anything of Badger runs.
func checkOutputs(log *slog.Logger) {
	outputsOnce.Do(func() {
		if !numbered() {
			log.Warn("merges are not checked here, because goroutines show no numbers: one that cannot make a table loses what was in it")
			return
		}
		methods := (&pb.ManifestChangeSet{}).ProtoReflect().ProtoMethods()
		methods.Marshal = checkedMarshal(methods.Marshal)
	})
}

type marshalFunc = func(protoiface.MarshalInput) (protoiface.MarshalOutput, error)

// checkedMarshal refuses the change of a merge that has not made all of its tables.
func checkedMarshal(marshal marshalFunc) marshalFunc {
	return func(in protoiface.MarshalInput) (protoiface.MarshalOutput, error) {
		if set, ok := in.Message.Interface().(*pb.ManifestChangeSet); ok {
			if err := checkChange(set); err != nil {
				return protoiface.MarshalOutput{}, err
			}
		}
		return marshal(in)
	}
}

// checkChange finds that a change of the manifest lacks tables. Only merges delete some: a flush
// adds one, and a manifest that is written anew names those that there are.
func checkChange(set *pb.ManifestChangeSet) error {
	made, deleted := 0, 0
	for _, c := range set.GetChanges() {
		if c.GetOp() == pb.ManifestChange_DELETE {
			deleted++
		} else {
			made++
		}
	}
	// Before the stack is asked for: most changes are of flushes, which delete nothing.
	if deleted == 0 {
		return nil
	}
	stack := debug.Stack()
	merge, _ := goroutines(stack)
	want, known := unfinished.take(merge)
	switch {
	case !known && bytes.Contains(stack, []byte(mergeMethod)):
		return errUncounted
	case known && made != want:
		return &unmadeError{made: made, want: want}
	}
	return nil
}

// put counts n tables that a part of a merge has put together, in the part's goroutine.
func put(n int) {
	_, merge := goroutines(debug.Stack())
	unfinished.add(merge, n)
}

// tablesOfKeys is how many tables are made, by what Badger says with mergeAdded.
func tablesOfKeys(args []any) int {
	if len(args) > 1 && args[1] == uint64(0) {
		return 0
	}
	return 1
}

// failed tells of a merge that has failed, in its goroutine, and ends its count: there may have
// been another error before its tables were compared.
func (m *merges) failed(format string, args []any) {
	own, _ := goroutines(debug.Stack())
	unfinished.take(own)
	var unmade *unmadeError
	if len(args) > 1 {
		if err, ok := args[1].(error); ok {
			errors.As(err, &unmade)
		}
	}
	if unmade == nil {
		m.log.Warn("badger", message(format, args))
	} else {
		m.log.Error("tables could not be made, so a merge was given up; nothing is lost, and it is tried again: "+
			"look at free descriptors (ulimit -n), mappings (vm.max_map_count), inodes and space",
			"dir", m.dir, "made", unmade.made, "of", unmade.want)
	}
	<-time.After(m.retry)
}

// goroutines reads from the stack of a goroutine its own number, and that of the goroutine which
// started it. Go tells them in no other way, and nothing else that Badger shows ties a part to its
// merge: two merges can have the same compactor's number. A number that is not there is 0.
func goroutines(stack []byte) (own, starter uint64) {
	_, rest, _ := bytes.Cut(stack, []byte("goroutine "))
	_, created, _ := bytes.Cut(stack, []byte("\ncreated by "))
	created, _, _ = bytes.Cut(created, []byte("\n"))
	_, started, _ := bytes.Cut(created, []byte(" in goroutine "))
	return number(rest), number(started)
}

// number reads the digits with which text begins.
func number(text []byte) (n uint64) {
	for _, c := range text {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

// numbered tells whether stacks show the numbers of goroutines, as they do since Go 1.21.
func numbered() bool {
	own, _ := goroutines(debug.Stack())
	var part, starter uint64
	var wg sync.WaitGroup
	wg.Go(func() { part, starter = goroutines(debug.Stack()) })
	wg.Wait()
	return own != 0 && starter == own && part != own
}
