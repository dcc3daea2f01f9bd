// SPDX-License-Identifier: Apache-2.0

package candidates

import (
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Nominator says which pods are nominated for a node, as the scheduling queue has it. No
// lock of this package is held while it is asked.
type Nominator interface {
	NominatedPodsForNode(node string) []fwk.PodInfo
}

// passesByList is how many passes ask the scheduling queue only about the nodes that they
// would list. The next one knows of all nodes, which bounds their number.
const passesByList = 3

// borrowBuffers gives the finder what it needs of the index while that is not locked.
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

// keptForOthers reports whether the queue is known to keep the node for another pod. If
// not, the queue is to be asked.
func (f *finder) keptForOthers(i int) bool {
	if _, kept := f.kept[i]; kept {
		return true
	}
	f.asked = append(f.asked, i)
	return false
}

// askQueue asks about the nodes that the last pass took to be kept for nobody, and reports
// whether some are. If so, and if all is set, it asks about every node.
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
