// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// Attempt is one attempt to bind a pod to a node, for the plugin that writes the allocation. Most of its
// methods do nothing if no devices were chosen, or once the pod was bound by an earlier attempt or has
// ended; see reservations.Table for each.
type Attempt struct {
	binder *Binder
	uid    types.UID
	r      *reservations.Reservation // nil: nothing was chosen
}

// Attempt returns the present attempt to bind the pod to the node. Call it once per attempt and pass the
// result on.
func (b *Binder) Attempt(uid types.UID, node string) Attempt {
	return Attempt{b, uid, b.reservations.Present(uid, node)}
}

// HasChoice reports whether the attempt still has a chosen allocation, written or not.
func (a Attempt) HasChoice() bool { return a.binder.reservations.IsPresent(a.r) }

// Pending returns the allocation if its annotations still have to be written, else nil.
func (a Attempt) Pending() *allocation.Allocation { return a.binder.reservations.Pending(a.r) }

// Earlier reports whether earlier attempts of the pod may still be carried out, or have left their
// allocation on it.
func (a Attempt) Earlier() bool { return a.binder.reservations.Earlier(a.uid, a.r) }

// MayCarryOut fails if this process may not write the allocation: it may no longer lead, or a write of
// its predecessor may conflict; see leader.Leader.Check and Confirm.
func (a Attempt) MayCarryOut(ctx context.Context) error {
	if !a.HasChoice() {
		return nil
	}
	if err := a.binder.leader.Check(ctx); err != nil {
		return err
	}
	return a.binder.leader.Confirm(ctx, a.r.Allocation)
}

// Announce marks that the binding proceeds to its writes. BeginWrite does so as well. Do not call it for
// a pod that another plugin holds at Permit: it may wait for many other pods.
func (a Attempt) Announce() { a.binder.reservations.Announce(a.r) }

// BeginWrite announces the allocation, if there is one, and waits until one more write may be in flight.
// Nothing is locked meanwhile, so check the conditions of the write afterwards. Call end when the write
// has been answered. It fails only if ctx ends first.
func (a Attempt) BeginWrite(ctx context.Context) (end func(), err error) {
	a.Announce()
	return a.binder.writes.begin(ctx)
}

// BindingBegan marks that the first write of the allocation may now happen.
func (a Attempt) BindingBegan() {
	a.binder.reservations.BindingBegan(a.r)
	if a.r != nil && a.r.Request != nil && a.r.Request.HasGPUs() {
		a.binder.refusals.Sent(a.uid, a.r.Allocation.Node)
	}
}

// BindingRefused marks that the API server certainly did not carry out the write.
func (a Attempt) BindingRefused() { a.binder.reservations.BindingRefused(a.r) }

// Written marks the annotations as written on the pod.
func (a Attempt) Written() { a.binder.reservations.Written(a.r) }

// WriteEnded marks that the PATCH of the allocation was sent once and is done. No Binding may be sent
// before the next call of BindingBegan.
func (a Attempt) WriteEnded() { a.binder.reservations.WriteEnded(a.r) }
