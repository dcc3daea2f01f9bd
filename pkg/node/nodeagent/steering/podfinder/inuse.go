// SPDX-License-Identifier: Apache-2.0

package podfinder

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// Kubelet offers devices that a living pod has in two cases: after it has lost its record, and when it
// cleans up while the agent answers a question (kubernetes/kubernetes#137534). It also offers the devices
// of a pod that has just ended, before the API server and the checkpoint show that. Only kubelet's
// current report distinguishes these cases. Sets are of ids as kubelet has them here: free replicas of a
// shared device are on offer beside replicas in use. An offered id is in use if it overlaps an id that a
// container has; see question.Set.

// InUse returns the devices of containers of the requesting pod and of other pods that kubelet has
// reported on.
func (f *Facts) InUse(who *Asker) question.Set {
	out := question.Set{}
	for id := range f.Kept(who) {
		out[id] = struct{}{}
	}
	for _, p := range f.Pods {
		if f.Present(p, who) {
			out = out.With(f.Unrecorded(p, who)).With(f.Had(p, who))
		}
	}
	return out
}

// Kept returns the devices that other containers of the requesting pod hold and keep, with the name of
// the container. Plain init containers do not keep their devices but pass them on. The pod is being
// admitted, so its record cannot be that of an ended pod. The result is empty if the requesting container
// is a guess, or if only the agent's own records show the devices: kubelet may have died before it
// recorded them.
func (f *Facts) Kept(who *Asker) map[string]string {
	out := map[string]string{}
	if !who.certain() || (f.Recorded == nil && !f.Present(who.Pod, who)) {
		return out
	}
	for i := range who.Pod.Containers {
		c := &who.Pod.Containers[i]
		if c.Plain || c.Name == who.Container.Name || !f.holds(who.Pod, i) {
			continue
		}
		for _, id := range f.held(who.Pod.UID, c.Name) {
			out[id] = c.Name
		}
	}
	return out
}

// Present reports whether kubelet has reported the pod as active.
func (f *Facts) Present(p *Pod, who *Asker) bool {
	a, asked := f.Answers[p.UID]
	return asked && !a.Unknown && !f.otherOfName(p, a, who)
}

// otherOfName reports whether kubelet's report is about a later pod with the same name as p.
func (f *Facts) otherOfName(p *Pod, a Answer, who *Asker) bool {
	if f.namesake(p, a) || (who != nil && who.Pod.UID != p.UID && who.Pod.Key() == p.Key()) {
		return true
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		shown, recorded := a.Holds[c.Name], f.Recorded[p.UID][c.Name]
		if len(shown) > 0 && len(recorded) > 0 && !slices.Equal(question.Sorted(shown), recorded) {
			return true
		}
	}
	return false
}

// Unrecorded returns the devices that containers of p, other than the requesting one, were given and run
// with, and that kubelet has no record of.
func (f *Facts) Unrecorded(p *Pod, who *Asker) question.Set {
	out := question.Set{}
	if f.Recorded == nil || p.Terminal || !p.Started {
		return out
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		asks := who != nil && p.UID == who.Pod.UID && c.Name == who.Container.Name
		if c.Running && !asks && !f.holds(p, i) {
			out.Add(f.Served[p.UID][c.Name].IDs)
		}
	}
	return out
}

// Had returns the known devices of another pod's containers.
func (f *Facts) Had(p *Pod, who *Asker) question.Set {
	out := question.Set{}
	if p.Terminal || (who != nil && p.UID == who.Pod.UID) {
		return out
	}
	for i := range p.Containers {
		if name := p.Containers[i].Name; f.holds(p, i) || f.young(p.UID, name) {
			out.Add(f.held(p.UID, name))
		}
	}
	return out
}
