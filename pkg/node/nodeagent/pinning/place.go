// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// replicaMark separates a GPU's UUID from the number of its replica.
const replicaMark = "::"

// question holds all inputs to the choice of a container's CPUs and memory nodes.
type question struct {
	spec       *v1alpha1.NodeGPUTopologySpec
	held       []kubelet.Record       // the records of this container
	container  string                 // its name
	allocation *allocation.Allocation // nil if the pod has none
	reserved   nvtopo.CPUSet          // CPUs that are not for pods
	online     nvtopo.CPUSet
	memory     nvtopo.CPUSet // NUMA nodes that have memory
	wantCPUs   int           // CPUs that the container requests, rounded up
	limit      int64         // memory limit in bytes, 0 if none
}

// place is the confinement of a container. Empty CPUs or mems stay unchanged.
type place struct {
	cpus, mems nvtopo.CPUSet
	noMems     string // reason why mems stay unchanged
}

// errNoGPUs means that the container holds none of the GPUs in the graph.
var errNoGPUs = errors.New("holds no GPU of the graph")

// where returns the place of the container. On an error the container is left alone.
func (q *question) where() (place, error) {
	nodes, err := q.numaNodes()
	if err != nil {
		return place{}, err
	}
	var near nvtopo.CPUSet
	for i := range q.spec.NUMANodes {
		n := &q.spec.NUMANodes[i]
		if !nodes.Has(int(n.ID)) {
			continue
		}
		cpus, err := nvtopo.ParseCPUList(n.CPUs)
		if err != nil {
			return place{}, fmt.Errorf("CPUs of NUMA node %d: %w", n.ID, err)
		}
		near = near.Union(cpus)
	}
	near = intersect(near, q.online)
	p := place{cpus: intersect(near, q.chosen())}
	if len(p.cpus) == 0 || len(p.cpus) < q.wantCPUs {
		p.cpus = near.Minus(q.reserved)
	}
	if len(p.cpus) == 0 || len(p.cpus) < q.wantCPUs {
		return place{}, fmt.Errorf("it requests %d CPUs and NUMA nodes %s have %q for pods (online %q, reserved %q)",
			q.wantCPUs, nodes, p.cpus, near, q.reserved)
	}
	p.mems = intersect(nodes, q.memory)
	if p.noMems = q.noMems(nodes, p.mems); p.noMems != "" {
		p.mems = nil
	}
	return p, nil
}

// noMems returns the reason why memory must stay unconfined, or "". A container whose limit exceeds the
// memory of its NUMA nodes would be killed below its limit.
func (q *question) noMems(nodes, mems nvtopo.CPUSet) string {
	if len(mems) == 0 {
		return fmt.Sprintf("none of NUMA nodes %s has memory on this machine, only %s has", nodes, q.memory)
	}
	var there int64
	for i := range q.spec.NUMANodes {
		n := &q.spec.NUMANodes[i]
		switch {
		case !mems.Has(int(n.ID)):
		case n.Memory == nil:
			return ""
		default:
			there += n.Memory.Value()
		}
	}
	if q.limit > there {
		return fmt.Sprintf("its limit is %d bytes, NUMA nodes %s have %d", q.limit, mems, there)
	}
	return ""
}

// numaNodes returns the NUMA nodes of the container's GPUs, or an error if one is unknown: confining a
// container to the nodes of half its GPUs would be worse than not confining it.
func (q *question) numaNodes() (nvtopo.CPUSet, error) {
	var nodes []int
	for _, r := range q.held {
		if !q.counts(r.Resource) {
			continue
		}
		for _, id := range r.IDs {
			gpu, _, _ := strings.Cut(id, replicaMark)
			i := slices.IndexFunc(q.spec.GPUs, func(g v1alpha1.GPU) bool { return g.ID == gpu })
			switch {
			case i < 0:
				return nil, fmt.Errorf("%s %s is not in the node's graph", r.Resource, id)
			case q.spec.GPUs[i].NUMANode < 0:
				return nil, fmt.Errorf("NUMA node of %s is not known", gpu)
			}
			nodes = append(nodes, int(q.spec.GPUs[i].NUMANode))
		}
	}
	if len(nodes) == 0 {
		return nil, errNoGPUs
	}
	return nvtopo.NewCPUSet(nodes...), nil
}

// counts reports whether GPUs of the graph belong to the resource.
func (q *question) counts(resource string) bool {
	return slices.ContainsFunc(q.spec.GPUs, func(g v1alpha1.GPU) bool { return resourceOf(&g) == resource })
}

// chosen returns the annotated CPUs if the container has exactly the GPUs that the scheduler chose for
// it. With other GPUs the annotated CPUs have no meaning.
func (q *question) chosen() nvtopo.CPUSet {
	if q.allocation == nil {
		return nil
	}
	for _, r := range q.held {
		if !q.counts(r.Resource) {
			continue
		}
		i := slices.IndexFunc(q.allocation.Containers, func(c allocation.Container) bool {
			return c.Name == q.container && c.Resource == r.Resource
		})
		if i < 0 || !slices.Equal(slices.Sorted(slices.Values(q.allocation.Containers[i].GPUs)), slices.Sorted(slices.Values(r.IDs))) {
			return nil
		}
	}
	cpus, err := nvtopo.ParseCPUList(q.allocation.CPUSet)
	if err != nil {
		return nil // allocation.Parse rejects such an annotation
	}
	return cpus
}

func resourceOf(g *v1alpha1.GPU) string {
	if g.Resource == "" {
		return v1alpha1.DefaultResource
	}
	return g.Resource
}

func intersect(a, b nvtopo.CPUSet) nvtopo.CPUSet { return a.Minus(a.Minus(b)) }
