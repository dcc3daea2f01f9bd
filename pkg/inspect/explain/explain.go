// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podkeys"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// ErrNotFound says that the World has no such object.
var ErrNotFound = errors.New("not found")

// Pod explains a pod; ErrNotFound if there is none.
func Pod(w *World, namespace, name string) (*Explanation, error) {
	s := newScene(w)
	p := s.pod(namespace, name)
	if p == nil {
		return nil, fmt.Errorf("pod %s/%s: %w", namespace, name, ErrNotFound)
	}
	return s.explainPod(p), nil
}

// PodGroup explains a PodGroup of scheduler-plugins; ErrNotFound if there is none.
func PodGroup(w *World, namespace, name string) (*Explanation, error) {
	for i := range w.PodGroups {
		if g := &w.PodGroups[i]; g.Namespace == namespace && g.Name == name {
			e := &Explanation{Kind: "PodGroup", Namespace: namespace, Name: name, State: Pending}
			newScene(w).explainGang(e, gangrequest.Key{Source: gangrequest.SourcePodGroup, Namespace: namespace, Name: name})
			return e, nil
		}
	}
	return nil, fmt.Errorf("PodGroup %s/%s: %w", namespace, name, ErrNotFound)
}

// GangOf explains a gang, whatever makes it one; ErrNotFound if it has neither a PodGroup nor pods.
func GangOf(w *World, key gangrequest.Key) (*Explanation, error) {
	s := newScene(w)
	member := func(p v1.Pod) bool { k, ok := gangrequest.KeyOf(&p); return ok && k == key }
	group := func(g schedulingv1alpha1.PodGroup) bool { return g.Namespace == key.Namespace && g.Name == key.Name }
	if !slices.ContainsFunc(w.Pods, member) && (key.Source != gangrequest.SourcePodGroup || !slices.ContainsFunc(w.PodGroups, group)) {
		return nil, fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	e := &Explanation{Kind: "Gang", Namespace: key.Namespace, Name: key.Name, State: Pending}
	if key.Source == gangrequest.SourcePodGroup {
		e.Kind = "PodGroup"
	}
	s.explainGang(e, key)
	return e, nil
}

// Job explains a Job by its quota and by the first of its pods that waits, or by its pods alone where it may not be
// read; ErrNotFound if there is none.
func Job(w *World, namespace, name string) (*Explanation, error) {
	return Owner(w, "Job", namespace, name)
}

func (s *scene) explainJob(j *batchv1.Job) *Explanation {
	e := &Explanation{Kind: "Job", Namespace: j.Namespace, Name: j.Name, State: Pending}
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		if wl := s.quota.workloadOf(j.Namespace, j.UID, ""); wl != nil || j.Labels[kueue.LabelQueue] != "" {
			s.quota.explain(e, j.Labels, wl)
			if _, why, ok := names.Protection(j.Annotations); ok && e.Cause == NoQuota {
				e.Reason = "the pool: " + why
			}
			return e
		}
		e.Cause, e.Reason, e.Next = Suspended, "the job is suspended and makes no pods", nextSteps[Suspended]
		return e
	}
	pods := s.owned(j.UID)
	if len(pods) == 0 {
		e.Cause, e.Reason, e.Next = Suspended, "the job has no pods", "read the conditions and events of the job"
		return e
	}
	return s.explainPodsOf(e, pods)
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
		e.Scheduler = saidBy(p)
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
	s.explainNodes(e, q)
}

// explainBefore reports whether something keeps the pod from being looked at.
func (s *scene) explainBefore(e *Explanation, p *v1.Pod) bool {
	var gates []string
	for _, g := range p.Spec.SchedulingGates {
		if g.Name == kueue.GateAdmission {
			s.quota.explain(e, p.Labels, s.quota.workloadOf(p.Namespace, p.UID, workloadName(p)))
			return true
		}
		gates = append(gates, g.Name)
	}
	switch missing, unbound := s.claimsOf(p); {
	case len(gates) > 0:
		e.Cause, e.Reason = SchedulingGated, "the pod has scheduling gates: "+strings.Join(gates, ", ")
	case !s.ours(p):
		e.Cause, e.Reason = OtherScheduler, fmt.Sprintf("spec.schedulerName is %q, which is not %s", p.Spec.SchedulerName, strings.Join(s.names, " or "))
	case missing != "":
		e.Cause, e.Reason = VolumeMissing, fmt.Sprintf("PersistentVolumeClaim %q is not there", missing)
	case unbound != "":
		e.Cause, e.Reason = VolumeUnbound, fmt.Sprintf("PersistentVolumeClaim %q is not bound, and its StorageClass does not wait for a pod", unbound)
	default:
		return false
	}
	e.Next = nextSteps[e.Cause]
	return true
}

// workloadName is how Kueue says which Workload a pod is of, empty if it does not.
func workloadName(p *v1.Pod) string {
	if name := p.Labels[kueue.LabelPodGroup]; name != "" {
		return name
	}
	return p.Annotations[kueue.AnnotationWorkload]
}
