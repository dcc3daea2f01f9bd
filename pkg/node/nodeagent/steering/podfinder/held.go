// SPDX-License-Identifier: Apache-2.0

package podfinder

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// Others returns two sets. reserved has the devices chosen for other pods that do not hold them yet, and
// those that containers hold although kubelet lost the record. held has the devices that others hold,
// including other containers of the requesting pod, except for devices that those pass on.
func (f *Facts) Others(who *Asker) (reserved, held question.Set) {
	reserved, held = question.Set{}, question.Set{}
	for _, p := range f.Pods {
		own := who != nil && p.UID == who.Pod.UID
		for i := range p.Containers {
			c := &p.Containers[i]
			switch {
			case p.Terminal, own && c.Plain:
				continue
			case f.holds(p, i):
				held.Add(question.Physicals(f.held(p.UID, c.Name)))
				continue
			case own:
				continue
			}
			reserved.Add(c.Want[f.Question.Resource])
			reserved.Add(question.Physicals(f.Served[p.UID][c.Name].IDs))
		}
	}
	return reserved, held
}

// Own returns the devices chosen for the requesting pod that no other of its containers keeps. later is
// the part of it that later containers should get.
func (f *Facts) Own(who *Asker) (own, later question.Set) {
	own, later = who.Pod.wants(f.Question.Resource), question.Set{}
	for i := range who.Pod.Containers {
		c := &who.Pod.Containers[i]
		if c.Plain || c.Name == who.Container.Name {
			continue
		}
		if f.holds(who.Pod, i) {
			own = own.Without(question.SetOf(question.Physicals(f.held(who.Pod.UID, c.Name))))
		} else {
			later.Add(c.Want[f.Question.Resource])
		}
	}
	return own, later.Without(question.SetOf(who.Want))
}

// held returns the devices of a container, from the best source available.
func (f *Facts) held(uid types.UID, container string) []string {
	if ids := f.Answers[uid].Holds[container]; len(ids) > 0 {
		return ids
	}
	if ids := f.Recorded[uid][container]; len(ids) > 0 {
		return ids
	}
	return f.Served[uid][container].IDs
}

// Why returns the reason why a chosen device is not on offer. The second result is true if kubelet
// decided so by itself.
func (f *Facts) Why(id string, who *Asker, healthy map[string]bool) (string, bool) {
	for _, p := range f.Pods {
		for i := range p.Containers {
			asks := who != nil && p.UID == who.Pod.UID && p.Containers[i].Name == who.Container.Name
			if !asks && !p.Terminal && question.SetOf(question.Physicals(f.held(p.UID, p.Containers[i].Name))).Has(id) {
				return "is held by container " + p.Containers[i].Name + " of pod " + p.Key(), false
			}
		}
	}
	known := healthy == nil
	for device, ok := range healthy {
		if question.Physical(device) != id {
			continue
		}
		if !ok {
			return "is unhealthy", false
		}
		known = true
	}
	if !known {
		return "is not a device of this node", false
	}
	return "is not offered: kubelet's topology manager leaves it out, or it is not free yet", true
}

// Havers returns the containers that were given exactly ids.
func (f *Facts) Havers(ids []string) []*Asker {
	var out []*Asker
	for _, p := range f.Pods {
		if p.Terminal {
			continue
		}
		for i := range p.Containers {
			c := &p.Containers[i]
			if c.Limits[f.Question.Resource] == len(ids) && slices.Equal(f.held(p.UID, c.Name), ids) {
				out = append(out, &Asker{Pod: p, Container: c, Want: c.Want[f.Question.Resource]})
			}
		}
	}
	return out
}
