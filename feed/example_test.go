package feed_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/feed/natsd"
)

// A log is created once, appended to by its owner, and followed by anyone.
func Example() {
	if err := follow(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1.0 create milk, placed at 09
	// later: MILLRACE_c7k2x4ab_0 ends at LSN 1
}

func follow(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "millrace")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := natsd.Open(ctx, natsd.Config{Dir: dir, DontListen: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer server.Close()
	nc, err := server.Conn()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}

	p := feed.Partition{Container: "c7k2x4ab"}
	if err := feed.CreateLog(ctx, js, p, feed.NewLogID(), feed.LogConfig{}); err != nil {
		return err
	}
	l, err := feed.OpenLog(ctx, js, p, feed.LogConfig{})
	if err != nil {
		return err
	}
	defer l.Close()

	key, err := feed.NewPartitionKey("dairy")
	if err != nil {
		return err
	}
	commit := &feed.Commit{ID: feed.NewCommitID(), Log: l.ID(), Owner: "node-1/a", Epoch: 1, Time: 1_732_158_000_000}
	commit.Transactions = []feed.Transaction{{Changes: []feed.Change{
		{Op: feed.OpCreate, Key: key, ID: "milk", After: []byte(`{"id":"milk","shelf":"dairy"}`), Modified: commit.Time, Written: 1},
	}}}
	if _, err := l.Append(ctx, 0, commit.ID, feed.AppendCommit(nil, commit)); err != nil {
		return err
	}

	tail, err := l.Tail(ctx, 1, feed.TailOptions{})
	if err != nil {
		return err
	}
	defer tail.Close()
	c, err := tail.Next(ctx)
	if err != nil {
		return err
	}
	for i, change := range c.Transactions[0].Changes {
		at := feed.Position{LSN: c.LSN, Index: uint32(i)}
		_, _ = fmt.Fprintf(out, "%s %s %s, placed at %s\n", at, change.Op, change.ID, change.Key.Hash().Hex()[:2])
	}
	_, last, err := l.Bounds(ctx)
	_, _ = fmt.Fprintf(out, "later: %s ends at LSN %s\n", p.Stream(), last)
	return err
}

func ExamplePartitionKey() {
	key, err := feed.NewPartitionKey("store-1", 7)
	if err != nil {
		log.Fatal(err)
	}
	_, _ = fmt.Fprintln(os.Stdout, key, key.Levels())
	_, _ = fmt.Fprintln(os.Stdout, key.Hash().Hex()[:32])
	// Output:
	// ["store-1",7] 2
	// 12C993AFA90157F1A036457C376EF3DF
}
