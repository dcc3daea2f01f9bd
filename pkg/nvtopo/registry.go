// SPDX-License-Identifier: Apache-2.0

package nvtopo

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"sync"
	"weak"
)

const (
	// keptClasses is how many of the last used classes are kept even when no graph has them: a link that
	// flaps must not rebuild the tables each time. Real clusters have 1 to 12 machine types, and a few more
	// classes for damaged machines.
	keptClasses = 16
	// countedMachines bounds the machines that are counted in a class.
	countedMachines = 8
	// maxPrepared bounds the memory of the answer tables of all classes above 8 GPUs, 7 MiB each for 16
	// GPUs. Answers without a table are as exact, but slower.
	maxPrepared = 128 << 20
	// preparedAtOnce bounds the work of one call of PrepareAll. Of classes that a single machine has, one is
	// built per call, since a machine may change its class each time.
	preparedAtOnce = 4
)

// Registry keeps one set of tables per graph class while they are referenced. A node whose graph changes
// each second costs no more memory than its last graph.
type Registry struct {
	weights Weights
	budget  int // bytes of answer tables of classes above 8 GPUs

	mu      sync.Mutex
	classes map[string]*registered // graph class key -> tables; guarded by mu
	recent  []*classTables         // the last keptClasses used, newest last; guarded by mu
}

// registered lets the first caller build outside the registry's mutex; only the other callers of the same
// class wait for it.
type registered struct {
	building sync.Mutex
	tables   weak.Pointer[classTables] // nil value while there are none; guarded by building and Registry.mu, both to write
	machines []string                  // first GPUs of some machines that have it; guarded by Registry.mu
}

// NewRegistry returns an empty registry for one set of weights.
func NewRegistry(w Weights) *Registry {
	return &Registry{weights: w, budget: maxPrepared, classes: map[string]*registered{}}
}

// Tables returns the tables of a graph, built on first use of its class.
func (r *Registry) Tables(g *Graph) *Tables {
	c, _ := r.class(g)
	return &Tables{g: g, c: c}
}

// Share is Tables for a caller that keeps many graphs: the graph of the tables is equal to g and shares
// its links with others of its class. built reports whether the tables were built by this call.
func (r *Registry) Share(g *Graph) (tables *Tables, built bool) {
	c, built := r.class(g)
	return &Tables{g: g.sharing(c.links), c: c}, built
}

// Has reports whether the tables of a graph's class are built.
func (r *Registry) Has(g *Graph) bool {
	key := g.ClassKey()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.classes[key]
	return e != nil && e.tables.Value() != nil
}

// class returns the tables of a graph's class, and whether they had to be built.
func (r *Registry) class(g *Graph) (c *classTables, built bool) {
	key := g.ClassKey()
	e := r.entry(key, g)
	e.building.Lock()
	defer e.building.Unlock()
	if c = e.tables.Value(); c == nil {
		c, built = newClassTables(g, r.weights), true
		r.add(e, key, c)
	}
	r.keep(c)
	return c, built
}

// add registers tables of a class; the caller holds e.building.
func (r *Registry) add(e *registered, key string, c *classTables) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.tables = weak.Make(c)
	r.classes[key] = e       // it may have been dropped meanwhile
	registry := weak.Make(r) // values held by a clean-up are never collected, and the registry holds the tables
	runtime.AddCleanup(c, func(key string) {
		if r := registry.Value(); r != nil {
			r.forget(key)
		}
	}, key)
}

// keep marks tables as used last, so that they are kept.
func (r *Registry) keep(c *classTables) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.recent) - 1
	if last >= 0 && r.recent[last] == c {
		return
	}
	if at := slices.Index(r.recent, c); at >= 0 {
		r.recent = slices.Delete(r.recent, at, at+1)
	} else if len(r.recent) == keptClasses {
		r.recent = slices.Delete(r.recent, 0, 1)
	}
	r.recent = append(r.recent, c)
}

// forget drops the entry of tables that are no longer referenced.
func (r *Registry) forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.classes[key]; e != nil && e.tables.Value() == nil {
		delete(r.classes, key)
	}
}

func (r *Registry) entry(key string, g *Graph) *registered {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.classes[key]
	if !ok {
		e = &registered{}
		r.classes[key] = e
	}
	if g.Len() > 0 && len(e.machines) < countedMachines && !slices.Contains(e.machines, g.GPUs[0].UUID) {
		e.machines = append(e.machines, g.GPUs[0].UUID)
	}
	return e
}

// built returns the tables of all classes, those with the most machines first.
func (r *Registry) built() []class {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []class
	for key, e := range r.classes {
		if c := e.tables.Value(); c != nil {
			all = append(all, class{key, len(e.machines), c})
		}
	}
	slices.SortFunc(all, func(a, b class) int { return cmp.Or(cmp.Compare(b.machines, a.machines), cmp.Compare(a.key, b.key)) })
	return all
}

// class is a graph class with its tables.
type class struct {
	key      string
	machines int // up to countedMachines
	c        *classTables
}

// Stats returns the number of classes and the memory of their tables.
func (r *Registry) Stats() (classes, bytes int) {
	all := r.built()
	for _, a := range all {
		bytes += a.c.bytes()
	}
	return len(all), bytes
}

// PrepareAll builds missing answer tables of the classes known now, a few per call and those with the
// most machines first, within the memory limit, and drops those of the others. It is meant for a
// background goroutine and returns the context's error when that ends first.
func (r *Registry) PrepareAll(ctx context.Context) error {
	left, at := r.budget, 0
	for _, a := range r.built() {
		c := a.c
		if c.n <= eagerGPUs || c.n > exactGPUs {
			continue // nothing expensive to build
		}
		if left -= c.answerBytes(); left < 0 {
			c.release()
			continue
		}
		if at == preparedAtOnce || c.prepared() {
			continue
		}
		if at++; a.machines < 2 {
			at = preparedAtOnce
		}
		if err := (&Tables{c: c}).Prepare(ctx); err != nil {
			return err
		}
	}
	return nil
}

// answerBytes returns the memory of the tables that Prepare builds.
func (c *classTables) answerBytes() int { return len(preparedPolicies()) * 2 * (c.n + 1) << c.n }

// release drops the answer tables when classes with more machines need the memory.
func (c *classTables) release() {
	for i := range c.answers {
		c.answers[i].Store(nil)
	}
}

func (c *classTables) prepared() bool {
	for _, p := range preparedPolicies() {
		if c.answers[c.variant(&Constraint{Policy: p})].Load() == nil {
			return false
		}
	}
	return true
}
