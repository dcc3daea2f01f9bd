// SPDX-License-Identifier: Apache-2.0

package fieldpath

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Problem is a field that prevents a document from being decoded.
type Problem struct {
	Path  string
	Value any
	Err   error // the decoder's error for the field alone
}

func (p Problem) String() string { return p.Path + ": " + Words(p.Err, p.Value) }

// Find returns the fields of a document without which it could be decoded, in the order of their paths.
// decode is called on the document with one field at a time, so that its error is about that one. It
// takes as many calls as there are fields above and beside the faulty ones.
func Find(document map[string]any, decode func(map[string]any) error) []Problem {
	f := &finder{decode: decode}
	f.look(nil, document, func(part any) map[string]any {
		whole, _ := part.(map[string]any)
		return whole
	})
	return f.problems
}

type finder struct {
	decode   func(map[string]any) error
	problems []Problem
}

// look descends into a part of the document that cannot be decoded. within returns the document with a
// part in its place.
func (f *finder) look(path *field.Path, part any, within func(any) map[string]any) {
	before := len(f.problems)
	if path != nil && f.decode(within(emptied(part))) != nil { // nothing that is in it can be right
		f.problems = append(f.problems, Problem{path.String(), part, f.decode(within(part))})
		return
	}
	switch part := part.(type) {
	case map[string]any:
		meaning := f.meaning(part, within)
		for _, key := range slices.Sorted(maps.Keys(part)) {
			f.try(child(path, key), part[key], func(below any) map[string]any {
				beside := maps.Clone(meaning)
				beside[key] = below
				return within(beside)
			})
		}
	case []any:
		for i := range part {
			f.try(path.Index(i), part[i], func(below any) map[string]any { return within([]any{below}) })
		}
	}
	if len(f.problems) == before && path != nil {
		f.problems = append(f.problems, Problem{path.String(), part, f.decode(within(part))})
	}
}

func (f *finder) try(path *field.Path, part any, within func(any) map[string]any) {
	if f.decode(within(part)) != nil {
		f.look(path, part, within)
	}
}

// emptied returns an empty mapping or list for such a part; other parts are returned unchanged.
func emptied(part any) any {
	switch part.(type) {
	case map[string]any:
		return map[string]any{}
	case []any:
		return []any{}
	}
	return part
}

// meaning returns the keys of a mapping that determine how the others are read, except for one that is
// rejected itself.
func (f *finder) meaning(of map[string]any, within func(any) map[string]any) map[string]any {
	all := map[string]any{}
	for _, key := range []string{"apiVersion", "kind", "name"} {
		if v, ok := of[key].(string); ok {
			all[key] = v
		}
	}
	if f.decode(within(all)) == nil {
		return all
	}
	for key := range all {
		without := maps.Clone(all)
		delete(without, key)
		if f.decode(within(without)) == nil {
			return without
		}
	}
	return all
}

func child(path *field.Path, key string) *field.Path {
	if path == nil {
		return field.NewPath(key)
	}
	return path.Child(key)
}
