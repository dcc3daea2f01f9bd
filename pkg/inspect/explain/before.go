// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
)

// explainBefore reports whether something keeps the pod from being looked at.
func (s *scene) explainBefore(e *Explanation, p *v1.Pod) bool {
	var gates []string
	for _, g := range p.Spec.SchedulingGates {
		if g.Name == kueue.GateAdmission {
			s.quota.explain(e, p.Labels, &p.Spec, s.quota.workloadOf(p.Namespace, p.UID, workloadName(p)))
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

// claimsOf names a claim of the pod that is not there, and one that must be bound first and is
// not; both are empty where claims are not known.
func (w *World) claimsOf(p *v1.Pod) (missing, unbound string) {
	if !w.ClaimsKnown {
		return "", ""
	}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = p.Name + "-" + v.Name
		default:
			continue
		}
		claim := find(w.Claims, p.Namespace, name)
		switch {
		case claim == nil:
			return name, ""
		case claim.Status.Phase != v1.ClaimBound && !w.waitsForPod(claim):
			unbound = name
		}
	}
	return "", unbound
}

// waitsForPod reports whether a claim is bound only once the scheduler has chosen a node.
func (w *World) waitsForPod(c *v1.PersistentVolumeClaim) bool {
	if c.Spec.StorageClassName == nil {
		return false
	}
	sc := find(w.StorageClasses, "", *c.Spec.StorageClassName)
	return sc != nil && sc.VolumeBindingMode != nil && *sc.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}
