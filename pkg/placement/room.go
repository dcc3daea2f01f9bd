// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/podrequest"
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
		left := r.scalars[name]
		for _, t := range r.taken {
			left -= t.times * t.scalars[name]
		}
		limit(left, each)
	}
	return int(min(max(0, n), math.MaxInt32))
}
