package store

import (
	"reflect"
	"testing"
	"time"
)

// TestKinds_EachIsWhole: a kind that lacks a part would panic at the first request of it.
func TestKinds_EachIsWhole(t *testing.T) {
	for k := range kinds {
		kind := reflect.ValueOf(kinds[k])
		if (k == 0 || Kind(k) == kindError) != kind.IsZero() {
			t.Errorf("kind %d: %+v", k, kinds[k])
			continue
		}
		for i := range kind.NumField() {
			field := kind.Type().Field(i)
			if field.Type.Kind() != reflect.Bool && field.Name != "writes" && kind.Field(i).IsZero() && !kind.IsZero() {
				t.Errorf("kind %d %q has no %s", k, kinds[k].name, field.Name)
			}
		}
		if kinds[k].once && kinds[k].writes == nil {
			t.Errorf("kind %d %q must not happen twice and writes nothing", k, kinds[k].name)
		}
	}
	for _, none := range []Kind{0, kindError, Kind(len(kinds)), 255} {
		if none.known() || none.String() != "unknown" {
			t.Errorf("kind %d is known as %q", none, none)
		}
	}
}

// TestRequest_APageIsRepeatedByItsSender, who then knows that an answer is missing; and as soon as
// what the client repeats.
func TestRequest_APageIsRepeatedByItsSender(t *testing.T) {
	for _, until := range []int64{0, 1} {
		r := &Request{PatchMany: &PatchMany{Until: until}}
		if r.repeatable() || r.attemptTime(time.Minute) != 2*time.Second {
			t.Errorf("until %d: repeatable %t, an attempt waits %s", until, r.repeatable(), r.attemptTime(time.Minute))
		}
	}
}

// TestRequest_EachFieldHasAKindAndAName in spans and errors: a request that is forgotten
// would ask for nothing, or go by the name of another.
func TestRequest_EachFieldHasAKindAndAName(t *testing.T) {
	names := map[string]string{}
	for i := range reflect.TypeFor[Request]().NumField() {
		field := reflect.TypeFor[Request]().Field(i)
		if field.Type.Kind() != reflect.Pointer {
			continue
		}
		var r Request
		reflect.ValueOf(&r).Elem().Field(i).Set(reflect.New(field.Type.Elem()))
		if !r.Kind().known() {
			t.Errorf("a request with %s has the kind %d", field.Name, r.Kind())
		}
		if other, taken := names[r.spanName()]; taken {
			t.Errorf("the span of %s is %q, that of %s", field.Name, r.spanName(), other)
		}
		names[r.spanName()] = field.Name
	}
	if names["millrace.request pending-rows"] != "PendingRows" {
		t.Errorf("spans are named %v", names)
	}
}
