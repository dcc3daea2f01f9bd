// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// Amounts are what the scheduler counts of pods and nodes: thousandths of a CPU, bytes, and
// numbers of everything else.
type Amounts interface {
	GetMilliCPU() int64
	GetMemory() int64
	GetEphemeralStorage() int64
	GetScalarResources() map[v1.ResourceName]int64
}

// Room is what a node has left of all that the scheduler counts.
type Room struct {
	milliCPU, memory, storage, pods int64
	scalars                         map[v1.ResourceName]int64 // of the empty node; not to be changed
	taken                           []taken
}

// taken is what somebody has of the scalars.
type taken struct {
	scalars map[v1.ResourceName]int64
	times   int64
}

// NewRoom is the room of an empty node, which takes so many pods.
func NewRoom(allocatable Amounts, pods int64) Room {
	return Room{
		milliCPU: allocatable.GetMilliCPU(), memory: allocatable.GetMemory(), storage: allocatable.GetEphemeralStorage(),
		pods: pods, scalars: allocatable.GetScalarResources(),
	}
}

// TakeAll takes what so many pods have in all.
func (r *Room) TakeAll(requested Amounts, pods int) {
	r.milliCPU -= requested.GetMilliCPU()
	r.memory -= requested.GetMemory()
	r.storage -= requested.GetEphemeralStorage()
	r.pods -= int64(pods)
	r.taken = append(r.taken, taken{requested.GetScalarResources(), 1})
}

// Take takes what a pod asks for, so many times.
func (r *Room) Take(p *podrequest.Request, times int64) {
	r.milliCPU -= times * p.MilliCPU
	r.memory -= times * p.Memory
	r.storage -= times * p.EphemeralStorage
	r.pods -= times
	r.taken = append(r.taken, taken{p.Scalars, times})
}

// Holds is how many pods that ask for this there is room for.
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

// Shortage is a resource of which a node has less than a pod asks for. CPU is in thousandths.
type Shortage struct {
	Resource   v1.ResourceName
	Left, Asks int64
}

// Lacks are the resources that keep one pod that asks for this out, by name; none exactly if
// Holds is at least 1.
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

// left is what is left of a scalar.
func (r *Room) left(name v1.ResourceName) int64 {
	left := r.scalars[name]
	for _, t := range r.taken {
		left -= t.times * t.scalars[name]
	}
	return left
}
