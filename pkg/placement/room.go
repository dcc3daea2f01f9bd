// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Amounts are the quantities that the scheduler adds up for pods and nodes: thousandths of a CPU, bytes,
// and numbers of everything else.
type Amounts interface {
	GetMilliCPU() int64
	GetMemory() int64
	GetEphemeralStorage() int64
	GetScalarResources() map[v1.ResourceName]int64
}

// Room is the free amount of everything that the scheduler adds up on a node.
type Room struct {
	milliCPU, memory, storage, pods int64
	scalars                         map[v1.ResourceName]int64 // of the empty node; not to be changed
	taken                           []taken
}

// taken is an amount of the scalars that pods use.
type taken struct {
	scalars map[v1.ResourceName]int64
	times   int64
}

// NewRoom returns the room of an empty node that takes this number of pods.
func NewRoom(allocatable Amounts, pods int64) Room {
	return Room{
		milliCPU: allocatable.GetMilliCPU(), memory: allocatable.GetMemory(), storage: allocatable.GetEphemeralStorage(),
		pods: pods, scalars: allocatable.GetScalarResources(),
	}
}

// TakeAll subtracts the total requests of a number of pods.
func (r *Room) TakeAll(requested Amounts, pods int) {
	r.milliCPU -= requested.GetMilliCPU()
	r.memory -= requested.GetMemory()
	r.storage -= requested.GetEphemeralStorage()
	r.pods -= int64(pods)
	r.taken = append(r.taken, taken{requested.GetScalarResources(), 1})
}

// Take subtracts the request of a pod, times over.
func (r *Room) Take(p *podrequest.Request, times int64) {
	r.milliCPU -= times * p.MilliCPU
	r.memory -= times * p.Memory
	r.storage -= times * p.EphemeralStorage
	r.pods -= times
	r.taken = append(r.taken, taken{p.Scalars, times})
}

// Holds returns how many pods with this request there is room for.
func (r *Room) Holds(p *podrequest.Request) int {
	n := r.pods
	limit := func(left, each int64) {
		if each > 0 {
			n = min(n, left/each)
		}
	}
	limit(r.milliCPU, p.MilliCPU)
	limit(r.memory, p.Memory)
	limit(r.storage, p.EphemeralStorage)
	for name, each := range p.Scalars {
		limit(r.left(name), each)
	}
	return int(min(max(0, n), math.MaxInt32))
}

// Shortage is a resource of which a node has less left than a pod requests. CPU is in thousandths.
type Shortage struct {
	Resource   v1.ResourceName
	Left, Asks int64
}

// Lacks returns the resources that one pod with this request lacks, sorted by name; none exactly if Holds
// is at least 1.
func (r *Room) Lacks(p *podrequest.Request) (out []Shortage) {
	check := func(name v1.ResourceName, left, asks int64) {
		if asks > 0 && left < asks {
			out = append(out, Shortage{name, left, asks})
		}
	}
	check(v1.ResourceCPU, r.milliCPU, p.MilliCPU)
	check(v1.ResourceEphemeralStorage, r.storage, p.EphemeralStorage)
	check(v1.ResourceMemory, r.memory, p.Memory)
	check(v1.ResourcePods, r.pods, 1)
	for name, asks := range p.Scalars {
		check(name, r.left(name), asks)
	}
	slices.SortFunc(out, func(a, b Shortage) int { return cmp.Compare(a.Resource, b.Resource) })
	return out
}

// left returns the free amount of a scalar.
func (r *Room) left(name v1.ResourceName) int64 {
	left := r.scalars[name]
	for _, t := range r.taken {
		left -= t.times * t.scalars[name]
	}
	return left
}
