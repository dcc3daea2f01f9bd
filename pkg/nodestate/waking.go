// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"iter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/nodestate/waking"
)

// AddWaiting puts a pod with GPUs that no node took on the list of those that wait, as the cycle
// ends that began last. Until it is woken, or changed, it is Gated.
func (s *State) AddWaiting(r *waking.RefusedPod) {
	w := *r
	w.Closed = &s.closed
	w.Began = time.Unix(0, s.swept.Load())
	w.Exempt = w.Exempt || s.reservations.TriedOn(r.Pod.UID) != ""
	s.waker.Add(&w)
}

// Gated reports whether a pod is to be kept out of the scheduling queue; see waking.Waker.Gated.
func (s *State) Gated(pod *v1.Pod) (gated, inMetric bool) { return s.waker.Gated(pod) }

// cluster is what the waker asks about all nodes and pods.
type cluster struct{ s *State }

func (c cluster) Nodes() iter.Seq[*waking.Node] {
	return func(yield func(*waking.Node) bool) {
		for _, x := range c.s.cells.all() {
			if !yield(&x.waking) {
				return
			}
		}
	}
}

func (c cluster) Attempts() (binding map[types.UID]bool, again map[types.UID]string) {
	return c.s.reservations.Attempts()
}

func (c cluster) Stored(pod *v1.Pod) *v1.Pod {
	return c.s.listers.pods.pod(pod.Namespace, pod.Name, pod.UID)
}

func (c cluster) Serves(profile string) bool { return c.s.profiles.Serves(profile) }

func (c cluster) InGang(pod *v1.Pod) bool {
	_, member := gangrequest.KeyOf(pod)
	return member && c.s.profiles.servesGangs(pod.Spec.SchedulerName)
}

func (c cluster) Synced() bool { return c.s.lists.Synced() }
