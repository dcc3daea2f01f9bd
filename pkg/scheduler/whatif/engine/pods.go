// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

// leaseSeconds keeps Leases from running out while an answer is made.
const leaseSeconds = 3600

// systemPriorities are the priorities of the classes that every cluster has:
// https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/
var systemPriorities = map[string]int32{"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}

// admission changes pods as the API server's admission does, as far as a scheduler reads the result:
// defaults, and the priority of the pod's class.
type admission struct {
	classes  map[string]int32
	byItself *schedulingv1.PriorityClass // the class of pods that name none; nil: priority 0
	profiles profile.Map
}

func newAdmission(s *whatif.Snapshot, profiles profile.Map) (*admission, error) {
	a := &admission{classes: map[string]int32{}, profiles: profiles}
	for i := range s.Objects {
		if s.Objects[i].Kind != whatif.PriorityClassKind {
			continue
		}
		class := &schedulingv1.PriorityClass{}
		if err := json.Unmarshal(s.Objects[i].Raw, class); err != nil {
			return nil, fmt.Errorf("%s: %w", &s.Objects[i], err)
		}
		a.classes[class.Name] = class.Value
		if class.GlobalDefault {
			a.byItself = class
		}
	}
	return a, nil
}

// admit prepares a pod.
func (a *admission) admit(pod *v1.Pod) error {
	corev1defaults.SetObjectDefaults_Pod(pod)
	if _, ok := a.profiles[pod.Spec.SchedulerName]; !ok {
		return fmt.Errorf("pod %s/%s: spec.schedulerName %q: the scheduler serves %s",
			pod.Namespace, pod.Name, pod.Spec.SchedulerName, strings.Join(profileNames(a.profiles), ", "))
	}
	if pod.Spec.Priority == nil {
		if err := a.prioritize(pod); err != nil {
			return err
		}
	}
	if pod.UID == "" {
		pod.UID = types.UID("what-if-" + pod.Namespace + "-" + pod.Name)
	}
	if pod.CreationTimestamp.IsZero() {
		pod.CreationTimestamp = metav1.NewTime(time.Now())
	}
	pod.ResourceVersion, pod.ManagedFields, pod.Status = "", nil, v1.PodStatus{Phase: v1.PodPending}
	return nil
}

func (a *admission) prioritize(pod *v1.Pod) error {
	name := pod.Spec.PriorityClassName
	if name == "" {
		pod.Spec.Priority = new(int32)
		if a.byItself != nil {
			pod.Spec.PriorityClassName, pod.Spec.Priority = a.byItself.Name, &a.byItself.Value
			pod.Spec.PreemptionPolicy = a.byItself.PreemptionPolicy
		}
		return nil
	}
	value, ok := a.classes[name]
	if !ok {
		value, ok = systemPriorities[name]
	}
	if !ok {
		return fmt.Errorf("pod %s/%s: spec.priorityClassName %q: the snapshot has no such PriorityClass; set spec.priority", pod.Namespace, pod.Name, name)
	}
	pod.Spec.Priority = &value
	return nil
}

func profileNames(profiles profile.Map) []string {
	var out []string
	for name := range profiles {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// renewLeases renews the snapshot's Leases that were valid at its time, so that they are valid now.
func renewLeases(objects []whatif.Object, now time.Time) error {
	for i := range objects {
		o := &objects[i]
		if o.Kind != whatif.LeaseKind {
			continue
		}
		lease := &coordinationv1.Lease{}
		if err := json.Unmarshal(o.Raw, lease); err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
		lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = new(metav1.NewMicroTime(now)), new(int32(leaseSeconds))
		text, err := json.Marshal(lease)
		if err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
		o.Raw = text
	}
	return nil
}
