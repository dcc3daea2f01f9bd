// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// maxClasses bounds the classes of a registry, so that graphs that keep changing
// cannot fill the memory. Real clusters have 1 to 12 machine types, and a few
// more classes for damaged machines.
const maxClasses = 256

// Registry keeps one set of tables per graph class. Above maxClasses the oldest
// is forgotten: who holds its tables keeps them, who asks again builds again.
type Registry struct {
	weights Weights

	mu      sync.Mutex
	classes map[string]*registered // graph class key -> tables; guarded by mu
	keys    []string               // in order of appearance; guarded by mu
}

// registered lets the first caller build outside the registry's mutex while
// the others of the same class wait for it only.
type registered struct {
	once   sync.Once
	tables atomic.Pointer[Tables] // nil while being built
}

// NewRegistry returns an empty registry for one set of weights.
func NewRegistry(w Weights) *Registry {
	return &Registry{weights: w, classes: map[string]*registered{}}
}

// Tables returns the tables of a graph, built on first use of its class.
func (r *Registry) Tables(g *Graph) *Tables {
	e := r.entry(g.ClassKey())
	e.once.Do(func() { e.tables.Store(NewTables(g, r.weights)) })
	t := e.tables.Load()
	if t.g == g {
		return t
	}
	// Same class, other machine: the answers are shared, the names are not.
	return &Tables{g: g, c: t.c}
}

func (r *Registry) entry(key string) *registered {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.classes[key]
	if !ok {
		e = &registered{}
		r.classes[key] = e
		r.keys = append(r.keys, key)
		if len(r.keys) > maxClasses {
			delete(r.classes, r.keys[0])
			r.keys = slices.Delete(r.keys, 0, 1)
		}
	}
	return e
}

// built returns the tables of all classes in order of appearance.
func (r *Registry) built() []*Tables {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*Tables
	for _, k := range r.keys {
		if t := r.classes[k].tables.Load(); t != nil {
			out = append(out, t)
		}
	}
	return out
}

// Stats returns the number of classes and the memory of their tables.
func (r *Registry) Stats() (classes, bytes int) {
	all := r.built()
	for _, t := range all {
		bytes += t.Bytes()
	}
	return len(all), bytes
}

// PrepareAll builds the remaining answer tables of all classes known now. It
// is meant for a background goroutine and returns the context's error when
// that ends first.
func (r *Registry) PrepareAll(ctx context.Context) error {
	for _, t := range r.built() {
		if err := t.Prepare(ctx); err != nil {
			return err
		}
	}
	return nil
}
