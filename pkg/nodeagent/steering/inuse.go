// SPDX-License-Identifier: Apache-2.0

package steering

import "slices"

// Kubelet offers devices that a living pod has in two cases: after it has lost its
// record, and when it cleans up while we answer a question
// (kubernetes/kubernetes#137534). It also offers the devices of a pod that has just
// ended, before the API server and the checkpoint show that. Only kubelet's current
// answer tells these cases apart. Sets are of ids as kubelet has them here: free
// replicas of a shared device are on offer beside replicas in use. An offered id is in
// use if it overlaps one that somebody has; see idSet.

// inUse is what others have: containers of the asking pod, and other pods for which
// kubelet has answered.
func (f *facts) inUse(who *asker) idSet {
	out := idSet{}
	for id := range f.kept(who) {
		out[id] = struct{}{}
	}
	for _, p := range f.pods {
		if f.present(p, who) {
			out = out.with(f.unrecorded(p, who)).with(f.had(p, who))
		}
	}
	return out
}

// kept returns what other containers of the asking pod hold and keep, with the name of
// the container. Plain init containers do not keep their devices but pass them on. The
// pod is being admitted, so its record cannot be that of an ended pod. The result is
// empty if who asks is a guess, or if only our own records show what they hold: kubelet
// may have died before it recorded that.
func (f *facts) kept(who *asker) map[string]string {
	out := map[string]string{}
	if !who.certain() || (f.recorded == nil && !f.present(who.pod, who)) {
		return out
	}
	for i := range who.pod.containers {
		c := &who.pod.containers[i]
		if c.plain || c.name == who.container.name || !f.holds(who.pod, i) {
			continue
		}
		for _, id := range f.held(who.pod.uid, c.name) {
			out[id] = c.name
		}
	}
	return out
}

// present reports whether kubelet has said that it counts the pod's devices.
func (f *facts) present(p *podView, who *asker) bool {
	a, asked := f.answers[p.uid]
	return asked && !a.unknown && !f.otherOfName(p, a, who)
}

// otherOfName reports whether the answer is about a later pod with the same name as p.
func (f *facts) otherOfName(p *podView, a answer, who *asker) bool {
	if f.namesake(p, a) || (who != nil && who.pod.uid != p.uid && who.pod.key() == p.key()) {
		return true
	}
	for i := range p.containers {
		c := &p.containers[i]
		shown, recorded := a.holds[c.name], f.recorded[p.uid][c.name]
		if len(shown) > 0 && len(recorded) > 0 && !slices.Equal(sortedCopy(shown), recorded) {
			return true
		}
	}
	return false
}

// unrecorded is what containers of p, other than the asking one, were given and run
// with, and kubelet has no record of.
func (f *facts) unrecorded(p *podView, who *asker) idSet {
	out := idSet{}
	if f.recorded == nil || p.terminal || !p.started {
		return out
	}
	for i := range p.containers {
		c := &p.containers[i]
		asks := who != nil && p.uid == who.pod.uid && c.name == who.container.name
		if c.running && !asks && !f.holds(p, i) {
			out.add(f.served[p.uid][c.name].IDs)
		}
	}
	return out
}

// had is what another pod's containers hold as far as is known.
func (f *facts) had(p *podView, who *asker) idSet {
	out := idSet{}
	if p.terminal || (who != nil && p.uid == who.pod.uid) {
		return out
	}
	for i := range p.containers {
		if name := p.containers[i].name; f.holds(p, i) || f.young(p.uid, name) {
			out.add(f.held(p.uid, name))
		}
	}
	return out
}
