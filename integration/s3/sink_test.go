package s3_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/millrace/millrace/processors/project/parquetsink"
	"github.com/millrace/millrace/processors/project/sinktest"
)

func config() parquetsink.Config {
	return parquetsink.Config{CommitInterval: time.Nanosecond, Logger: slog.New(slog.DiscardHandler)}
}

func TestSinkOnS3(t *testing.T) {
	sinktest.Run(t, func(t testing.TB) sinktest.Open {
		in := newBucket(t)
		return func(t testing.TB) sinktest.Sink {
			s, err := parquetsink.New(parquetsink.Bucket(open(t, in)), config())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
	}, sinktest.Options{Quick: true})
}
