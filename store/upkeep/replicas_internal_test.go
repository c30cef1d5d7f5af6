package upkeep

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestStream_AServerThatIsLostIsTold has JetStream tell of a replica whose server the stream's leader does not hear any more, or has
// never heard, because the server was lost with the leader before.
func TestStream_AServerThatIsLostIsTold(t *testing.T) {
	for what, c := range map[string]struct {
		peer            jetstream.PeerInfo
		leads           time.Duration
		offline, behind bool
	}{
		"up to date":                     {jetstream.PeerInfo{Current: true, Active: time.Second}, time.Hour, false, false},
		"catching up":                    {jetstream.PeerInfo{Active: time.Second, Lag: lagMax + 1}, time.Hour, false, true},
		"written to":                     {jetstream.PeerInfo{Active: time.Second, Lag: 9}, time.Hour, false, false},
		"known to be away":               {jetstream.PeerInfo{Offline: true, Active: time.Second}, time.Hour, true, false},
		"silent":                         {jetstream.PeerInfo{Active: silentMax + 1}, time.Hour, true, false},
		"never heard":                    {jetstream.PeerInfo{Lag: 9}, silentMax + 1, true, false},
		"never heard by a leader so new": {jetstream.PeerInfo{Lag: 9}, silentMax, false, true},
		"heard at this moment":           {jetstream.PeerInfo{Current: true}, time.Hour, false, false},
	} {
		t.Run(what, func(t *testing.T) {
			now := time.Now()
			elected := now.Add(-c.leads)
			c.peer.Name = "n2"
			info := &jetstream.StreamInfo{
				Config:    jetstream.StreamConfig{Replicas: 2},
				Cluster:   &jetstream.ClusterInfo{LeaderSince: &elected, Replicas: []*jetstream.PeerInfo{&c.peer}},
				TimeStamp: now,
			}
			var s Stream
			s.setReplicas(info)
			if offline, behind := slices.Equal(s.Offline, []string{"n2"}), slices.Equal(s.Behind, []string{"n2"}); offline != c.offline || behind != c.behind || s.Actual != 2 {
				t.Errorf("%+v; away is to be %t, behind %t", s, c.offline, c.behind)
			}
		})
	}
}
