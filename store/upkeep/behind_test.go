package upkeep //nolint:testpackage // what a cluster under load says is made here

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestStream_AReplicaIsNotBehindForWhatIsOnItsWay: while a stream is written, its leader says at nearly each moment of one
// of the others that it is not current.
func TestStream_AReplicaIsNotBehindForWhatIsOnItsWay(t *testing.T) {
	peers := []*jetstream.PeerInfo{
		{Name: "current", Current: true, Active: time.Second},
		{Name: "written to", Lag: 3, Active: time.Millisecond},
		{Name: "catches up", Lag: 10_000, Active: time.Second},
		{Name: "nobody knows", Active: time.Second},
		{Name: "silent", Lag: 3, Active: time.Minute},
		{Name: "gone", Offline: true},
	}
	var s Stream
	s.setReplicas(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 3}, Cluster: &jetstream.ClusterInfo{Replicas: peers}})
	if want := []string{"catches up", "nobody knows"}; !slices.Equal(s.Behind, want) {
		t.Errorf("behind are %q, want %q", s.Behind, want)
	}
	if want := []string{"silent", "gone"}; !slices.Equal(s.Offline, want) {
		t.Errorf("offline are %q, want %q", s.Offline, want)
	}
}
