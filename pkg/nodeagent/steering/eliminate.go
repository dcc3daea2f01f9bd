// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"k8s.io/apimachinery/pkg/types"
)

// surveyFrom is how many pods must be left to ask about, after at least one answer, to
// ask kubelet for all its pods instead. With fewer pods, asking about each one costs no
// more.
const surveyFrom = 3

// listable reports whether kubelet may be asked for all its pods. Kubelet then cleans
// up. That does no harm before it has taken devices for the asking container, because
// it cleans up anyway when it begins with a container.
func (f *facts) listable() bool {
	return f.active == nil && !f.apart && !f.q.final && len(f.q.must) == 0
}

// surveys reports whether to ask for all pods. The answer rules out at once the pods
// that kubelet does not know yet and those that have ended.
func (f *facts) surveys(left []candidate) bool {
	return len(f.answers) > 0 && f.listable() && f.unsure(left) >= surveyFrom
}

// unsure counts the pods that we may have to ask kubelet about: the candidates left,
// and those that seem to hold devices that kubelet offers.
func (f *facts) unsure(left []candidate) int {
	pods := map[types.UID]bool{}
	for i := range left {
		pods[left[i].pod.uid] = true
	}
	for _, p := range f.pods {
		if len(f.q.overlapping(f.had(p, nil).with(f.unrecorded(p, nil)))) > 0 {
			pods[p.uid] = true
		}
	}
	for uid := range f.answers {
		delete(pods, uid)
	}
	return len(pods)
}

// strike rules out the pods that kubelet does not know, after it was asked for all.
func (f *facts) strike() {
	for _, p := range f.pods {
		if _, asked := f.answers[p.uid]; !asked && f.active != nil && !f.active[types.NamespacedName{Namespace: p.namespace, Name: p.name}] {
			f.answers[p.uid] = answer{unknown: true}
		}
	}
}
