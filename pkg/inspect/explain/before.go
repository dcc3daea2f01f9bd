// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// explainBefore reports whether something keeps the pod from being looked at.
func (s *scene) explainBefore(e *Explanation, p *v1.Pod) bool {
	var gates []string
	for _, g := range p.Spec.SchedulingGates {
		if g.Name == kueue.GateAdmission {
			s.explainQuota(e, p.Labels, &p.Spec, s.quota.workloadOf(p.Namespace, p.UID, workloadName(p)))
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
		l := s.noLeader(p)
		if l.gone { // what nodes lack would be said of a cluster without nvtopo
			e.Cause, e.Reason, e.Next = NoScheduler, l.why, l.next
		}
		return l.gone
	}
	e.Next = nextSteps[e.Cause]
	return true
}

// explainQuota explains a job that Kueue does not let in, see quota.explain. One whose place is in doubt by
// the placement check never gets one if its pods can never fit the cluster.
func (s *scene) explainQuota(e *Explanation, labels map[string]string, pod *v1.PodSpec, wl *kueue.Workload) {
	s.quota.explain(e, labels, pod, wl)
	refused := func(c kueue.AdmissionCheckState) bool {
		return c.Name == names.CheckPlacementObject && c.State != kueue.CheckReady
	}
	if e.Cause != NoPlaceYet || !slices.ContainsFunc(wl.Status.AdmissionChecks, refused) {
		return
	}
	if never := s.neverOf(wl); never != nil {
		e.Cause, e.Lacks, e.Reason, e.Next = NeverFits, never.Lacks, never.Reason, never.Next
		e.Evidence = append(e.Evidence, never.Evidence...)
	}
}

// neverOf explains why pods of a Workload's templates can never fit the cluster; nil if they can. Taints
// are taken to keep them from no node, since the ResourceFlavor that tolerates them is not read.
func (s *scene) neverOf(wl *kueue.Workload) *Explanation {
	gangs := map[gangrequest.Key][]*v1.Pod{}
	for i := range wl.Spec.PodSets {
		set := &wl.Spec.PodSets[i]
		pod := podOf(wl, set, 0)
		if key, member := gangrequest.KeyOf(pod); member {
			for n := range startsWith(set) {
				gangs[key] = append(gangs[key], podOf(wl, set, n))
			}
		} else if q, err := s.question(pod); err == nil {
			never, x := &Explanation{}, s.forPod(q)
			if x.dominant(x.judge(), never) == NeverFits {
				return never
			}
		}
	}
	for key, pods := range gangs {
		never, group := &Explanation{}, find(s.PodGroups, key.Namespace, key.Name)
		if key.Source != gangrequest.SourcePodGroup {
			group = nil
		}
		a, err := s.askOf(gangrequest.Read(key, group, pods), group)
		if err == nil && len(a.shapes) > 0 && a.neverGang(never) && never.Cause == NeverFits {
			return never
		}
	}
	return nil
}

// startsWith is how many pods of a PodSet start together at least; of more than a gang may have, so many.
func startsWith(set *kueue.PodSet) int {
	count := min(set.Count, gangrequest.MaxMembers)
	if set.MinCount != nil {
		count = min(count, *set.MinCount)
	}
	return int(count)
}

// podOf makes the n-th pod of a PodSet's template.
func podOf(wl *kueue.Workload, set *kueue.PodSet, n int) *v1.Pod {
	p := &v1.Pod{ObjectMeta: *set.Template.ObjectMeta.DeepCopy(), Spec: *set.Template.Spec.DeepCopy()}
	p.Namespace, p.Name = wl.Namespace, fmt.Sprintf("%s-%s-%d", wl.Name, set.Name, n)
	p.UID = types.UID(string(wl.UID) + "/" + p.Name)
	p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Operator: v1.TolerationOpExists})
	if len(wl.OwnerReferences) > 0 {
		owner := wl.OwnerReferences[0]
		owner.Controller = new(true)
		if p.OwnerReferences = []metav1.OwnerReference{owner}; owner.Kind == "Pod" {
			p.Name, p.OwnerReferences = owner.Name, nil
		}
	}
	return p
}

// workloadName is how Kueue says which Workload a pod is of, empty if it does not.
func workloadName(p *v1.Pod) string {
	if name := p.Labels[kueue.LabelPodGroup]; name != "" {
		return name
	}
	return p.Annotations[kueue.AnnotationWorkload]
}
