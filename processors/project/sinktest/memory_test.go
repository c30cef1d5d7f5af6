package sinktest_test

import (
	"testing"

	"github.com/millrace/millrace/processors/project/sinktest"
)

func TestMemory(t *testing.T) {
	for name, buffer := range map[string]bool{"written through": false, "buffered": true} {
		t.Run(name, func(t *testing.T) {
			sinktest.Run(t, func(testing.TB) sinktest.Open {
				disk := sinktest.NewDisk()
				return func(testing.TB) sinktest.Sink { return sinktest.NewMemory(disk, buffer) }
			}, sinktest.Options{})
		})
	}
}
