package configs_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/configs"
)

func TestMemoryLimit_MakesCachesFit(t *testing.T) {
	c, err := configs.Load("", nil, []string{"memory.limit=400MiB", "processors.readAheadBytes=7MiB"})
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string][2]int64{
		"engine.memTables":             {int64(c.Engine.MemTables), 2},
		"ringBytesMax":                 {int64(c.Feed.Hub.RingBytesMax), 25 << 18},
		"tail.bytesMax":                {int64(c.Feed.Hub.Tail.BytesMax), 25 << 16},
		"store.ruleCacheBytes":         {int64(c.Store.RuleCacheBytes), 25 << 20},
		"store.queriesBytesMax":        {int64(c.Store.QueriesBytesMax), 100 << 20},
		"sinks.parquet.bufferBytesMax": {int64(c.Sinks.Parquet.BufferBytesMax), 25 << 19},
		"what is set stays":            {int64(c.Processors.ReadAheadBytes), 7 << 20},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", what, got[0], got[1])
		}
	}
	if c, err = configs.Load("", nil, nil); err != nil || c.Memory.Limit != 0 || c.Engine.MemTableBytes != 0 {
		t.Errorf("without a limit: limit %d, tables %d, %v", c.Memory.Limit, c.Engine.MemTableBytes, err)
	}
	if _, err = configs.Load("", nil, []string{"memory.limit=100MiB"}); err == nil || !strings.Contains(err.Error(), "400MiB") {
		t.Errorf("a limit that is too small: %v", err)
	}
}
