// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const allocationField = "metadata.annotations[" + allocation.Key + "]"

// requests returns the pod's effective request for each resource, without zeros. It is
// the larger of two sums: sidecars and app containers together, or one init container
// with the sidecars that started before it.
func requests(p *v1.Pod, resources []string) map[string]int {
	out := map[string]int{}
	for _, r := range resources {
		running, most := 0, 0
		for i := range p.Spec.InitContainers {
			if c := &p.Spec.InitContainers[i]; isSidecar(c) {
				running += asks(c, r)
			} else {
				most = max(most, running+asks(c, r))
			}
		}
		for i := range p.Spec.Containers {
			running += asks(&p.Spec.Containers[i], r)
		}
		if n := max(most, running); n > 0 {
			out[r] = n
		}
	}
	return out
}

// asks is how many devices a container asks for. A limit without a request counts as a
// request, even if no API server has filled it in.
func asks(c *v1.Container, r string) int {
	q, ok := c.Resources.Requests[v1.ResourceName(r)]
	if !ok {
		q = c.Resources.Limits[v1.ResourceName(r)]
	}
	return int(q.Value())
}

func isSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// options are the options to read the pod's demands with.
func (p *pod) options() *podrequest.Options {
	opt := &podrequest.Options{
		Resources: slices.Sorted(maps.Keys(p.asks)), Supported: podrequest.AllPolicies(), DefaultPolicy: nvtopo.PolicyBestEffort,
	}
	if policy, err := nvtopo.ParsePolicy(p.profile.DefaultPolicy); err == nil {
		opt.DefaultPolicy = policy
	}
	return opt
}

func counts(asks map[string]int) string {
	var parts []string
	for _, r := range slices.Sorted(maps.Keys(asks)) {
		parts = append(parts, fmt.Sprintf("%d %s", asks[r], r))
	}
	return strings.Join(parts, " and ")
}

// checkPod checks one pod's allocation by itself.
func (s *scene) checkPod(p *pod) {
	s.checkContainers(p)
	s.checkOutputs(p)
	n := p.node
	if n.accels == nil {
		if len(p.alloc.Containers) > 0 {
			s.note(Violation{
				Invariant: Unverified, Objects: []Object{podObject(p.Pod), {Kind: "Node", Name: n.name}}, Field: allocationField,
				Message: "the node has no graph to compare its allocation with",
			})
		}
		return
	}
	s.Checked.Allocations++
	if s.checkGPUs(p) {
		s.checkDemands(p)
	}
	s.checkRecord(p)
}

// slot is one container's share of one resource.
type slot struct{ container, resource string }

// share is what one container asks for.
type share struct {
	slot
	gpus int
	init bool
}

// shares lists the pod's containers with GPUs in the order in which they start.
func shares(p *pod) []share {
	var out []share
	add := func(c *v1.Container, init bool) {
		for _, r := range slices.Sorted(maps.Keys(p.asks)) {
			if n := asks(c, r); n > 0 {
				out = append(out, share{slot{c.Name, r}, n, init})
			}
		}
	}
	for i := range p.Spec.InitContainers {
		add(&p.Spec.InitContainers[i], !isSidecar(&p.Spec.InitContainers[i]))
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i], false)
	}
	return out
}

// checkContainers compares the allocation with what the containers ask for. Each must
// have its number of GPUs, containers that run at the same time must have different
// ones, and the pod must not hold more than its effective request.
func (s *scene) checkContainers(p *pod) {
	incomplete := func(field, format string, args ...any) {
		s.violate(Violation{
			Invariant: IncompleteAllocation, Objects: []Object{podObject(p.Pod)}, Field: allocationField + field, Message: fmt.Sprintf(format, args...),
		})
	}
	given := map[slot]*allocation.Container{}
	for i := range p.alloc.Containers {
		c := &p.alloc.Containers[i]
		k := slot{c.Name, c.Resource}
		if given[k] != nil {
			incomplete(fmt.Sprintf(".containers[%d]", i), "container %s has a second share of %s", c.Name, c.Resource)
		}
		given[k] = c
	}
	running := map[string]map[string]string{} // resource -> UUID -> container that holds it until the pod ends
	all := map[string]map[string]bool{}
	for _, want := range shares(p) {
		c := given[want.slot]
		if c == nil {
			incomplete(".containers", "container %s asks for %d %s and has none", want.container, want.gpus, want.resource)
			continue
		}
		delete(given, want.slot)
		field := fmt.Sprintf(".containers[%s]", c.Name)
		if len(c.GPUs) != want.gpus {
			incomplete(field+".gpus", "container %s asks for %d %s and has %d", want.container, want.gpus, want.resource, len(c.GPUs))
		}
		if c.Init != want.init {
			incomplete(field+".init", "container %s: init is %t", want.container, c.Init)
		}
		if running[want.resource] == nil {
			running[want.resource], all[want.resource] = map[string]string{}, map[string]bool{}
		}
		for _, id := range c.GPUs {
			if other, ok := running[want.resource][id]; ok {
				incomplete(field+".gpus", "containers %s and %s run at the same time and both have %s", other, want.container, id)
			}
			if !want.init {
				running[want.resource][id] = want.container
			}
			all[want.resource][id] = true
		}
	}
	for k := range given {
		incomplete(".containers", "container %s has %s that it does not ask for", k.container, k.resource)
	}
	for r, want := range p.asks {
		if got := len(all[r]); got > want {
			incomplete(".containers", "the pod needs %d %s at once and holds %d", want, r, got)
		}
	}
}

