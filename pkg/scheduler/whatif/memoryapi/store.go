// SPDX-License-Identifier: Apache-2.0

package memoryapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

// Store holds objects by resource and name.
type Store struct {
	mu      sync.Mutex                           // guards all below
	objects map[string]map[string]*whatif.Object // resource -> namespace/name
	version uint64                               // of the last change
	events  []event
	changed chan struct{}  // closed at the next change
	at      time.Time      // of the last change
	leaving []string       // pods that were deleted or evicted, as namespace/name
	watched map[string]int // resource -> watches that began
}

// event is one change, as a watch shows it.
type event struct {
	version uint64
	kind    watch.EventType
	object  *whatif.Object
}

// NewStore returns a Store of objects. Changes get versions above theirs.
func NewStore(objects []whatif.Object) (*Store, error) {
	s := &Store{objects: map[string]map[string]*whatif.Object{}, changed: make(chan struct{}), watched: map[string]int{}}
	for _, k := range whatif.Kinds() {
		s.objects[k.Resource] = map[string]*whatif.Object{}
	}
	for i := range objects {
		o := &objects[i]
		if v, err := strconv.ParseUint(o.ResourceVersion, 10, 64); err == nil {
			s.version = max(s.version, v)
		}
		s.objects[o.Kind.Resource][key(o.Namespace, o.Name)] = o
	}
	s.version++ // the version of lists, also if no object has one
	for i := range objects {
		if o := &objects[i]; o.ResourceVersion == "" {
			if err := s.put(o, false); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func key(namespace, name string) string { return namespace + "/" + name }

// put stores raw as the object's next version, and notifies the watches if tell is set. The caller holds
// s.mu, unless s is not shared yet.
func (s *Store) put(o *whatif.Object, tell bool) error {
	var fields map[string]any
	if err := utiljson.Unmarshal(o.Raw, &fields); err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	meta, ok := fields["metadata"].(map[string]any)
	if !ok {
		return fmt.Errorf("%s: it has no metadata", o)
	}
	s.version++
	meta["resourceVersion"] = strconv.FormatUint(s.version, 10)
	raw, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("%s: %w", o, err)
	}
	stored := *o
	stored.Raw, stored.ResourceVersion = raw, strconv.FormatUint(s.version, 10)
	of := s.objects[o.Kind.Resource]
	kind := watch.Added
	if of[key(o.Namespace, o.Name)] != nil {
		kind = watch.Modified
	}
	of[key(o.Namespace, o.Name)] = &stored
	if tell {
		s.events, s.at = append(s.events, event{s.version, kind, &stored}), time.Now()
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return nil
}

// Create adds an object; the watches show it.
func (s *Store) Create(kind *whatif.Kind, namespace, name string, obj any) error {
	text, err := json.Marshal(obj)
	if err != nil {
		return fmt.Errorf("%s %s/%s: %w", kind.Kind, namespace, name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[kind.Resource][key(namespace, name)] != nil {
		return fmt.Errorf("%s %s/%s: it is there already", kind.Kind, namespace, name)
	}
	return s.put(&whatif.Object{Kind: kind, Namespace: namespace, Name: name, Raw: whatif.WithKind(kind, text)}, true)
}

// Get returns the JSON of an object; nil if there is none.
func (s *Store) Get(resource, namespace, name string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[resource][key(namespace, name)]; o != nil {
		return o.Raw
	}
	return nil
}

// change replaces an object by the result of fn for its JSON, which fn must not change. found is false if
// there is no such object.
func (s *Store) change(resource, namespace, name string, fn func(raw []byte) ([]byte, error)) (raw []byte, found bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[resource][key(namespace, name)]
	if o == nil {
		return nil, false, nil
	}
	next := *o
	if next.Raw, err = fn(o.Raw); err != nil {
		return nil, true, err
	}
	if err := s.put(&next, true); err != nil {
		return nil, true, err
	}
	return s.objects[resource][key(namespace, name)].Raw, true, nil
}

// leave records a pod that is terminating.
func (s *Store) leave(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pod := key(namespace, name); !slices.Contains(s.leaving, pod) {
		s.leaving = append(s.leaving, pod)
	}
}

// Leaving returns the pods that were deleted or evicted, as namespace/name, in order.
func (s *Store) Leaving() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.leaving))
}

// Changed returns when the last change was; zero if there was none.
func (s *Store) Changed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// Watched reports whether each of the resources has a watch.
func (s *Store) Watched(resources ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(resources, func(r string) bool { return s.watched[r] == 0 })
}

// List returns the objects of a resource in the order of their names, and the version of the list.
func (s *Store) List(resource string) (objects []*whatif.Object, version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.objects[resource]
	objects = make([]*whatif.Object, 0, len(of))
	for _, name := range slices.Sorted(maps.Keys(of)) {
		objects = append(objects, of[name])
	}
	return objects, s.version
}

// after returns the changes after a version, and a channel that is closed at the next one.
func (s *Store) after(version uint64) (events []event, next <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, _ := slices.BinarySearchFunc(s.events, version, func(e event, v uint64) int {
		if e.version <= v {
			return -1
		}
		return 1
	})
	return slices.Clone(s.events[i:]), s.changed
}

func (s *Store) watch(resource string) {
	s.mu.Lock()
	s.watched[resource]++
	s.mu.Unlock()
}
