//go:build linux

// Package kafka_test runs the program of this directory, which is not of Go.
package kafka_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/integration/bench/anchor"
	"github.com/millrace/millrace/integration/bench/dataset"
)

// Where Java is and Maven reaches its registry, renames reach all products of their category, and no others.
func TestRenamesReachProducts(t *testing.T) {
	program, err := anchor.BuildKafka(t.Context(), ".", t.TempDir())
	if skip, ok := errors.AsType[*anchor.SkippedError](err); ok {
		t.Skip(skip)
	}
	if err != nil {
		t.Fatal(err)
	}
	set, err := dataset.New(dataset.Config{Seed: 1, Products: 1000})
	if err != nil {
		t.Fatal(err)
	}
	k, err := program.Open(t.Context(), t.TempDir(), set)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	}()
	for revision := 1; revision <= 2; revision++ {
		for i, products := range set.Sizes() {
			if _, err := k.Rename(set.Category(set.Sized(i), revision), products); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := k.Verify(); err != nil {
		t.Error(err)
	}
}
