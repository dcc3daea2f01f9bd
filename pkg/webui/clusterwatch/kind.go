// SPDX-License-Identifier: Apache-2.0

package clusterwatch

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
)

// collection is a kind of object at an API server, of all namespaces or of one.
type collection[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// kind holds the objects of one kind.
type kind[T any] struct {
	access

	informer cache.SharedIndexInformer

	mu      sync.Mutex
	changes int64             // number of changes of objects
	listed  int64             // changes that list includes
	list    []T               // by namespace and name; immutable once made
	faults  map[string]string // of objects that cannot be read, by namespace/name
}

// access records whether a kind can be read.
type access struct {
	name string // plural

	mu      sync.Mutex
	asked   bool  // the API server has returned the objects, or refused them
	refused error // its last error; nil if it returned the objects
}

// refusal reports whether an error is a permanent answer: the kind is not installed, or forbidden.
func refusal(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

func (a *access) note(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // a watch from a version that is too old: the next list tells more
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked, a.refused = a.asked || err == nil || refusal(err), err
}

// state returns whether the API server has answered, whether the kind is installed, and any other
// problem; empty if there is none.
func (a *access) state() (asked, installed bool, problem string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.refused == nil:
		return a.asked, a.asked, ""
	case apierrors.IsNotFound(a.refused):
		return a.asked, false, ""
	case apierrors.IsForbidden(a.refused):
		return a.asked, true, clusterobjects.MayNotBeRead(a.name)
	}
	// The text of the error may differ each time, which would be a change for all viewers.
	return a.asked, true, a.name + " cannot be read now, and are what they were: the API server does not answer"
}

// watching makes a kind whose objects are typed. significant reports whether an update is a change; nil
// if every update is. changed is called after every change.
func watching[T any, L runtime.Object](name string, c collection[L], client any, example runtime.Object, significant func(before, after *T) bool, changed func()) (*kind[T], error) {
	k := &kind[T]{access: access{name: name}, listed: -1, faults: map[string]string{}}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			l, err := c.List(ctx, opts)
			k.note(err)
			return l, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			w, err := c.Watch(ctx, opts)
			k.note(err)
			return w, err
		},
	}
	k.informer = cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(lw, client), example, cache.SharedIndexInformerOptions{})
	if err := k.informer.SetTransform(k.take); err != nil {
		return nil, fmt.Errorf("watch %s: %w", name, err)
	}
	// The error is recorded by note and shown. The log has the details.
	if err := k.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		klog.FromContext(ctx).V(2).Info("Cannot watch", "resource", name, "err", err)
	}); err != nil {
		return nil, fmt.Errorf("watch %s: %w", name, err)
	}
	change := func() {
		k.mu.Lock()
		k.changes++
		k.mu.Unlock()
		changed()
	}
	_, err := k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { change() },
		UpdateFunc: func(before, after any) {
			b, was := before.(*T)
			a, is := after.(*T)
			if significant == nil || !was || !is || significant(b, a) {
				change()
			} else { // another object with the same content
				k.mu.Lock()
				k.changes++
				k.mu.Unlock()
			}
		},
		DeleteFunc: func(o any) {
			if m, err := meta.Accessor(o); err == nil {
				k.mu.Lock()
				delete(k.faults, m.GetNamespace()+"/"+m.GetName())
				k.mu.Unlock()
			}
			change()
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", name, err)
	}
	return k, nil
}

// take converts an object to the form that is held: typed, and without fields that only its writers need.
func (k *kind[T]) take(o any) (any, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		typed := new(T)
		k.fault(u, nil)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
			k.fault(u, err)
			typed = new(T)
			if m, err := meta.Accessor(typed); err == nil {
				m.SetName(u.GetName())
				m.SetNamespace(u.GetNamespace())
				m.SetUID(u.GetUID())
				m.SetResourceVersion(u.GetResourceVersion())
			}
		}
		o = typed
	}
	if m, err := meta.Accessor(o); err == nil {
		var kept []metav1.ManagedFieldsEntry
		switch o := o.(type) {
		case *v1.Pod:
			kept = refusals.Dates(o)
		case *coordinationv1.Lease:
			kept = nodelease.Renewals(o)
		}
		m.SetManagedFields(kept)
	}
	return o, nil
}

// maxFaults bounds the recorded objects that cannot be read.
const maxFaults = 8

// fault records that an object cannot be read, or removes the record if err is nil.
func (k *kind[T]) fault(u *unstructured.Unstructured, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := u.GetNamespace() + "/" + u.GetName()
	if delete(k.faults, key); err != nil && len(k.faults) < maxFaults {
		k.faults[key] = fmt.Sprintf("%s %s cannot be read: %v", k.name, u.GetName(), err)
	}
}

// all returns the objects, by namespace and name. They must not be changed.
func (k *kind[T]) all() []T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.listed == k.changes {
		return k.list
	}
	held := k.informer.GetStore().List()
	list := make([]*T, 0, len(held))
	for _, o := range held {
		if t, ok := o.(*T); ok {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *T) int {
		x, _ := meta.Accessor(a)
		y, _ := meta.Accessor(b)
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	k.list, k.listed = make([]T, len(list)), k.changes
	for i := range list {
		k.list[i] = *list[i]
	}
	return k.list
}

func (k *kind[T]) version() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changes
}

// settled reports whether the API server's first list has been received, or refused.
func (k *kind[T]) settled() bool {
	if asked, _, _ := k.state(); !asked {
		return false
	}
	k.access.mu.Lock()
	refused := refusal(k.refused)
	k.access.mu.Unlock()
	return refused || k.informer.HasSynced()
}

func (k *kind[T]) run(ctx context.Context) { k.informer.RunWithContext(ctx) }

func (k *kind[T]) installed() bool {
	_, is, _ := k.state()
	return is
}

// problems returns the errors of reading the kind.
func (k *kind[T]) problems() []string {
	_, _, problem := k.state()
	k.mu.Lock()
	defer k.mu.Unlock()
	out := slices.Sorted(maps.Values(k.faults))
	if problem != "" {
		out = append(out, problem)
	}
	return out
}
