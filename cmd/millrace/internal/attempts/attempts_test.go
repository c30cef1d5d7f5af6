package attempts

import (
	"testing"
	"time"
)

func TestCounter_TellsOfManyInOneLine(t *testing.T) {
	var c Counter
	now := time.Now()
	if n := c.Count(now); n != 1 {
		t.Errorf("the first is told as %d", n)
	}
	for range 500 {
		if n := c.Count(now.Add(every - 1)); n != 0 {
			t.Fatalf("%d are told too early", n)
		}
	}
	if n := c.Count(now.Add(every)); n != 501 {
		t.Errorf("%d are told then, want 501", n)
	}
}
