// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podkeys"
)

// ErrNotFound says that the World has no such object.
var ErrNotFound = errors.New("not found")

// Pod explains a pod; ErrNotFound if there is none.
func Pod(w *World, namespace, name string) (*Explanation, error) {
	p := find(w.Pods, namespace, name)
	if p == nil {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, ErrNotFound)
	}
	return newScene(w).explainPod(p), nil
}

// PodGroup explains a PodGroup of scheduler-plugins; ErrNotFound if there is none.
func PodGroup(w *World, namespace, name string) (*Explanation, error) {
	if find(w.PodGroups, namespace, name) == nil {
		return nil, fmt.Errorf("PodGroup %s/%s: %w", namespace, name, ErrNotFound)
	}
	return GangOf(w, gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: namespace, Name: name})
}

// GangOf explains a gang, whatever makes it one; ErrNotFound if it has neither a PodGroup nor pods.
func GangOf(w *World, key gangrequest.Key) (*Explanation, error) {
	member := func(p v1.Pod) bool { k, ok := gangrequest.KeyOf(&p); return ok && k == key }
	if !slices.ContainsFunc(w.Pods, member) && (key.Source != gangrequest.SourcePodGroup || find(w.PodGroups, key.Namespace, key.Name) == nil) {
		return nil, fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	e := &Explanation{Kind: "Gang", Namespace: key.Namespace, Name: key.Name, State: Pending}
	if key.Source == gangrequest.SourcePodGroup {
		e.Kind = "PodGroup"
	}
	newScene(w).explainGang(e, key)
	return e, nil
}

func (s *scene) explainPod(p *v1.Pod) *Explanation {
	e := &Explanation{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, State: Pending}
	if s.ours(p) { // of others nobody reads any of our keys
		e.IgnoredKeys = podkeys.Message(podkeys.Unread(p))
	}
	switch {
	case ended(p):
		e.State, e.Reason = Ended, "the pod has ended: "+string(p.Status.Phase)
	case p.Spec.NodeName != "":
		e.State = Bound
		s.explainBound(e, p)
	default:
		e.Scheduler = s.saidNow(p)
		s.explainPending(e, p)
		if e.Cause == causeOf(placement.NoGraph) && len(s.Topologies) == 0 {
			e.Evidence = append(e.Evidence, diagnosis.NoTopologies)
		}
	}
	return e
}

// explainPending goes through what keeps a pod waiting, in the order in which it has to go.
func (s *scene) explainPending(e *Explanation, p *v1.Pod) {
	if s.explainBefore(e, p) {
		return
	}
	q, err := s.question(p)
	if err != nil {
		e.Cause, e.Reason, e.Next = Unreadable, err.Error(), nextSteps[Unreadable]
		return
	}
	if key, member := gangrequest.KeyOf(p); member {
		s.explainGang(e, key)
		return
	}
	s.forPod(q).explainNodes(e, s.noLeader(p))
}
