// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// observation is the scheduler's result for a bound pod.
type observation struct {
	request    request
	node       string
	allocation *allocation.Allocation
	notes      map[string]string // its annotations
}

// observe reads the observation from a bound pod.
func observe(r request, pod *v1.Pod) (*observation, error) {
	text, ok := pod.Annotations[allocation.Key]
	if !ok {
		return nil, errors.New("it is bound without an allocation")
	}
	a, err := allocation.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("read its allocation: %w", err)
	}
	if !a.Is(pod.UID, pod.Spec.NodeName) {
		return nil, fmt.Errorf("its allocation is for node %s and UID %s, it is on %s and has %s", a.Node, a.PodUID, pod.Spec.NodeName, pod.UID)
	}
	return &observation{request: r, node: pod.Spec.NodeName, allocation: a, notes: pod.Annotations}, nil
}

// placement converts the observation for the check.
func (o *observation) placement(g *nvtopo.Graph) (placement, error) {
	set, missing := g.Positions(o.allocation.GPUs(string(gpuResource)))
	if len(missing) > 0 {
		return placement{}, fmt.Errorf("node %s has no GPU %s", o.node, missing[0])
	}
	given := 0
	for _, c := range o.allocation.Containers {
		given += len(c.GPUs)
	}
	if given != set.Len() {
		return placement{}, errors.New("a GPU is in two of its containers")
	}
	c, err := o.request.constraint()
	if err != nil {
		return placement{}, err
	}
	return placement{
		pod: o.request.name, node: o.node, set: set, count: o.request.total(),
		constraint: c, allowed: o.request.allowed, assumed: o.allocation.Assumed,
	}, nil
}

// fill copies the scheduler's annotations into the result.
func (o *observation) fill(res *Result, g *nvtopo.Graph, p *placement) {
	res.Node, res.UUIDs = o.node, o.allocation.GPUs(string(gpuResource))
	res.GPUs = indices(g, p.set)
	res.LinkClass = o.notes[allocation.LinkClassKey]
	res.NUMANodes = append([]int{}, o.allocation.NUMANodes...)
	res.CPUs = o.allocation.CPUSet
	// The text is checked, not only shown: see disagreement.
	res.RingBandwidthGBps, _ = strconv.ParseFloat(o.notes[allocation.RingBandwidthKey], 64)
}

// disagreement compares the flat annotations with the allocation and with a
// brute force over the node's graph; it returns the first difference.
func (o *observation) disagreement(g *nvtopo.Graph, p *placement) string {
	ring := ""
	if p.set.Len() > 1 {
		_, kBps := oracle.Ring(g, p.set)
		ring = strconv.FormatFloat(nvtopo.GBps(kBps), 'f', -1, 64)
		if problem := o.weakestLink(g, p.set, kBps); problem != "" {
			return problem
		}
	}
	type note struct{ key, value string }
	want := []note{
		{allocation.GPUIndicesKey, joinText(indices(g, p.set))},
		{allocation.NUMANodeKey, joinText(g.NUMAOf(p.set))},
		{allocation.RingBandwidthKey, ring},
		{allocation.CPUSetKey, o.allocation.CPUSet},
	}
	if len(o.request.gpus) == 1 {
		ids := strings.Join(o.allocation.GPUs(string(gpuResource)), ",")
		want = append(want, note{allocation.GPUIDsKey, ids}, note{allocation.GPUIDsAlias, ids})
	}
	for _, w := range want {
		if got := o.notes[w.key]; got != w.value {
			return fmt.Sprintf("annotation %s is %q, want %q", w.key, got, w.value)
		}
	}
	return ""
}

// weakestLink checks that the ring of a pod with one container is as fast as any over its GPUs, and that
// the annotated class is that of a weakest link. Of several containers' pods the ring over all GPUs is
// not annotated.
func (o *observation) weakestLink(g *nvtopo.Graph, set nvtopo.Mask, kBps int64) string {
	class := o.notes[allocation.LinkClassKey]
	if len(o.request.gpus) > 1 {
		for i := range set.All() {
			for j := range set.All() {
				if l := g.Link(i, j); i < j && l.Bandwidth == kBps && l.Class.String() == class {
					return ""
				}
			}
		}
		return fmt.Sprintf("no link of its GPUs is both of class %q and as fast as its ring", class)
	}
	ids := o.allocation.GPUs(string(gpuResource))
	order := make([]int, len(ids))
	for i, id := range ids {
		order[i] = slices.IndexFunc(g.GPUs, func(d nvtopo.GPU) bool { return d.UUID == id })
	}
	if weakest := oracle.Bottleneck(g, order); weakest.Bandwidth != kBps {
		return fmt.Sprintf("its ring %v has %g GB/s, the best over the same GPUs %g", order, nvtopo.GBps(weakest.Bandwidth), nvtopo.GBps(kBps))
	}
	for i := range order {
		if l := g.Link(order[i], order[(i+1)%len(order)]); l.Bandwidth == kBps && l.Class.String() == class {
			return ""
		}
	}
	return fmt.Sprintf("annotation %s is %q, which is not the class of a weakest link of its ring", allocation.LinkClassKey, class)
}

func joinText(v []int) string {
	if len(v) == 0 {
		return ""
	}
	return join(v)
}

// indices returns the vendor's numbers of a set of positions.
func indices(g *nvtopo.Graph, set nvtopo.Mask) []int {
	out := make([]int, 0, set.Len())
	for i := range set.All() {
		out = append(out, g.GPUs[i].Index)
	}
	slices.Sort(out)
	return out
}
