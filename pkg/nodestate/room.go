// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"math"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/podrequest"
)

// room is what a node has left of all that the framework counts.
type room struct {
	milliCPU, memory, storage, pods int64
	scalars                         map[v1.ResourceName]int64 // of the empty node; not to be changed
	taken                           []taken
}

// taken is what somebody has of the scalars.
type taken struct {
	scalars map[v1.ResourceName]int64
	times   int64
}

func roomOf(allocatable fwk.Resource) room {
	return room{
		milliCPU: allocatable.GetMilliCPU(), memory: allocatable.GetMemory(), storage: allocatable.GetEphemeralStorage(),
		pods: int64(allocatable.GetAllowedPodNumber()), scalars: allocatable.GetScalarResources(),
	}
}

// takeAll takes what so many pods have in all.
func (r *room) takeAll(requested fwk.Resource, pods int) {
	r.milliCPU -= requested.GetMilliCPU()
	r.memory -= requested.GetMemory()
	r.storage -= requested.GetEphemeralStorage()
	r.pods -= int64(pods)
	r.taken = append(r.taken, taken{requested.GetScalarResources(), 1})
}

// take takes what a pod asks for, so many times.
func (r *room) take(p *podrequest.Request, times int64) {
	r.milliCPU -= times * p.MilliCPU
	r.memory -= times * p.Memory
	r.storage -= times * p.EphemeralStorage
	r.pods -= times
	r.taken = append(r.taken, taken{p.Scalars, times})
}

// holds is how many pods that ask for this there is room for.
func (r *room) holds(p *podrequest.Request) int {
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
