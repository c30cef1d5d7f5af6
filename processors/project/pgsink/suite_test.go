package pgsink_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/processors/project/pgsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

// Each case has a schema of its own.
func TestSuite(t *testing.T) {
	t.Parallel()
	newDatabase(t)
	cases := 0
	sinktest.Run(t, func(testing.TB) sinktest.Open {
		cases++
		cfg := pgsink.Config{DSNEnv: dsnEnv(t), Schema: fmt.Sprintf("case %d \"of\" the suite", cases)}
		return func(t testing.TB) sinktest.Sink {
			t.Helper()
			return newSinkOf(t, cfg)
		}
	}, sinktest.Options{Quick: testing.Short()})
}