// checkOutputs compares the plain annotations that containers read with the
// allocation.
func (s *scene) checkOutputs(p *pod) {
	byContainer := map[string][]string{}
	for _, c := range p.alloc.Containers {
		byContainer[c.Name] = append(byContainer[c.Name], c.GPUs...)
	}
	wrong := func(key, want string) {
		if got, ok := p.Annotations[key]; ok && got != want {
			s.violate(Violation{
				Invariant: InconsistentOutputs, Objects: []Object{podObject(p.Pod)}, Field: "metadata.annotations[" + key + "]",
				Message: fmt.Sprintf("it is %q, and the allocation says %q", got, want),
			})
		}
	}
	for name, ids := range byContainer {
		wrong(allocation.GPUIDsKey+"."+name, strings.Join(ids, ","))
		if len(byContainer) == 1 && len(p.alloc.Containers) == 1 {
			wrong(allocation.GPUIDsKey, strings.Join(ids, ","))
			wrong(allocation.GPUIDsAlias, strings.Join(ids, ","))
		}
	}
}

// checkGPUs compares the allocation with the node's graph, and reports whether all of
// its GPUs are in the graph.
func (s *scene) checkGPUs(p *pod) bool {
	complete := true
	several := false // an init container may have the same GPU as a later container
	for i := range p.alloc.Containers {
		several = several || slices.ContainsFunc(p.alloc.Containers[i].GPUs, func(id string) bool { return id != p.alloc.Containers[0].GPUs[0] })
	}
	for i := range p.alloc.Containers {
		c := &p.alloc.Containers[i]
		objects := []Object{podObject(p.Pod), {Kind: "Node", Name: p.node.name}}
		field := fmt.Sprintf("%s.containers[%s].gpus", allocationField, c.Name)
		accel := p.node.accels[c.Resource]
		var found nvtopo.Mask
		missing := c.GPUs
		if accel != nil {
			found, missing = accel.graph.Positions(c.GPUs)
		}
		if len(missing) > 0 {
			complete = false
			s.either(Violation{
				Invariant: UnknownGPU, Objects: objects, Field: field,
				Message: fmt.Sprintf("the node's graph of %s has no %s", c.Resource, strings.Join(missing, ", ")),
			}, s.changedSince(p, p.node.changed, "the graph"), GPUGone, "; ")
		}
		if accel == nil {
			continue
		}
		bad := found &^ accel.healthy
		if several {
			bad |= found & accel.degraded
		}
		for at := range bad.All() {
			v := Violation{
				Invariant: UnhealthyGPU, Objects: objects, Field: field, Message: accel.graph.GPUs[at].UUID + " is not healthy",
			}
			if accel.healthy.Has(at) {
				v.Message = accel.graph.GPUs[at].UUID + " is degraded, and not the pod's only GPU"
			}
			explained := s.changedSince(p, p.node.health, "its health")
			if p.node.health.IsZero() {
				explained = "it is not known since when"
			}
			s.either(v, explained, GPUFailed, "; ")
		}
	}
	return complete
}

// checkDemands checks the pod's GPUs against its policy, min-link, min-bandwidth,
// models and memory.
func (s *scene) checkDemands(p *pod) {
	if len(p.asks) == 0 {
		return
	}
	objects := []Object{podObject(p.Pod), {Kind: "Node", Name: p.node.name}}
	r, err := podrequest.Parse(p.Pod, p.options())
	if err != nil {
		s.note(Violation{Invariant: Unverified, Objects: objects[:1], Field: "metadata.annotations", Message: "its demands cannot be read: " + err.Error()})
		return
	}
	var numa []int
	for _, res := range slices.Sorted(maps.Keys(p.asks)) {
		accel := p.node.accels[res]
		if accel == nil {
			continue
		}
		set, _ := accel.graph.Positions(p.alloc.GPUs(res))
		numa = append(numa, accel.graph.NUMAOf(set)...)
		if what := r.Unmet(accel.tables, set); what != "" {
			s.unmet(p, objects, fmt.Sprintf("%s %s do not meet its demand on %s", res, strings.Join(p.alloc.GPUs(res), ", "), what))
		}
	}
	slices.Sort(numa)
	if numa = slices.Compact(numa); r.Constraint.Policy == nvtopo.PolicySingleNUMANode && len(p.asks) > 1 && len(numa) > 1 {
		s.unmet(p, objects, fmt.Sprintf("its devices lie in NUMA nodes %v, and its policy allows one", numa))
	}
}

func (s *scene) unmet(p *pod, objects []Object, message string) {
	explained := s.changedSince(p, p.node.changed, "the graph")
	if explained == "" {
		explained = inputsChanged(p.Pod, p.alloc.Assumed)
	}
	s.either(Violation{Invariant: DemandUnmet, Objects: objects, Field: allocationField, Message: message}, explained, DegradedSince, "; ")
}
