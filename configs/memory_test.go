package configs_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/configs"
)

func TestMemoryLimit_MakesCachesFit(t *testing.T) {
	c, err := configs.Load("", nil, []string{"memory.limit=256MiB", "processors.readAheadBytes=7MiB"})
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string][2]int64{
		"Go's part":            {c.Memory.GoLimit(), 144 << 20},
		"engine.memTableBytes": {c.Engine.MemTableBytes, 8 << 20},
		"ringBytesMax":         {int64(c.Feed.Hub.RingBytesMax), 4 << 20},
		"tail.bytesMax":        {int64(c.Feed.Hub.Tail.BytesMax), 1 << 20},
		"what is set stays":    {int64(c.Processors.ReadAheadBytes), 7 << 20},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %d, want %d", what, got[0], got[1])
		}
	}
	if c, err = configs.Load("", nil, nil); err != nil || c.Memory.GoLimit() != 0 || c.Engine.MemTableBytes != 0 {
		t.Errorf("without a limit: Go's part %d, tables %d, %v", c.Memory.GoLimit(), c.Engine.MemTableBytes, err)
	}
	if _, err = configs.Load("", nil, []string{"memory.limit=100MiB"}); err == nil || !strings.Contains(err.Error(), "256MiB") {
		t.Errorf("a limit that is too small: %v", err)
	}
}
