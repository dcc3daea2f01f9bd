// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Nominator returns the pods that the scheduling queue has nominated for a node. No lock of this package
// is held while it is called.
type Nominator interface {
	NominatedPodsForNode(node string) []fwk.PodInfo
}

// passesByList is how many passes look up in the scheduling queue only the nodes that they would list.
// The next pass knows all nodes, which bounds the number of passes.
const passesByList = 3

// borrowBuffers gives the finder the index's buffer and position for use without the lock.
func (x *Index) borrowBuffers(f *finder) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f.start, f.asked, x.asked = x.next, x.asked, nil
}

// returnBuffers keeps the memory for the next list.
func (x *Index) returnBuffers(f *finder) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = f.asked
}

// keptForOthers reports whether the queue is known to keep the node for another pod. If not, the node is
// recorded for the next lookup in the queue.
func (f *finder) keptForOthers(i int) bool {
	if _, kept := f.kept[i]; kept {
		return true
	}
	f.asked = append(f.asked, i)
	return false
}

// askQueue looks up the nodes that the last pass assumed to have no nominated pods, and reports whether
// some have. If so, and if all is set, it looks up every node.
func (f *finder) askQueue(all bool) (found bool) {
	for _, i := range f.asked {
		if f.promised(i) {
			found = true
			f.keep(i)
		}
	}
	if !found || !all {
		return found
	}
	for i := range f.Nodes {
		if f.promised(i) {
			f.keep(i)
		}
	}
	return true
}

func (f *finder) keep(i int) {
	if f.kept == nil {
		f.kept = map[int]struct{}{}
	}
	f.kept[i] = struct{}{}
}

// promised reports whether a pod of at least this priority is nominated for the node.
func (f *finder) promised(i int) bool {
	for _, p := range f.Queue.NominatedPodsForNode(f.Nodes[i].Node().Name) {
		if p.GetPod().UID != f.Pod.UID && corev1.PodPriority(p.GetPod()) >= corev1.PodPriority(f.Pod) {
			return true
		}
	}
	return false
}
