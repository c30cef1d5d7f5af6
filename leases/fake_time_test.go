package leases

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/leases/bucket/buckettest"
)

// fakeServer is a key-value store in memory, for tests under synctest.
type fakeServer struct{ *buckettest.Server }

func newFakeServer(t *testing.T) fakeServer {
	t.Helper()
	return fakeServer{buckettest.NewServer(t)}
}

// latency is what one way to the server takes.
const latency = buckettest.Latency

type (
	fakeClient = buckettest.Client
	fakeState  = buckettest.State
	faults     = buckettest.Faults
)

var errNoLease = errors.New("no such lease")

// lease returns what is stored of a lease in group "g".
func (s fakeServer) lease(resource string) (leaseRecord, error) {
	e := s.Get(leaseKey("g", resource))
	if e.Key == "" || e.Deleted {
		return leaseRecord{}, errNoLease
	}
	r, err := decodeLease(e.Key, e.Value)
	if err != nil {
		return leaseRecord{}, err
	}
	return *r, nil
}

// deafen makes a client's present watches silent for good.
func deafen(c *fakeClient) { c.Spoil(func(w *buckettest.Watch) { w.Dead = true }) }

// miss lets a client's present watches miss the changes of keys that begin with prefix, or no more if it is empty.
func miss(c *fakeClient, prefix string) { c.Spoil(func(w *buckettest.Watch) { w.Misses = prefix }) }

// breakWatches ends a client's present watches, which notices.
func breakWatches(c *fakeClient) { c.Spoil(func(w *buckettest.Watch) { w.Broken = true }) }
