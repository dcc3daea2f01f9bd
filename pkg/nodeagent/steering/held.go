// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// others returns two sets. reserved is what was chosen for other pods that do not hold
// it yet, and what containers hold that kubelet lost the record of. held is what others
// hold, including other containers of the asking pod, except for devices that those
// pass on.
func (f *facts) others(who *asker) (reserved, held idSet) {
	reserved, held = idSet{}, idSet{}
	for _, p := range f.pods {
		own := who != nil && p.uid == who.pod.uid
		for i := range p.containers {
			c := &p.containers[i]
			switch {
			case p.terminal, own && c.plain:
				continue
			case f.holds(p, i):
				held.add(physicals(f.held(p.uid, c.name)))
				continue
			case own:
				continue
			}
			reserved.add(c.want[f.q.resource])
			reserved.add(physicals(f.served[p.uid][c.name].IDs))
		}
	}
	return reserved, held
}

// own returns what was chosen for the asking pod and is not kept by another of its
// containers. later is the part of it that later containers should get.
func (f *facts) own(who *asker) (own, later idSet) {
	own, later = who.pod.wants(f.q.resource), idSet{}
	for i := range who.pod.containers {
		c := &who.pod.containers[i]
		if c.plain || c.name == who.container.name {
			continue
		}
		if f.holds(who.pod, i) {
			own = own.without(newSet(physicals(f.held(who.pod.uid, c.name))))
		} else {
			later.add(c.want[f.q.resource])
		}
	}
	return own, later.without(newSet(who.want))
}

// held is what a container holds, by the best source available.
func (f *facts) held(uid types.UID, container string) []string {
	if ids := f.answers[uid].holds[container]; len(ids) > 0 {
		return ids
	}
	if ids := f.recorded[uid][container]; len(ids) > 0 {
		return ids
	}
	return f.served[uid][container].IDs
}

// why says why a chosen device is not on offer. The second result is true if kubelet
// decided so by itself.
func (f *facts) why(id string, who *asker, healthy map[string]bool) (string, bool) {
	for _, p := range f.pods {
		for i := range p.containers {
			asks := who != nil && p.uid == who.pod.uid && p.containers[i].name == who.container.name
			if !asks && !p.terminal && newSet(physicals(f.held(p.uid, p.containers[i].name))).has(id) {
				return "is held by container " + p.containers[i].name + " of pod " + p.key(), false
			}
		}
	}
	known := healthy == nil
	for device, ok := range healthy {
		if physical(device) != id {
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

// havers are the containers that were given exactly ids.
func (f *facts) havers(ids []string) []*asker {
	var out []*asker
	for _, p := range f.pods {
		if p.terminal {
			continue
		}
		for i := range p.containers {
			c := &p.containers[i]
			if c.limits[f.q.resource] == len(ids) && slices.Equal(f.held(p.uid, c.name), ids) {
				out = append(out, &asker{pod: p, container: c, want: c.want[f.q.resource]})
			}
		}
	}
	return out
}
