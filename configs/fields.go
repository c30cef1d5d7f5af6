package configs

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var (
	durationType     = reflect.TypeFor[time.Duration]()
	optionalBoolType = reflect.TypeFor[*bool]()
)

// fields calls f with every field of the struct v that has a key, in order, until f returns false.
// It is the only reader of yaml tags, so files, variables and flags have the same keys.
func fields(v reflect.Value, f func(key string, field reflect.StructField, value reflect.Value) bool) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if !field.IsExported() || key == "" || key == "-" {
			continue
		}
		if !f(key, field, v.Field(i)) {
			return
		}
	}
}

func keysOf(v reflect.Value) []string {
	var keys []string
	fields(v, func(key string, _ reflect.StructField, _ reflect.Value) bool {
		keys = append(keys, key)
		return true
	})
	return keys
}

// fieldOf returns the field with a key.
func fieldOf(v reflect.Value, key string) (found reflect.Value, ok bool) {
	fields(v, func(k string, _ reflect.StructField, value reflect.Value) bool {
		if k == key {
			found, ok = value, true
		}
		return !ok
	})
	return found, ok
}

// leaves returns the fields that hold a value, by their keys from the top.
func leaves(c *Config) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		fields(v, func(key string, _ reflect.StructField, value reflect.Value) bool {
			if value.Kind() == reflect.Struct {
				walk(join(path, key), value)
			} else {
				all[join(path, key)] = value
			}
			return true
		})
	}
	walk("", reflect.ValueOf(c).Elem())
	return all
}

// setText sets v from the text of a file, a variable or a flag. The error says which kind of value
// the field takes.
func setText(v reflect.Value, text string) error {
	refuse := func() error { return fmt.Errorf("%s is not %s", quoted(text), strings.TrimSuffix(kindOf(v), ",")) }
	// A duration is an int64 too, so it comes before the integers: 5 without a unit is refused.
	switch {
	case v.Type() == durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return refuse()
		}
		v.SetInt(int64(d))
	case v.CanInt():
		n, err := parseInt(text)
		if err != nil || v.OverflowInt(n) {
			return refuse()
		}
		v.SetInt(n)
	case v.Type() == optionalBoolType: // nil is its default, which is true
		b, err := strconv.ParseBool(text)
		if err != nil {
			return refuse()
		}
		v.Set(reflect.ValueOf(&b))
	case v.Kind() == reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return refuse()
		}
		v.SetBool(b)
	case v.Kind() == reflect.String:
		v.SetString(text)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		list := []string{}
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
		v.Set(reflect.ValueOf(list))
	default:
		panic(fmt.Sprintf("configs: a field of kind %s cannot be set", v.Kind()))
	}
	return nil
}

// parseInt reads a number, with a unit of bytes or without: 1000, 64MiB, 64 MiB.
func parseInt(text string) (int64, error) {
	number, factor := strings.TrimSpace(text), int64(1)
	for unit, f := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40} {
		if rest, ok := strings.CutSuffix(number, unit); ok {
			number, factor = strings.TrimSpace(rest), f
			break
		}
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(number, "_", ""), 10, 64)
	if err != nil || n*factor/factor != n {
		return 0, fmt.Errorf("%s is not a number", quoted(text))
	}
	return n * factor, nil
}
