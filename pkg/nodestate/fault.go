// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// maxFaults bounds how many fields at fault are named: all of a thousand allocations
// may be.
const maxFaults = 4

// faults is what one version of an object has that cannot be read.
type faults struct {
	graph  error // in the exporter's part; the last good graph is used
	others []error
}

// fault is what cannot be read of the object as last seen; immutable.
type fault struct {
	object types.UID
	text   string
	graph  error // in the exporter's part
	// since is when the graph of the object was first seen to be unreadable; zero
	// while it can be read. From then on nobody vouches for the last good graph: the
	// exporter's Lease speaks for the object as it is.
	since time.Time
}

// judge keeps what is wrong with an object and returns it if it was not known: every
// later write of the object has the same mistakes. Of a partial object the graph was not
// read, and what was wrong with it still is. It needs State.graphMu.
func (x *cell) judge(obj *v1alpha1.NodeGPUTopology, partial bool, wrong faults, now time.Time) error {
	old := x.fault.Load()
	same := old != nil && old.object == obj.UID
	if partial && same {
		wrong.graph = old.graph
	}
	errs := wrong.others
	if wrong.graph != nil {
		errs = append([]error{wrong.graph}, errs...)
	}
	if len(errs) == 0 {
		x.fault.Store(nil)
		return nil
	}
	if more := len(errs) - maxFaults; more > 0 {
		errs = append(errs[:maxFaults:maxFaults], errors.New("and more"))
	}
	err := errors.Join(errs...)
	f := &fault{object: obj.UID, text: err.Error(), graph: wrong.graph}
	if wrong.graph != nil {
		f.since = now
		if same && !old.since.IsZero() {
			f.since = old.since
		}
	}
	x.fault.Store(f)
	if same && old.text == f.text {
		return nil
	}
	return err
}
