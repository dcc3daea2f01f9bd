// SPDX-License-Identifier: Apache-2.0

package podfinder

import (
	"k8s.io/apimachinery/pkg/types"
)

// SurveyFrom is the number of unsure pods, after at least one query, from which kubelet is queried for
// all its pods instead. With fewer pods, a query for each one costs no more.
const SurveyFrom = 3

// Listable reports whether kubelet may be queried for all its pods. Kubelet then cleans up. That does no
// harm before it has taken devices for the requesting container, because it cleans up anyway when it
// begins with a container.
func (f *Facts) Listable() bool {
	return f.Active == nil && !f.Surveyed && !f.Question.Final && len(f.Question.Must) == 0
}

// surveys reports whether to query all pods. The result rules out at once the pods that kubelet does not
// know yet and those that have ended.
func (f *Facts) surveys(left []candidate) bool {
	return len(f.Answers) > 0 && f.Listable() && f.unsure(left) >= SurveyFrom
}

// unsure returns the number of pods that kubelet may have to be queried about: the candidates left, and
// those that seem to hold devices that kubelet offers.
func (f *Facts) unsure(left []candidate) int {
	pods := map[types.UID]bool{}
	for i := range left {
		pods[left[i].pod.UID] = true
	}
	for _, p := range f.Pods {
		if len(f.Question.Overlapping(f.Had(p, nil).With(f.Unrecorded(p, nil)))) > 0 {
			pods[p.UID] = true
		}
	}
	for uid := range f.Answers {
		delete(pods, uid)
	}
	return len(pods)
}

// RuleOut rules out the pods that are missing from kubelet's report of all pods.
func (f *Facts) RuleOut() {
	for _, p := range f.Pods {
		if _, asked := f.Answers[p.UID]; !asked && f.Active != nil && !f.Active[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] {
			f.Answers[p.UID] = Answer{Unknown: true}
		}
	}
}
