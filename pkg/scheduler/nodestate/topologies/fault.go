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

// faults is what one version of an object has that cannot be used.
type faults struct {
	graph     error   // of the exporter's part; the last good graph is used
	contested error   // devices that other nodes published first; see owners
	others    []error // of other fields
}

// err is all of it in one error, of so many fields at most; nil if there is nothing.
func (w *faults) err() error {
	errs := append([]error{w.graph, w.contested}, w.others...)
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) > maxFaults {
		errs = append(errs[:maxFaults:maxFaults], errors.New("and more"))
	}
	return errors.Join(errs...)
}

// fault is what cannot be used of the object as last seen; immutable.
type fault struct {
	faults
	object types.UID
	text   string
	// since is when the graph of the object was first seen to be unreadable; zero while it can
	// be read. From then on nobody vouches for the last good graph: the exporter's Lease
	// vouches for the object as it is.
	since time.Time
}

// judge keeps what is wrong with an object. It returns that if it was not known: every later
// write of the object has the same mistakes. Of a partial object the graph was not read, and
// what was wrong with it still is. It needs Cache.mu.
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

// setContested keeps what withhold says now, which may be nothing, in the place of what it said
// of the object before. It needs Cache.mu.
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
