// SPDX-License-Identifier: Apache-2.0

package topologies

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// maxFaults bounds how many fields at fault are named: each of 512 allocations may be.
const maxFaults = 4

// faults has the errors of one version of an object.
type faults struct {
	graph     error   // of the exporter's part; the last good graph is used
	contested error   // devices that other nodes published first; see owners
	others    []error // of other fields
}

// err joins all errors, at most maxFaults of them; nil if there is none.
func (w *faults) err() error {
	errs := append([]error{w.graph, w.contested}, w.others...)
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > maxFaults {
		errs = append(errs[:maxFaults:maxFaults], errors.New("and more"))
	}
	return errors.Join(errs...)
}

// fault has the errors of the last seen object; immutable.
type fault struct {
	faults
	object types.UID
	text   string
	// since is when the graph of the object was first seen to be unreadable; zero while it can be read. From
	// then on the last good graph is not vouched for: the exporter's Lease vouches for the present object.
	since time.Time
}

// judge stores the faults of an object. It returns them as an error if they were not known: every later
// write of the object has the same mistakes. The graph of a partial object was not read, so its earlier
// fault is kept. The caller holds Cache.mu.
func (e *Entry) judge(obj *v1alpha1.NodeGPUTopology, partial bool, wrong faults, now time.Time) error {
	old := e.fault.Load()
	same := old != nil && old.object == obj.UID
	if partial && same {
		wrong.graph = old.graph
	}
	err := wrong.err()
	if err == nil {
		e.fault.Store(nil)
		return nil
	}
	f := &fault{faults: wrong, object: obj.UID, text: err.Error()}
	if wrong.graph != nil {
		f.since = now
		if same && !old.since.IsZero() {
			f.since = old.since
		}
	}
	e.fault.Store(f)
	if same && old.text == f.text {
		return nil
	}
	return err
}

// setContested replaces the fault of contested devices of the object, which may be nil. The caller holds
// Cache.mu.
func (e *Entry) setContested(object types.UID, contested error) {
	next := fault{object: object}
	if f := e.fault.Load(); f != nil && f.object == object {
		next = *f
	}
	next.contested = contested
	err := next.err()
	if err == nil {
		e.fault.Store(nil)
		return
	}
	next.text = err.Error()
	e.fault.Store(&next)
}
