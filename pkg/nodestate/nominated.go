// SPDX-License-Identifier: Apache-2.0

package nodestate

import "k8s.io/component-helpers/scheduling/corev1"

// passesByList is how many passes ask the scheduling queue only about the nodes that they
// would list. The next one knows of all nodes, which bounds their number.
const passesByList = 3

// lend gives the lister what it needs of the index while that is not locked.
func (x *index) lend(l *lister) {
	x.mu.Lock()
	defer x.mu.Unlock()
	l.start, l.asked, x.asked = x.next, x.asked, nil
}

// takeBack keeps the memory for the next list.
func (x *index) takeBack(l *lister) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = l.asked
}

// keptForOthers reports whether the queue is known to keep the node for another pod. If
// not, the queue is to be asked.
func (l *lister) keptForOthers(i int) bool {
	if _, kept := l.kept[i]; kept {
		return true
	}
	l.asked = append(l.asked, i)
	return false
}

// askQueue asks about the nodes that the last pass took for nobody's, or about all, and
// reports whether some are kept for others. No lock of ours is held meanwhile.
func (l *lister) askQueue(all bool) (found bool) {
	for _, i := range l.asked {
		if l.promised(i) {
			found = true
			l.keep(i)
		}
	}
	if !found || !all {
		return found
	}
	for i := range l.nodes {
		if l.promised(i) {
			l.keep(i)
		}
	}
	return true
}

func (l *lister) keep(i int) {
	if l.kept == nil {
		l.kept = map[int]struct{}{}
	}
	l.kept[i] = struct{}{}
}

// promised reports whether a pod of at least this priority is nominated for the node.
func (l *lister) promised(i int) bool {
	for _, p := range l.handle.NominatedPodsForNode(l.nodes[i].Node().Name) {
		if p.GetPod().UID != l.pod.UID && corev1.PodPriority(p.GetPod()) >= corev1.PodPriority(l.pod) {
			return true
		}
	}
	return false
}
