package status

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pipelines/format"
	"github.com/millrace/millrace/store"
)

// cutOff says that a log was trimmed beyond what the processor has read, and what to do; ""
// if it was not.
func (w *watched) cutOff() string {
	if w.trimmed == 0 {
		return ""
	}
	next := "It begins anew by itself with the items that are there"
	switch by := w.byHand; {
	case by != "":
		next = by
	case w.record.Paused:
		next += ", when it is resumed"
	}
	return fmt.Sprintf("it is cut off: it has read LSN %s of partition %s, and the log was trimmed since and begins at LSN %s; "+
		"what was between it cannot read any more. %s",
		format.Count(uint64(w.checkpoint.Position.LSN)), w.resource.Partition, format.Count(uint64(w.trimmed)), next)
}

// lateWarning says that a processor has not read for so long that its container's
// changeFeed.retentionMax will cut it off; "" before half of that time has passed.
func (w *watched) lateWarning(containers []store.ContainerInfo) string {
	if w.oldest.IsZero() || w.trimmed > 0 {
		return ""
	}
	for i := range containers {
		c := &containers[i]
		most := c.Spec.ChangeFeed.RetentionMax
		if c.ID != w.resource.Partition.Container || most == 0 || w.now.Sub(w.oldest) <= most/2 {
			continue
		}
		return fmt.Sprintf("pipeline %s has read nothing of partition %s behind LSN %s since %s ago; from %s on it may be trimmed "+
			"(changeFeed.retentionMax of container %s is %s), and the pipeline is cut off",
			w.record.Name, w.resource.Partition, format.Count(uint64(w.checkpoint.Position.LSN)), w.now.Sub(w.oldest).Round(time.Second),
			w.oldest.Add(most).UTC().Format(time.RFC3339), c.Name, most)
	}
	return ""
}
