// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	gpuResource = v1.ResourceName(v1alpha1.DefaultResource)
	namespace   = "soak"
	// graceSeconds is the pods' grace period; kubelet takes less.
	graceSeconds = 5
	guardLabel   = "soak/guarded"
)

// profiles are the schedulers' profiles, one for each way of writing annotations.
var profiles = []string{"soak-prebind", "soak-binding"}

// priorities are PriorityClasses and their values; the first is no class.
var priorities = []struct {
	name  string
	value int32
}{{"", 0}, {"soak-middle", 1000}, {"soak-high", 2000}}

// wishes are the annotations that pods carry.
var wishes = []map[string]string{
	nil, nil, nil, nil, nil,
	{podrequest.MinLinkKey: "NVLINK"},
	{podrequest.MinLinkKey: "PHB"},
	{podrequest.TopologyPolicyKey: "single-numa-node"},
	{podrequest.TopologyPolicyKey: "restricted"},
	{podrequest.TopologyPolicyKey: "none"},
	{podrequest.NUMAAffinityKey: "preferred"},
	{podrequest.MinBandwidthKey: "20"},
}

func container(name string, gpus int) v1.Container {
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("200m"), v1.ResourceMemory: resource.MustParse("64Mi")}
	if gpus > 0 {
		list[gpuResource] = *resource.NewQuantity(int64(gpus), resource.DecimalSI)
	}
	return v1.Container{Name: name, Image: "example.com/soak:1", Resources: v1.ResourceRequirements{Limits: list, Requests: list}}
}

func podOf(name string, want *podPlan) *v1.Pod {
	p := testobj.Pod(name).Namespace(namespace).Annotations(wishes[want.Wish]).
		Scheduler(profiles[want.Profile]).PriorityClass(priorities[want.Priority].name).GracePeriod(graceSeconds * time.Second).Containers().Obj()
	if want.Guarded {
		p.Labels[guardLabel] = "true"
	}
	for i, g := range want.GPUs {
		p.Spec.Containers = append(p.Spec.Containers, container(fmt.Sprintf("main-%d", i), g))
	}
	if want.Sidecar > 0 {
		c := container("sidecar", want.Sidecar)
		c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if want.Init > 0 {
		p.Spec.InitContainers = append(p.Spec.InitContainers, container("prepare", want.Init))
	}
	return p
}

func priorityClass(name string, value int32) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
}

// budget returns a budget that limits evictions of the guarded pods.
func budget() *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "guarded", Namespace: namespace},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(3)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{guardLabel: "true"}},
		},
	}
}

// gpusOf returns how many GPUs a pod needs at once.
func gpusOf(pod *v1.Pod) int {
	total := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	return int(total.Name(gpuResource, "").Value())
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// choiceOf returns the scheduler's choice for a pod on its node; nil without a valid annotation.
func choiceOf(pod *v1.Pod) *allocation.Allocation {
	a, err := allocation.Of(pod, pod.Spec.NodeName)
	if err != nil {
		return nil
	}
	return a
}

// constraintOf reads a pod's requirements on links, as the documentation defines them.
func constraintOf(pod *v1.Pod) (nvtopo.Constraint, error) {
	var c nvtopo.Constraint
	var err error
	if s, ok := pod.Annotations[podrequest.TopologyPolicyKey]; ok {
		if c.Policy, err = nvtopo.ParsePolicy(s); err != nil {
			return c, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	if s, ok := pod.Annotations[podrequest.MinLinkKey]; ok {
		if c.MinLink, err = nvtopo.ParseClass(s); err != nil {
			return c, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
	}
	if s, ok := pod.Annotations[podrequest.MinBandwidthKey]; ok {
		q, err := resource.ParseQuantity(s + "M") // 1 GB/s is a million kB/s
		if err != nil {
			return c, fmt.Errorf("pod %s: %w", pod.Name, err)
		}
		c.MinBandwidth = q.Value()
	}
	return c, nil
}

// demanding reports whether a pod's requirements depend on which GPUs it gets.
func demanding(c nvtopo.Constraint) bool {
	return c.MinLink != (nvtopo.Class{}) || c.MinBandwidth > 0 || c.Policy == nvtopo.PolicyRestricted || c.Policy == nvtopo.PolicySingleNUMANode
}

// setPhase writes a pod's status as kubelet does. An ended pod does not run again.
func (e *testEnv) setPhase(ctx context.Context, p *v1.Pod, phase v1.PodPhase, reason string) error {
	type state struct {
		UID     types.UID `json:"uid"`
		Version string    `json:"resourceVersion,omitempty"`
	}
	status := map[string]any{"phase": phase, "startTime": metav1.Now()}
	if reason != "" {
		status["reason"] = reason
	}
	pods := e.kube.CoreV1().Pods(p.Namespace)
	err := e.try(ctx, "set the phase of "+p.Name, func(ctx context.Context) error {
		meta := state{UID: p.UID}
		if phase == v1.PodRunning {
			switch live, err := pods.Get(ctx, p.Name, metav1.GetOptions{}); {
			case err != nil:
				return gone(err)
			case live.UID != p.UID || ended(live):
				return nil
			default:
				meta.Version = live.ResourceVersion
			}
		}
		body, err := json.Marshal(map[string]any{"metadata": meta, "status": status})
		if err != nil {
			return err
		}
		_, err = pods.Patch(ctx, p.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
		if meta.Version != "" {
			return gone(err) // after a conflict, look again
		}
		return stale(err)
	})
	if err == nil {
		e.count("pods "+string(phase)+" "+reason, 1)
	}
	return err
}

// finishDeletion confirms the deletion of a pod whose containers have ended.
func (e *testEnv) finishDeletion(ctx context.Context, p *v1.Pod) {
	if err := e.remove(ctx, p, 0); err != nil && ctx.Err() == nil {
		e.note("confirming the deletion of %s: %v", p.Name, err)
	}
}

// collectRemains deletes again the pods that are being deleted and have no node, and so no kubelet to
// confirm it. The API server leaves one behind if it is interrupted between marking a pod and removing
// it. In a cluster the pod-garbage-collector does this, at the same interval; its package would link half
// of kubelet.
func (e *testEnv) collectRemains(ctx context.Context) error {
	ticker := time.NewTicker(20 * time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, p := range e.podsOf("") {
			if p.DeletionTimestamp != nil {
				e.count("pods without a node whose deletion was repeated", 1)
				e.finishDeletion(ctx, p)
			}
		}
	}
}
