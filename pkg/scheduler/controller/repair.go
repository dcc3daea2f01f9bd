// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// choiceOf reads the annotation of a pod. It returns nil unless it is valid for the pod
// and its node.
func choiceOf(pod *v1.Pod) *allocation.Allocation {
	a, err := allocation.Of(pod, pod.Spec.NodeName)
	if err != nil {
		return nil
	}
	return a
}

// lastChoice returns the result of choiceOf, or the pod's allocation for another node: the Binding of an
// earlier attempt was carried out late, and the scheduler ended before it could correct it.
func lastChoice(pod *v1.Pod) *allocation.Allocation {
	a, err := allocation.Parse(pod.Annotations[allocation.Key])
	if err != nil || a.PodUID != pod.UID {
		return nil
	}
	return a
}

// actual returns the allocation with kubelet's record in place of the choice. It returns nil if both are
// the same and the annotation is marked as enforced. If only the mark is missing, it is added again,
// because a live agent confirms the choice. Nothing is corrected until kubelet has recorded every
// container of the choice: half a correction would assign GPUs twice.
func actual(old *allocation.Allocation, n *usage.Node, records []v1alpha1.Allocation) (*allocation.Allocation, error) {
	a := &allocation.Allocation{
		Version: old.Version, Node: n.Name, PodUID: old.PodUID, Assumed: old.Assumed, Enforced: true, Unconfirmed: old.Unconfirmed,
		NUMANodes: old.NUMANodes, CPUSet: old.CPUSet,
	}
	moved := old.Node != n.Name
	if moved {
		a.CPUSet = "" // the CPUs were another node's
	}
	for i := range old.Containers {
		c := old.Containers[i]
		r := recordOf(records, &c)
		if r == nil || len(r.GPUs) == 0 {
			return nil, nil
		}
		if differs(old, &c, r.GPUs, records) {
			moved = true
			if err := place(&c, n, r.GPUs); err != nil {
				return nil, err
			}
		}
		a.Containers = append(a.Containers, c)
	}
	if moved {
		nodes := numaNodes(a.Containers)
		if !slices.Equal(nodes, a.NUMANodes) {
			a.CPUSet = "" // the CPUs are no longer close to the GPUs
		}
		a.NUMANodes = nodes
	}
	cpus, known, err := confined(old, records)
	if err != nil {
		return nil, err
	}
	if known {
		a.CPUSet = cpus.String()
	}
	if a.Equal(old) && old.Enforced {
		return nil, nil
	}
	return a, nil
}

func recordOf(records []v1alpha1.Allocation, c *allocation.Container) *v1alpha1.Allocation {
	i := slices.IndexFunc(records, func(r v1alpha1.Allocation) bool { return r.Container == c.Name && r.Resource == c.Resource })
	if i < 0 {
		return nil
	}
	return &records[i]
}

// differs reports whether a container has other GPUs than chosen. An init container may
// have any of the pod's own GPUs, because kubelet passes these on in random order. That
// holds only while they are still the pod's own, and not if its other containers got
// other GPUs.
func differs(a *allocation.Allocation, c *allocation.Container, gpus []string, records []v1alpha1.Allocation) bool {
	if len(gpus) != len(c.GPUs) {
		return true
	}
	if !c.Init {
		return !within(gpus, c.GPUs)
	}
	var now []string
	for i := range a.Containers {
		if r := recordOf(records, &a.Containers[i]); r != nil && r.Resource == c.Resource {
			now = append(now, r.GPUs...)
		}
	}
	return !within(gpus, a.GPUs(c.Resource)) || !within(c.GPUs, now)
}

func within(gpus, of []string) bool {
	return !slices.ContainsFunc(gpus, func(id string) bool { return !slices.Contains(of, id) })
}

// place gives a container the GPUs, in ring order and with their NUMA nodes.
func place(c *allocation.Container, n *usage.Node, gpus []string) error {
	accel := n.Accel(c.Resource)
	if accel == nil {
		return fmt.Errorf("node %s has no %s in its topology", n.Name, c.Resource)
	}
	set, missing := accel.Graph.Positions(gpus)
	if len(missing) > 0 {
		return fmt.Errorf("node %s has no GPU %s in its topology", n.Name, missing[0])
	}
	c.GPUs = nil
	for _, p := range accel.Tables.RingOrder(set) {
		c.GPUs = append(c.GPUs, accel.Graph.GPUs[p].UUID)
	}
	c.NUMANodes = slices.DeleteFunc(accel.Graph.NUMAOf(set), func(id int) bool { return id == nvtopo.UnknownNUMA })
	return nil
}

func numaNodes(containers []allocation.Container) []int {
	var all []int
	for i := range containers {
		all = append(all, containers[i].NUMANodes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// confined returns the CPUs of all containers that are not init containers. known reports whether all of
// these have CPUs: the CPUs of only some would be less than the pod has.
func confined(a *allocation.Allocation, records []v1alpha1.Allocation) (all nvtopo.CPUSet, known bool, err error) {
	for i := range a.Containers {
		c := &a.Containers[i]
		if c.Init {
			continue
		}
		r := recordOf(records, c)
		if r == nil || r.CPUs == "" {
			return nil, false, nil
		}
		cpus, err := nvtopo.ParseCPUList(r.CPUs)
		if err != nil {
			return nil, false, fmt.Errorf("status.allocations: cpus of container %s: %w", c.Name, err)
		}
		all, known = all.Union(cpus), true
	}
	return all, known, nil
}

// unmet returns the pod's own demand that its GPUs do not meet, or "". The demands of a profile on all
// its pods are not the pod's own.
func unmet(pod *v1.Pod, a *allocation.Allocation, n *usage.Node) string {
	opt := podrequest.Options{Supported: podrequest.AllPolicies(), DefaultPolicy: nvtopo.PolicyBestEffort}
	for i := range a.Containers {
		if r := a.Containers[i].Resource; !slices.Contains(opt.Resources, r) {
			opt.Resources = append(opt.Resources, r)
		}
	}
	r, err := podrequest.Parse(pod, &opt)
	if err != nil {
		return "" // its annotations were changed later; nothing can be said
	}
	for _, name := range opt.Resources {
		accel := n.Accel(name)
		if accel == nil {
			continue
		}
		set, _ := accel.Graph.Positions(a.GPUs(name))
		if what := r.Unmet(accel.Tables, set); what != "" {
			return what
		}
	}
	if r.Constraint.Policy == nvtopo.PolicySingleNUMANode && len(a.NUMANodes) > 1 {
		return nvtopo.ShortNUMA.String()
	}
	return ""
}
