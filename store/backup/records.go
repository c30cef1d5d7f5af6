package backup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/leases/bucket"
	"github.com/millrace/millrace/store"
)

// copyRecords reads the records of the catalog and of the pipelines, and leaves out the
// partitions of containers that are gone by now. The error is errSplit if a container has other partitions by now.
func (c *creator) copyRecords(ctx context.Context, r *Result) error {
	copied := map[string]bool{}
	for i := range r.Partitions {
		copied[r.Partitions[i].Partition] = true
	}
	// The records are read after the partitions were copied. One that was made meanwhile has
	// partitions that are not here, and one that was deleted has no record: both are left out,
	// so that the backup holds every partition of every container that it names.
	stands := map[feed.ResourceID]bool{}
	for _, b := range []struct{ bucket, keys string }{
		{store.CatalogBucket, "container.>"}, {store.CatalogBucket, "database.>"}, {c.src.Pipelines, c.src.PipelineKeys},
	} {
		kv, err := c.src.JetStream.KeyValue(ctx, b.bucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) && b.bucket == c.src.Pipelines {
			continue
		}
		if err != nil {
			return fmt.Errorf("bucket %s: %w", b.bucket, err)
		}
		entries, err := bucket.Entries(ctx, c.src.JetStream, kv, b.keys)
		if err != nil {
			return fmt.Errorf("list %s of bucket %s: %w", b.keys, b.bucket, err)
		}
		for _, e := range entries {
			if b.keys == "container.>" {
				info, err := store.DecodeContainer(e.Value())
				if err != nil {
					return fmt.Errorf("record %s: %w", e.Key(), err)
				}
				if info.State != store.ContainerReady || !c.began(&info) {
					r.skip(&info)
					continue // made meanwhile, or being deleted
				}
				for _, p := range info.Partitions {
					if !copied[feed.Partition{Container: info.ID, Number: p.Number}.String()] {
						return errSplit
					}
				}
				stands[info.ID] = true
			}
			r.Records = append(r.Records, Record{b.bucket, e.Key(), e.Value()})
		}
	}
	r.Partitions = slices.DeleteFunc(r.Partitions, func(p Partition) bool {
		id, err := p.id()
		return err != nil || !stands[id.Container]
	})
	slices.SortFunc(r.Records, func(a, b Record) int { return strings.Compare(a.Bucket+"\x00"+a.Key, b.Bucket+"\x00"+b.Key) })
	return nil
}

// began says whether a container was there when the backup began.
func (c *creator) began(info *store.ContainerInfo) bool {
	return slices.ContainsFunc(c.containers, func(was store.ContainerInfo) bool { return was.ID == info.ID })
}

// skip notes a container that is not in the backup.
func (r *Result) skip(info *store.ContainerInfo) {
	if name := info.Database + "/" + info.Name; !slices.Contains(r.Skipped, name) {
		r.Skipped = append(r.Skipped, name)
	}
}
