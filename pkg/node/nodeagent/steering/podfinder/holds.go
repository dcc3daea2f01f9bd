// SPDX-License-Identifier: Apache-2.0

package podfinder

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// next returns the container that the pod would request for now: the first one in kubelet's order that
// holds no devices, or nil if that one has another size. A started pod has no such order: each container
// requests when it restarts. lost is true if the container was served once.
func (f *Facts) next(p *Pod) (c *Container, lost bool) {
	a, asked := f.Answers[p.UID]
	if asked && f.namesake(p, a) {
		return nil, false
	}
	// Without the checkpoint, only kubelet's report tells the devices of the earlier containers.
	anyOrder := p.Started || (f.Recorded == nil && !asked)
	for i := range p.Containers {
		c := &p.Containers[i]
		n := c.Limits[f.Question.Resource]
		if n == 0 || f.holds(p, i) {
			continue
		}
		_, lost := f.Served[p.UID][c.Name]
		if n == f.Question.Size {
			return c, lost
		}
		if !anyOrder {
			return nil, false
		}
	}
	return nil, false
}

// holds reports whether the pod's container i holds devices of the resource.
func (f *Facts) holds(p *Pod, i int) bool {
	c := &p.Containers[i]
	if a, ok := f.Answers[p.UID]; ok && !a.Unknown {
		if ids, listed := a.Holds[c.Name]; listed {
			return len(ids) > 0
		}
	}
	if len(f.Recorded[p.UID][c.Name]) > 0 {
		return true
	}
	if _, ok := f.Served[p.UID][c.Name]; ok && f.Recorded == nil {
		return true
	}
	if !c.Plain {
		return false
	}
	// Kubelet does not report plain init containers, but serves them before every later
	// container.
	for j := i + 1; j < len(p.Containers); j++ {
		if p.Containers[j].Limits[f.Question.Resource] > 0 && f.holds(p, j) {
			return true
		}
	}
	return false
}

// young reports whether the container was served so recently that kubelet's checkpoint
// may not show it yet.
func (f *Facts) young(uid types.UID, container string) bool {
	s, ok := f.Served[uid][container]
	return ok && f.Now.Sub(s.At) < SettleAge
}

// namesake reports whether kubelet's report, which is by name, is about another pod of that name: it has
// devices that are not recorded for this pod's UID.
func (f *Facts) namesake(p *Pod, a Answer) bool {
	if f.Recorded == nil || len(f.Recorded[p.UID]) > 0 {
		return false
	}
	for container, ids := range a.Holds {
		if len(ids) > 0 && !f.young(p.UID, container) {
			return true
		}
	}
	return false
}

// owns reports whether kubelet has taken devices that a plain init container of the pod left behind: it
// gives those to no other pod.
func (f *Facts) owns(p *Pod) bool {
	if len(f.Question.Must) == 0 {
		return false
	}
	must := question.SetOf(f.Question.Must)
	for i := range p.Containers {
		c := &p.Containers[i]
		if !c.Plain {
			continue
		}
		ids := f.Recorded[p.UID][c.Name]
		if f.Recorded == nil {
			ids = f.Served[p.UID][c.Name].IDs
		}
		if must.HasAny(ids) {
			return true
		}
	}
	return false
}
