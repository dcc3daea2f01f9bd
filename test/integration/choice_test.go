// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// choice is the content of a pod's annotations.
type choice struct {
	*allocation.Allocation
	set        nvtopo.Mask            // GPUs of all containers
	containers map[string]nvtopo.Mask // container name -> GPUs
	cpus       nvtopo.CPUSet
}

// choiceOf reads a pod's choice and fails the test unless every annotation follows from the choice and
// the node's graph.
func choiceOf(tb testing.TB, pod *v1.Pod, g *nvtopo.Graph) *choice {
	tb.Helper()
	c, err := readChoice(pod, oracle.New(g), g)
	if err != nil {
		tb.Fatalf("pod %s: %v", pod.Name, err)
	}
	return c
}

// readChoice reads a pod's choice and checks that it is one of the node's GPUs, as many as each container
// requests, each container's in the order of the best ring, disjoint for containers that run at the same
// time; and that the flat annotations are exactly those that follow from it.
func readChoice(pod *v1.Pod, o *oracle.Oracle, g *nvtopo.Graph) (*choice, error) {
	a, err := allocation.Parse(pod.Annotations[allocation.Key])
	if err != nil {
		return nil, err
	}
	if !a.Is(pod.UID, pod.Spec.NodeName) {
		return nil, fmt.Errorf("the choice is of node %q and pod UID %q, the pod is %q on node %q", a.Node, a.PodUID, pod.UID, pod.Spec.NodeName)
	}
	c := &choice{Allocation: a, containers: map[string]nvtopo.Mask{}}
	if c.cpus, err = nvtopo.ParseCPUList(a.CPUSet); err != nil {
		return nil, err
	}
	for _, part := range a.Containers {
		set, err := readPart(&part, o, g)
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", part.Name, err)
		}
		c.set |= set
		c.containers[part.Name] = set
	}
	if err := c.checkContainers(pod); err != nil {
		return nil, err
	}
	got := notes{}
	for k, v := range pod.Annotations {
		if allocation.IsOutputKey(k) && k != allocation.DecisionKey { // the reason does not follow from the choice alone
			got[k] = v
		}
	}
	if d := cmp.Diff(c.annotations(pod.Annotations[allocation.Key], o, g), got); d != "" {
		return nil, fmt.Errorf("the annotations differ from what the choice implies (-implied +found):\n%s", d)
	}
	return c, nil
}

func readPart(part *allocation.Container, o *oracle.Oracle, g *nvtopo.Graph) (nvtopo.Mask, error) {
	order := make([]int, len(part.GPUs))
	var set nvtopo.Mask
	for i, id := range part.GPUs {
		if order[i] = slices.IndexFunc(g.GPUs, func(d nvtopo.GPU) bool { return d.UUID == id }); order[i] < 0 {
			return 0, fmt.Errorf("the node has no GPU %s", id)
		}
		set |= nvtopo.MaskOf(order[i])
	}
	if set.Len() != len(order) {
		return 0, fmt.Errorf("GPUs %v repeat", order)
	}
	if _, best := o.Ring(set); len(order) > 1 && oracle.Bottleneck(g, order).Bandwidth != best {
		return 0, fmt.Errorf("ring %v has %d kB/s, the best over the same GPUs %d", order, oracle.Bottleneck(g, order).Bandwidth, best)
	}
	if d := cmp.Diff(g.NUMAOf(set), part.NUMANodes); d != "" {
		return 0, fmt.Errorf("NUMA nodes of its GPUs differ (-graph +found):\n%s", d)
	}
	return set, nil
}

// checkContainers compares the choice with the requests of the pod's containers.
func (c *choice) checkContainers(pod *v1.Pod) error {
	var running, sidecars nvtopo.Mask
	asked := 0
	check := func(ctr *v1.Container, initial, stays bool) error {
		want := gpusIn(ctr.Resources.Requests)
		set := c.containers[ctr.Name]
		if set.Len() != want {
			return fmt.Errorf("container %s has %d GPUs, asks for %d", ctr.Name, set.Len(), want)
		}
		if want == 0 {
			return nil
		}
		asked++
		i := slices.IndexFunc(c.Containers, func(part allocation.Container) bool { return part.Name == ctr.Name })
		if c.Containers[i].Init != (initial && !stays) {
			return fmt.Errorf("container %s is marked init %t", ctr.Name, c.Containers[i].Init)
		}
		other := sidecars
		if !initial {
			other = running | sidecars
		}
		if set&other != 0 {
			return fmt.Errorf("container %s shares GPUs %v with another that runs at the same time", ctr.Name, (set & other).Positions())
		}
		switch {
		case !initial:
			running |= set
		case stays:
			sidecars |= set
		}
		return nil
	}
	for i := range pod.Spec.InitContainers {
		ctr := &pod.Spec.InitContainers[i]
		if err := check(ctr, true, ctr.RestartPolicy != nil && *ctr.RestartPolicy == v1.ContainerRestartPolicyAlways); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		if err := check(&pod.Spec.Containers[i], false, true); err != nil {
			return err
		}
	}
	if asked != len(c.Containers) {
		return fmt.Errorf("%d containers have GPUs, %d ask for some", len(c.Containers), asked)
	}
	total := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if want := gpusIn(total); c.set.Len() != want {
		return fmt.Errorf("the pod has GPUs %v, needs %d at once", c.set.Positions(), want)
	}
	if want := int(total.Cpu().Value()); len(c.cpus) != 0 && len(c.cpus) != want { // Value rounds up
		return fmt.Errorf("cpuset %s has %d CPUs, the pod asks for %d", c.CPUSet, len(c.cpus), want)
	}
	return nil
}

// gpusIn counts the GPUs of all vendors in a list of resources.
func gpusIn(list v1.ResourceList) int {
	n := 0
	for _, res := range vendorResources() {
		n += int(list.Name(v1.ResourceName(res), "").Value())
	}
	return n
}

// annotations returns the output annotations that the choice implies.
func (c *choice) annotations(text string, o *oracle.Oracle, g *nvtopo.Graph) notes {
	want := notes{allocation.Key: text}
	numa := c.NUMANodes
	if c.set != 0 {
		numa = g.NUMAOf(c.set)
		indices := make([]int, 0, c.set.Len())
		for i := range c.set.All() {
			indices = append(indices, g.GPUs[i].Index)
		}
		want[allocation.GPUIndicesKey] = joined(indices)
	}
	if len(numa) > 0 {
		want[allocation.NUMANodeKey], want[allocation.NUMANodeAlias] = joined(numa), joined(numa)
	}
	if c.CPUSet != "" {
		want[allocation.CPUSetKey] = c.cpus.String()
	}
	for _, part := range c.Containers {
		ids := strings.Join(part.GPUs, ",")
		want[allocation.GPUIDsKey+"."+part.Name] = ids
		if len(c.Containers) == 1 {
			want[allocation.GPUIDsKey], want[allocation.GPUIDsAlias] = ids, ids
		}
	}
	if c.set.Len() > 1 {
		order, kBps := o.Ring(c.set)
		want[allocation.LinkClassKey] = oracle.Bottleneck(g, order).Class.String()
		want[allocation.RingBandwidthKey] = strconv.FormatFloat(float64(kBps)/1e6, 'f', -1, 64)
	}
	return want
}

func joined(v []int) string {
	s := make([]string, len(v))
	for i, x := range v {
		s[i] = strconv.Itoa(x)
	}
	return strings.Join(s, ",")
}
