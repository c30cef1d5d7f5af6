package parquetsink

import (
	"fmt"
	"log/slog"
	"time"
)

// Config tunes a Sink. Zero fields take their defaults.
type Config struct {
	// BufferRowsMax and BufferBytesMax bound what all writers of the process hold
	// before a commit begins by itself; while one is under way as much again may
	// come. Defaults 200,000 and 64 MiB.
	BufferRowsMax  int `yaml:"bufferRowsMax"`
	BufferBytesMax int `yaml:"bufferBytesMax"`

	// CommitInterval is the time between two commits that Flush asks for while the
	// writers hold less than a twentieth of what they may: commits of many writers
	// then fall together. Default 1s.
	CommitInterval time.Duration `yaml:"commitInterval"`

	// FileRowsMax and FileBytesMax bound one file. A file in which a row changes is
	// written anew, so larger ones cost more then, and less to read. Defaults 500,000
	// and 32 MiB.
	FileRowsMax  int `yaml:"fileRowsMax"`
	FileBytesMax int `yaml:"fileBytesMax"`

	// Grace is how long files that have been superseded stay, for those who read
	// them. Default 10m.
	Grace time.Duration `yaml:"grace"`

	// IndexBytesMax bounds the memory of the sink for finding rows: eight bytes for each row of
	// the tables. Beyond it the keys of some files are read again in each commit.
	// Default 256 MiB, enough for 33 million rows.
	IndexBytesMax int `yaml:"indexBytesMax"`

	// Logger gets what an operator should know. Default slog.Default.
	Logger *slog.Logger `yaml:"-"`
}

func (c Config) withDefaults() (Config, error) {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.BufferRowsMax, 200_000)
	def(&c.BufferBytesMax, 64<<20)
	def(&c.FileRowsMax, 500_000)
	def(&c.FileBytesMax, 32<<20)
	def(&c.IndexBytesMax, 256<<20)
	if c.CommitInterval == 0 {
		c.CommitInterval = time.Second
	}
	if c.Grace == 0 {
		c.Grace = 10 * time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if min(c.BufferRowsMax, c.BufferBytesMax, c.FileRowsMax, c.FileBytesMax, c.IndexBytesMax) < 0 ||
		min(c.CommitInterval, c.Grace) < 0 {
		return c, fmt.Errorf("parquet sink: a limit or interval is negative: %+v", c)
	}
	return c, nil
}
