package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
	"github.com/millrace/millrace/store/snapshot"
	"github.com/millrace/millrace/store/spare"
	"github.com/millrace/millrace/store/users"
)

// wishLabel is where the stream of the catalog's bucket tells how many replicas the
// stores were configured to keep.
const wishLabel = "millrace.replicas"

// silentMax is how long a replica, which the stream's leader asks every second, may
// be silent. The servers themselves take minutes to find that one of them is lost.
const silentMax = 10 * time.Second

// lagMax is how many messages a replica may lack and still be up to date. While a stream is written there is nearly always
// one that is on its way; more than these are only on their way where a replica catches up.
const lagMax = 64

// stepTimeout bounds what asks about many streams or records.
const stepTimeout = time.Minute

// answerTimeout is how long a question about one stream waits. A stream without a leader never
// answers, and an answer may be lost with a server, while the others are to be looked after.
const answerTimeout = 10 * time.Second

// askedMax is how many streams are asked, or changed, at once. One after the other, thirty that are
// silent would use up a pass, and nothing would be done for the others.
const askedMax = 8

const catalogStream = "KV_" + store.CatalogBucket

// Stream tells of a stream, a log's or a bucket's, how many replicas it is to have
// and has.
type Stream struct {
	Name string `json:"name"`
	// Partition is the log's; "" of a bucket.
	Partition string `json:"partition,omitempty"`
	Wanted    int    `json:"wanted"`
	// Actual is the number that the stream is configured with.
	Actual int `json:"actual"`
	// Offline are the servers of replicas that cannot be reached, Behind those whose
	// replicas are not up to date.
	Offline []string `json:"offline,omitempty"`
	Behind  []string `json:"behind,omitempty"`
	// Error is why the stream could not be brought to what is wanted, or looked at.
	Error string `json:"error,omitempty"`
}

// Short says whether the stream has fewer replicas than it is to have.
func (s *Stream) Short() bool { return s.Actual < s.Wanted }

// Report tells of all streams and buckets.
type Report struct {
	Wanted  int      `json:"wanted"`
	Streams []Stream `json:"streams"`
	// Deleted are the containers, as database/name, whose deletion was cut off and that this pass has deleted.
	Deleted []string `json:"deleted,omitempty"`
	// Removed are the logs that were of no use to anybody and that this pass has removed.
	Removed []feed.Partition `json:"removed,omitempty"`
}

// Of returns what is known of a log; false if it is not among the streams.
func (r *Report) Of(p feed.Partition) (Stream, bool) {
	at := slices.IndexFunc(r.Streams, func(s Stream) bool { return s.Partition == p.String() })
	if at < 0 {
		return Stream{}, false
	}
	return r.Streams[at], true
}

// Short are the streams with fewer replicas than they are to have.
func (r *Report) Short() []Stream {
	return slices.DeleteFunc(slices.Clone(r.Streams), func(s Stream) bool { return !s.Short() })
}

// Warnings tell operators what is not as it is to be; none if all is.
func (r *Report) Warnings() []string {
	var texts []string
	if short := r.Short(); len(short) > 0 {
		text := fmt.Sprintf("%d of %d streams have fewer replicas than durability asks for, such as %s with %d of %d",
			len(short), len(r.Streams), short[0].Name, short[0].Actual, short[0].Wanted)
		if at := slices.IndexFunc(short, func(s Stream) bool { return s.Error != "" }); at >= 0 {
			text += ": " + short[at].Error
		} else {
			text += "; a store that runs brings them there"
		}
		texts = append(texts, text)
	}
	away := map[string]int{}
	for _, s := range r.Streams {
		for _, server := range s.Offline {
			away[server]++
		}
	}
	for _, server := range slices.Sorted(maps.Keys(away)) {
		texts = append(texts, fmt.Sprintf("the NATS server %s cannot be reached; it holds a replica of %d streams, which go on without it while most of the others are there", server, away[server]))
	}
	return texts
}

// Wish says how many replicas streams and buckets are to have.
type Wish struct {
	// Replicas of logs and of all buckets but that of the leases. At least 1.
	Replicas int
	// Leases is the bucket of the leases, "" for none, LeaseReplicas how many replicas
	// it is to have; 0 means Replicas.
	Leases        string
	LeaseReplicas int
}

