// Package inside finds fields of Badger's that it shows to nobody. An error says that this is another Badger than the one that
// the engine was written for. It is the engine's.
package inside

import (
	"fmt"
	"reflect"
)

// Target returns the struct to which a field points.
func Target(of reflect.Value, name string) (reflect.Value, error) {
	v := of.FieldByName(name)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return v, fmt.Errorf("engine: Badger's %s has no %s", of.Type(), name)
	}
	return v.Elem(), nil
}

// Field returns a pointer to a field of a struct.
func Field[T any](of reflect.Value, name string) (*T, error) {
	if of.Kind() != reflect.Struct {
		return nil, fmt.Errorf("engine: Badger has no struct with %s", name)
	}
	v := of.FieldByName(name)
	if !v.IsValid() || v.Type() != reflect.TypeFor[T]() {
		return nil, missing(of.Type(), name, reflect.TypeFor[T]())
	}
	return (*T)(v.Addr().UnsafePointer()), nil
}

// Offset returns where a struct of that type has a field.
func Offset(of reflect.Type, name string, is reflect.Type) (uintptr, error) {
	f, ok := of.FieldByName(name)
	if !ok || f.Type != is {
		return 0, missing(of, name, is)
	}
	return f.Offset, nil
}

func missing(of reflect.Type, name string, is reflect.Type) error {
	return fmt.Errorf("engine: Badger's %s has no %s of type %s", of, name, is)
}
