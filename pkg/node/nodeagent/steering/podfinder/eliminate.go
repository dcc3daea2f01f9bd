// SPDX-License-Identifier: Apache-2.0

package podfinder

import (
	"k8s.io/apimachinery/pkg/types"
)

// SurveyFrom is how many pods must be left to ask about, after at least one answer, to
// ask kubelet for all its pods instead. With fewer pods, asking about each one costs no
// more.
const SurveyFrom = 3

// Listable reports whether kubelet may be asked for all its pods. Kubelet then cleans
// up. That does no harm before it has taken devices for the asking container, because
// it cleans up anyway when it begins with a container.
func (f *Facts) Listable() bool {
	return f.Active == nil && !f.Surveyed && !f.Question.Final && len(f.Question.Must) == 0
}

// surveys reports whether to ask for all pods. The answer rules out at once the pods
// that kubelet does not know yet and those that have ended.
func (f *Facts) surveys(left []candidate) bool {
	return len(f.Answers) > 0 && f.Listable() && f.unsure(left) >= SurveyFrom
}

// unsure counts the pods that we may have to ask kubelet about: the candidates left,
// and those that seem to hold devices that kubelet offers.
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

// RuleOut rules out the pods that kubelet does not know, after it was asked for all.
func (f *Facts) RuleOut() {
	for _, p := range f.Pods {
		if _, asked := f.Answers[p.UID]; !asked && f.Active != nil && !f.Active[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] {
			f.Answers[p.UID] = Answer{Unknown: true}
		}
	}
}
