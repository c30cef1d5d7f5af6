// Package heat measures what each physical partition is asked for, and by which partition keys:
// requests, bytes and time, and the keys that take most of them.
//
// # Model
//
// An owner has a Meter for each partition. Every request is one Span, from Begin to End:
//
//	Begin ──▶ the reader answers, or the decider decides ──▶ End(work, keys)
//	  │ draws whether it is in the sample                      │
//	  ▼                                                        ▼
//	one of 1, 2, 4 … 64 requests                     totals: requests and bytes exactly, time estimated
//	                                                 sketch of the window: load by partition key
//
// Reads are what is answered beside the decider, Writes what the decider decides, refusals
// included. Time is that of the reader's or decider's goroutine, waiting for its turn, for the
// log and at barriers not counted. It is wall-clock time: on a machine whose processors are
// all busy it is more than what was computed.
//
// # Load, and the hottest keys
//
// A key's load is the time that its requests took, and requestCost more for each: so a key
// with few long queries is found as one with many short reads. A request of one key is that
// key's. One that reads or changes items of several counts for each run of items of one key,
// with its part of time and bytes. A query, scan or count that names no whole partition key
// counts for the partition and for no key.
//
// The sketch is space-saving (Metwally, Agrawal, El Abbadi, 2005) with slotsMax counters: a key
// that has none takes over the least one and adds to it what it found there, as its error.
// With T the load that the sketch was given, and e the error of a key's counter:
//
//	the true load of a key is in [counter - e, counter]
//	e ≤ T / slotsMax
//	a key with more than T / slotsMax has a counter
//	a key without one has at most the least counter
//
// A Key tells the lower bound (Share) and the upper one (ShareMax), and of its own requests only
// those counted since it got its counter: never more than there were. Keys come in the order of
// their lower bounds, and none that has less than shareMin of both the load and the requests: where
// these are spread evenly, there is no hot key, and none is told of.
//
// # Decay
//
// Two windows of Half a minute each way: what is told is of the present window and of the one
// before, so of the last Half to twice Half. Windows begin at multiples of Half since New. The
// totals only grow; a window keeps what they were when it began. Each window has a sketch of its own, so the bounds
// above hold for each, and the sums of the bounds for both. Older load is forgotten whole, with
// no arithmetic on counters.
//
// # What it costs
//
// No path waits. Totals are atomic. Whoever finds the sketch locked, or a window about to begin,
// goes on and adds the load to what was missed, which Report adds to each upper bound. Readers and
// the decider hold the lock for one pass over the counters, some 50 ns.
//
// A request that is not in the sample costs two atomic additions and a random number; one that
// is costs two readings of the clock, a hash and the pass more. The first sampleFrom requests of a
// window are all taken, and from then on one in 2, 4 … weightMax, each with so much weight: estimates
// stay unbiased, and a small load is counted exactly. Of a key with n requests in a window the
// standard deviation is at most sqrt(63/n) of it: 8 % with 10,000, 2.5 % with 100,000. Requests of
// more than one operation are long, and are always taken; of their runs at most runsMax are.
//
// A partition that nobody asks has no sketch. One that is asked has two, of at most 16 KiB each
// with their keys, which are kept as they are shown: cut at keyShown bytes.
//
// # What it does not do
//
// Nothing is stored and nothing is handed over: a new owner begins with nothing. Expiry and
// snapshots, which nobody asks for, count for nothing. Keys are data: they go into answers to those
// who may read items, and into no log and no metric.
//
// A Meter is safe for concurrent use, and a nil *Meter measures nothing.
//
// This package is no API for other programs.
package heat
