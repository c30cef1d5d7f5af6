package store

import (
	"reflect"
	"testing"
)

// TestRequest_EachKindHasAName in spans and errors: a kind that is forgotten would go by
// the name of another.
func TestRequest_EachKindHasAName(t *testing.T) {
	kinds := map[string]string{}
	for i := range reflect.TypeFor[Request]().NumField() {
		field := reflect.TypeFor[Request]().Field(i)
		if field.Type.Kind() != reflect.Pointer {
			continue
		}
		var r Request
		reflect.ValueOf(&r).Elem().Field(i).Set(reflect.New(field.Type.Elem()))
		if other, taken := kinds[r.spanName()]; taken {
			t.Errorf("the span of %s is %q, that of %s", field.Name, r.spanName(), other)
		}
		kinds[r.spanName()] = field.Name
	}
	if kinds["millrace.request claims"] != "Claims" {
		t.Errorf("spans are named %v", kinds)
	}
}
