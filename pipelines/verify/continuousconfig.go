package verify

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// ContinuousConfig tunes the continuous verification. Zero fields take their defaults.
type ContinuousConfig struct {
	// Continuous says whether one worker of the group verifies all pipelines for
	// ever, one after the other: on or off. A pipeline that passes from one
	// consistency to the other is verified once in any case. All workers of a group
	// are to be told the same: what counts is what the one is told. Default on.
	Continuous string `yaml:"continuous"`

	// SharePercent is the part of its time in which it works: it rests for the other
	// part after each page. It does one thing at a time, so this is the share of one
	// processor, the store that answers it included. Default 2, at most 100.
	SharePercent int `yaml:"sharePercent"`

	// Interval is the least time between the beginnings of two rounds over all
	// pipelines. Default 30s.
	Interval time.Duration `yaml:"interval"`

	// UnchangedInterval is the least time between two passes over a pipeline that was found
	// equal, as long as nothing is written into its source and its target. A pass then could
	// only find what changed beside their logs, as the files of a sink. Default 30m.
	UnchangedInterval time.Duration `yaml:"unchangedInterval"`

	// BytesMax bounds its memory for the groups or rows of one pipeline, in bytes;
	// what is more takes several passes. Default 64 MiB.
	BytesMax int `yaml:"bytesMax"`
}

// On says whether there is to be a continuous verification.
func (c *ContinuousConfig) On() bool { return c.Continuous != "off" && c.Continuous != "false" }

// Check returns what is wrong with the configuration, nil if nothing is.
func (c *ContinuousConfig) Check() error {
	var errs []error
	if !slices.Contains([]string{"", "on", "off", "true", "false"}, c.Continuous) {
		errs = append(errs, fmt.Errorf("verify.continuous is %q; on or off is expected", c.Continuous))
	}
	if c.SharePercent < 0 || c.SharePercent > 100 {
		errs = append(errs, fmt.Errorf("verify.sharePercent is %d; 1 to 100 are expected", c.SharePercent))
	}
	if c.Interval < 0 || c.UnchangedInterval < 0 || c.BytesMax < 0 {
		errs = append(errs, errors.New("verify.interval, verify.unchangedInterval and verify.bytesMax must not be negative"))
	}
	return errors.Join(errs...)
}

func (c ContinuousConfig) withDefaults() ContinuousConfig {
	if c.SharePercent <= 0 {
		c.SharePercent = 2
	}
	c.SharePercent = min(c.SharePercent, 100)
	if c.Interval <= 0 {
		c.Interval = 30 * time.Second
	}
	if c.UnchangedInterval <= 0 {
		c.UnchangedInterval = 30 * time.Minute
	}
	if c.BytesMax <= 0 {
		c.BytesMax = 64 << 20
	}
	return c
}