// replicasOf returns how many replicas a stream is to have; 0 if it is not one of
// Millrace's.
func (w *Wish) replicasOf(stream string) int {
	if _, isLog := feed.ParseStream(stream); isLog {
		return w.Replicas
	}
	switch stream {
	case catalogStream, "KV_millrace_pipelines", "KV_" + spare.Bucket, "KV_" + users.Bucket, snapshot.StreamName:
		return w.Replicas
	case "KV_" + w.Leases:
		if w.LeaseReplicas > 0 {
			return w.LeaseReplicas
		}
		return w.Replicas
	}
	return 0
}

// Wanted returns how many replicas the stores of a NATS system keep, as far as the
// catalog's bucket tells; 0 if there is none. Whoever opens the system with a
// configuration that says less, such as a command, keeps to it.
func Wanted(ctx context.Context, js jetstream.JetStream) (int, error) {
	stream, err := js.Stream(ctx, catalogStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for Millrace's catalog: %w", err)
	}
	return wanted(&stream.CachedInfo().Config), nil
}

// wanted returns what the catalog's bucket says, and at least as many replicas as it has: an
// earlier release did not write the wish.
func wanted(cfg *jetstream.StreamConfig) int {
	n, err := strconv.Atoi(cfg.Metadata[wishLabel])
	if err != nil {
		n = 0
	}
	return max(n, cfg.Replicas)
}

// Look tells how many replicas streams have. It changes nothing.
func Look(ctx context.Context, js jetstream.JetStream, w Wish) (*Report, error) {
	all, err := list(ctx, js)
	if err != nil {
		return nil, err
	}
	return w.report(all), nil
}

func (w *Wish) report(all []listed) *Report {
	r := &Report{Wanted: w.Replicas}
	for _, l := range all {
		n := w.replicasOf(l.name)
		if n == 0 {
			continue
		}
		s := Stream{Name: l.name, Wanted: n}
		if p, isLog := feed.ParseStream(s.Name); isLog {
			s.Partition = p.String()
		}
		if l.err != nil {
			s.Actual, s.Error = n, l.err.Error() // nobody knows; that is told, and no shortage
		} else {
			s.setReplicas(l.info)
		}
		r.Streams = append(r.Streams, s)
	}
	return r
}

// setReplicas sets what the stream's leader tells. A replica counts when the stream is
// configured with it and a server was chosen for it, whether or not that server can
// be reached now.
func (s *Stream) setReplicas(info *jetstream.StreamInfo) {
	s.Actual = info.Config.Replicas
	if info.Cluster == nil {
		return
	}
	s.Actual = min(s.Actual, 1+len(info.Cluster.Replicas))
	since := info.Cluster.LeaderSince
	settled := since != nil && info.TimeStamp.Sub(*since) > silentMax
	for _, peer := range info.Cluster.Replicas {
		// A replica that its leader has never heard, because its server was lost with the leader before, is active "0" ago.
		unheard := settled && peer.Active == 0 && !peer.Current
		switch {
		case peer.Offline, peer.Active > silentMax, unheard:
			s.Offline = append(s.Offline, peer.Name)
		case !peer.Current && (peer.Active == 0 || peer.Lag == 0 || peer.Lag > lagMax): // not heard yet, or who answers does not know
			s.Behind = append(s.Behind, peer.Name)
		}
	}
}

// listed is a stream that is there, or why it could not be looked at.
type listed struct {
	name string
	info *jetstream.StreamInfo
	err  error
}

// list returns all streams, ordered by name. In a cluster the list lacks those
// whose servers do not answer; they are asked for by name.
func list(ctx context.Context, js jetstream.JetStream) ([]listed, error) {
	asking, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	names, err := feed.StreamNames(asking, js)
	if err != nil {
		return nil, err
	}
	known := map[string]*jetstream.StreamInfo{}
	lister := js.ListStreams(asking)
	for info := range lister.Info() {
		known[info.Config.Name] = info
	}
	if err := lister.Err(); err != nil {
		return nil, fmt.Errorf("list the streams: %w", err)
	}
	all := make([]listed, len(names))
	var g errgroup.Group
	g.SetLimit(askedMax)
	for i, name := range names {
		if all[i] = (listed{name: name, info: known[name]}); all[i].info != nil {
			continue
		}
		g.Go(func() error {
			all[i].ask(ctx, js)
			return nil
		})
	}
	_ = g.Wait() // each has its own error
	deletedMeanwhile := func(l listed) bool { return errors.Is(l.err, jetstream.ErrStreamNotFound) }
	return slices.DeleteFunc(all, deletedMeanwhile), nil
}

// ask asks for one stream.
func (l *listed) ask(ctx context.Context, js jetstream.JetStream) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	stream, err := js.Stream(ctx, l.name)
	if l.err = err; err == nil {
		l.info = stream.CachedInfo()
	}
}
