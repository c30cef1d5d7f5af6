package status

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/store"
)

const (
	// storageAsked bounds the owners that are asked at a time.
	storageAsked = 16
	// storageTimeout bounds the wait for one owner. One that does not answer is
	// counted as that: a status is no place to wait for it.
	storageTimeout = 2 * time.Second
)

// Storage tells of the logs and engines under all containers, as their owners do.
type Storage struct {
	// Partitions counts all, Answered those whose owner answered, and Read those whose
	// log was read as a whole since its owner opened it.
	Partitions int `json:"partitions"`
	Answered   int `json:"answered"`
	Read       int `json:"read"`
	// Oldest is when the log was read whose reading is longest ago; zero if none was.
	Oldest time.Time `json:"oldest,omitzero"`
	// Troubles say what is damaged and why writes are refused, in the words of the owners.
	Troubles []string `json:"troubles,omitempty"`
	// Asked are the partitions with what their owners said, in the order of the containers. It is
	// no part of a status as it is printed, because of its size.
	Asked []Asked `json:"-" yaml:"-"`
}

// Asked is a partition, with what its owner said.
type Asked struct {
	Database  string
	Container string
	Partition feed.Partition
	// Status is nil, and Error the reason, if the owner did not answer.
	Status *store.PartitionStatus
	Error  string
}

// ReadStorage asks the owners of the partitions of all containers.
func ReadStorage(ctx context.Context, client *store.Client, containers []store.ContainerInfo) (*Storage, error) {
	s := &Storage{}
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(storageAsked)
	for i := range containers {
		ct, err := client.Open(containers[i])
		if err != nil {
			return nil, err
		}
		for _, p := range ct.Partitions() {
			at := s.Partitions
			s.Partitions++
			mu.Lock() // answers of owners that were asked before are written to it already
			s.Asked = append(s.Asked, Asked{Database: containers[i].Database, Container: containers[i].Name, Partition: p})
			mu.Unlock()
			g.Go(func() error {
				one, cancel := context.WithTimeout(gctx, storageTimeout)
				defer cancel()
				status, err := ct.Status(one, p)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					s.Asked[at].Error = err.Error()
					return gctx.Err() // without the owner's word nothing is known
				}
				s.Asked[at].Status = status
				s.add(p, status)
				return nil
			})
		}
	}
	err := g.Wait()
	slices.Sort(s.Troubles)
	s.Troubles = slices.Compact(s.Troubles)
	return s, err
}

// add counts what an owner says.
func (s *Storage) add(p feed.Partition, status *store.PartitionStatus) {
	s.Answered++
	if status.Refusing != "" {
		why := status.Refusing
		if !strings.Contains(why, p.String()) {
			why = fmt.Sprintf("partition %s: %s", p, why)
		}
		s.Troubles = append(s.Troubles, why)
	}
	// A damaged log refuses writes, so its finding was told. An engine is one for all
	// partitions of its process, and what it lost is made anew.
	if scrub := status.EngineScrub; scrub != nil && scrub.Finding != "" {
		s.Troubles = append(s.Troubles, fmt.Sprintf("the engine of %s: %s", status.Owner, scrub.Finding))
	}
	if scrub := status.Scrub; scrub != nil {
		s.Read++
		if s.Oldest.IsZero() || scrub.Ended.Before(s.Oldest) {
			s.Oldest = scrub.Ended
		}
	}
}

// writeTo writes a line for what was read, and one for each trouble.
func (s *Storage) writeTo(w io.Writer, now time.Time) error {
	text := fmt.Sprintf("logs: %d of %d read whole", s.Read, s.Partitions)
	if !s.Oldest.IsZero() {
		text += fmt.Sprintf(", the first of them %s ago", now.Sub(s.Oldest).Round(time.Second))
	}
	if away := s.Partitions - s.Answered; away > 0 {
		text += fmt.Sprintf("; %d not answered for", away)
	}
	if _, err := fmt.Fprintf(w, "\n%s\n", text); err != nil {
		return err
	}
	for _, trouble := range s.Troubles {
		if _, err := fmt.Fprintf(w, "problem: %s\n", trouble); err != nil {
			return err
		}
	}
	return nil
}
