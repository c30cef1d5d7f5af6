package judge //nolint:testpackage // the order of writes and reads is the test's

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestReader_JudgesEachRead has an item of which version 5 was acknowledged and 6 is being written.
func TestReader_JudgesEachRead(t *testing.T) {
	for _, c := range []struct {
		name  string
		got   uint64
		right bool
	}{
		{"what was acknowledged", 5, true},
		{"what is being written", 6, true},
		{"what was before", 4, false},
		{"what nobody wrote", 7, false},
	} {
		r := &Register{begun: 6, known: 5}
		d := NewReader(r, func(context.Context) (uint64, error) { return c.got, nil })
		d.once(t.Context())
		if v := d.Verdict(); v.Reads != 1 || (len(v.Wrong) == 0) != c.right {
			t.Errorf("%s: %+v", c.name, v)
		}
	}
}

// TestReader_AReadMustNotGoBack behind what another has returned, though that is not acknowledged.
func TestReader_AReadMustNotGoBack(t *testing.T) {
	r, got := &Register{begun: 6, known: 5}, uint64(6)
	d := NewReader(r, func(context.Context) (uint64, error) { return got, nil })
	d.once(t.Context())
	got = 5
	d.once(t.Context())
	if v := d.Verdict(); v.Reads != 2 || len(v.Wrong) != 1 {
		t.Errorf("%+v", v)
	}
}

// TestReader_WhatIsWrittenMeanwhileIsRight: a read that takes long may return what was there when it began.
func TestReader_WhatIsWrittenMeanwhileIsRight(t *testing.T) {
	r := &Register{begun: 5, known: 5}
	d := NewReader(r, func(context.Context) (uint64, error) {
		r.begun, r.known = 9, 9
		return 5, nil
	})
	d.once(t.Context())
	if v := d.Verdict(); v.Reads != 1 || len(v.Wrong) != 0 {
		t.Errorf("%+v", v)
	}
}

// TestRegister_AVersionIsWrittenUntilItIsAcknowledged also counts the reads that fail.
func TestRegister_AVersionIsWrittenUntilItIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var r Register
		var versions []uint64
		no := errors.New("no")
		d := NewReader(&r, func(context.Context) (uint64, error) { return 0, no })
		go d.Run(ctx, 10*time.Millisecond)
		r.Write(ctx, 100*time.Millisecond, func(_ context.Context, version uint64) error {
			versions = append(versions, version)
			if len(versions) < 4 {
				return no
			}
			return nil
		})
		if len(versions) < 6 || versions[3] != 1 || versions[4] != 2 || versions[5] != 3 {
			t.Errorf("versions %v", versions)
		}
		if v := d.Verdict(); v.Reads != 0 || v.Failed < 90 || len(v.Errors) != min(v.Failed, ErrorsMax) {
			t.Errorf("%+v", v)
		}
	})
}
