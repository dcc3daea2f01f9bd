// SPDX-License-Identifier: Apache-2.0

package whatif

import "reflect"

// memoryOf is about how much memory a deep copy of a value takes, in bytes: a text of three bytes can
// be a container of a thousand.
func memoryOf(v reflect.Value) int {
	if !v.IsValid() {
		return 0
	}
	return int(v.Type().Size()) + behind(v)
}

// behind is the memory that a value refers to.
func behind(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer, reflect.Interface:
		return memoryOf(v.Elem())
	case reflect.Slice:
		n = v.Len() * int(v.Type().Elem().Size())
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			n += behind(v.Index(i))
		}
	case reflect.Map:
		for entries := v.MapRange(); entries.Next(); {
			n += memoryOf(entries.Key()) + memoryOf(entries.Value())
		}
	case reflect.Struct:
		for _, field := range v.Fields() {
			n += behind(field)
		}
	default: // it refers to nothing
	}
	return n
}
