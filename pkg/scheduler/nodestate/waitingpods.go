// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"iter"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/candidates"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/waking"
)

// WaitingPods has the pods with devices that fit no node, and decides when they are tried again.
type WaitingPods struct {
	waker     *waking.Waker
	closed    *candidates.Closed // the places kept from some of them
	table     *AllocationTable
	lookAgain deadline // when they are tried in any case
}

// Add adds a pod with GPUs that fits no node to the waiting pods, at the end of the cycle that began
// last. It is Gated until it is woken or changed.
func (p *WaitingPods) Add(r *waking.RefusedPod) {
	w := *r
	w.Closed = p.closed
	w.Began = time.Unix(0, p.table.swept.Load())
	w.Exempt = w.Exempt || p.table.reservations.TriedOn(r.Pod.UID) != ""
	p.waker.Add(&w)
}

// Gated reports whether a pod must be kept out of the scheduling queue; see waking.Waker.Gated.
func (p *WaitingPods) Gated(pod *v1.Pod) (gated, inMetric bool) { return p.waker.Gated(pod) }

// TryAgainBy has the waiting pods tried again at this time, unless an event has done so by then.
func (p *WaitingPods) TryAgainBy(at time.Time) { p.lookAgain.set(at) }

func (p *WaitingPods) tryAgain() {
	p.waker.OpenGates()
	p.waker.WakeOthers()
}

// deadline is the earliest of the times that were set.
type deadline struct {
	mu sync.Mutex
	at time.Time // zero: there is none
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || at.Before(d.at) {
		d.at = at
	}
}

// passed reports, once, that the time has come.
func (d *deadline) passed(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at.IsZero() || now.Before(d.at) {
		return false
	}
	d.at = time.Time{}
	return true
}

// cluster answers the waker's queries about all nodes and pods.
type cluster struct {
	cells        *cells
	reservations *reservations.Table
	listers      *listers
	profiles     *Profiles
	lists        *FirstLists
}

func (c cluster) Nodes() iter.Seq[*waking.Node] {
	return func(yield func(*waking.Node) bool) {
		for _, x := range c.cells.all() {
			if !yield(&x.waking) {
				return
			}
		}
	}
}

func (c cluster) Attempts() (binding map[types.UID]bool, again map[types.UID]string) {
	return c.reservations.Attempts()
}

func (c cluster) Stored(pod *v1.Pod) *v1.Pod {
	return c.listers.pods.pod(pod.Namespace, pod.Name, pod.UID)
}

func (c cluster) Serves(profile string) bool { return c.profiles.Serves(profile) }

func (c cluster) InGang(pod *v1.Pod) bool {
	_, member := gangrequest.KeyOf(pod)
	return member && c.profiles.servesGangs(pod.Spec.SchedulerName)
}

func (c cluster) Synced() bool { return c.lists.Synced() }
