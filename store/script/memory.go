package script

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// memoryEvery is the pause between two looks at the heap.
	memoryEvery = 2 * time.Millisecond
	// excessOf is how many times its bound a script may have before the process ends without another word: it
	// is inside of a built-in function, where it hears nothing.
	excessOf = 4
	// stackBytesMax bounds Go's stack, on which the parser and built-in functions recurse. Behind it the process ends.
	stackBytesMax = 128 << 20
	// exitMemory is the exit code of a process that ended itself for memory.
	exitMemory = 3
)

// heapMetric is what the heap holds, garbage that was not collected yet included.
const heapMetric = "/memory/classes/heap/objects:bytes"

func heapBytes() int64 {
	sample := []metrics.Sample{{Name: heapMetric}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// watchMemory calls exceeded once the heap has grown by more than limit bytes that are in use, until stop.
func watchMemory(limit int64, exceeded func()) (stop func()) {
	before := heapBytes()
	// Near its end the collector works harder, so that garbage is not taken for what is in use.
	formerly := debug.SetMemoryLimit(before + limit + limit/2)
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(memoryEvery)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			grown := heapBytes() - before
			if grown > excessOf*limit {
				os.Exit(exitMemory)
			}
			if grown <= limit {
				continue
			}
			runtime.GC()
			if heapBytes()-before > limit {
				exceeded()
				// What it holds is garbage as soon as it ends; another look would find the same.
				limit *= 2
			}
		}
	})
	return func() {
		close(ended)
		watching.Wait()
		debug.SetMemoryLimit(formerly)
	}
}
