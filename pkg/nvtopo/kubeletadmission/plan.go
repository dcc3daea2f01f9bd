// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import "github.com/nvtopo/nvtopo/pkg/nvtopo"

// maxSteps bounds the search for a way in which kubelet serves a pod. One container takes a few steps;
// only pods of many containers whose devices may come from many nodes in many ways come near it, and are
// refused then.
const maxSteps = 1 << 14

// Wish is the devices that a pod should get.
type Wish struct {
	// Sets are the devices of the whole pod by resource, where Fixed.
	Sets  [MaxResources]nvtopo.Mask
	Fixed [MaxResources]bool
	// Parts, if not nil, are the devices of each container.
	Parts []Part
}

// Part is one container's devices by resource.
type Part [MaxResources]nvtopo.Mask

// Admit reports whether kubelet admits the pod and, if its plugins prefer so, gives it the devices of the
// wish. If got is not nil it has an entry for each container and is set to one division of the devices
// that kubelet honours; devices that an init container leaves and kubelet hands on at random are in the
// parts in one of the possible ways.
//
// kubelet takes the containers in turn, each from the devices that the ones before have left. A
// container's devices by NUMA node decide the hints of the next, so all ways to spread a container's
// devices over its possible nodes are tried. Where kubelet chooses at random every choice must succeed.
func (m *Machine) Admit(s *State, pod *Pod, wish *Wish, got []Part) bool {
	return m.run(s, pod, wish, got, nil)
}

// Replay is Admit that also changes the state as kubelet's admission of the pod would, unless kubelet
// refuses it.
func (m *Machine) Replay(s *State, pod *Pod, wish *Wish) bool {
	var after State
	if !m.run(s, pod, wish, nil, &after) {
		return false
	}
	after.own = carried{}
	*s = after
	return true
}

func (m *Machine) run(s *State, pod *Pod, wish *Wish, got []Part, after *State) bool {
	x, _ := m.searches.Get().(*search)
	if x == nil {
		x = &search{}
	}
	*x = search{m: m, pod: pod, wish: *wish, left: maxSteps, frames: append(x.frames[:0], frame{state: *s, budget: s.Free}), parts: x.parts[:0]}
	if got != nil {
		x.parts = append(x.parts, got...)
		clear(x.parts)
	}
	first := &x.frames[0]
	first.state.own = carried{}
	for r, fixed := range wish.Fixed {
		if fixed {
			first.budget[r] &= wish.Sets[r]
		}
	}
	ok := x.admit()
	if ok && after != nil {
		*after = x.end
	}
	if ok {
		copy(got, x.parts)
	}
	*x = search{frames: x.frames, parts: x.parts} // nothing of the caller's is kept
	m.searches.Put(x)
	return ok
}

// HintOf returns kubelet's hint for the pod's i-th container in the given state, or in the pod scope for
// all; ok is false where it refuses.
func (m *Machine) HintOf(s *State, pod *Pod, i int) (Hint, bool) {
	if !m.aligns() {
		return Hint{}, true
	}
	if m.podScope {
		return m.hint(s, &pod.whole)
	}
	return m.hint(s, &pod.Containers[i])
}

// hint merges the hints of all managers for one container, or a whole pod as one.
func (m *Machine) hint(s *State, c *Container) (Hint, bool) {
	l := lists{size: 1 << m.nodes}
	for r := range m.resources {
		m.addDevices(&l, r, c.Devices[r], s.Free[r], s.own.devices[r])
	}
	m.addCPUs(&l, s, c.CPUs)
	m.addMemory(&l, s, c.Memory)
	return m.merge(&l)
}

// search is one run of Admit. It is reused, so that a verdict does not allocate: its branches are kept on
// a stack of its own.
type search struct {
	m      *Machine
	pod    *Pod
	wish   Wish
	parts  []Part // by container, of the attempt in progress
	end    State  // after the last container
	whole  Hint
	left   int             // steps
	dead   map[uint64]bool // see deadEnd
	frames []frame
}

// frame is the remaining supply at one point of the search: of the machine, and of the devices that the
// pod may be given.
type frame struct {
	state  State
	budget [MaxResources]nvtopo.Mask
}

// push adds a copy of a frame and returns its index.
func (x *search) push(at int) int {
	x.frames = append(x.frames, x.frames[at])
	return len(x.frames) - 1
}

func (x *search) admit() bool {
	if x.m.podScope && x.m.aligns() {
		h, ok := x.m.hint(&x.frames[0].state, &x.pod.whole)
		if !ok {
			return false
		}
		x.whole = h
	}
	return x.container(0, 0)
}

// container admits the pod's containers from the i-th on.
func (x *search) container(at, i int) bool {
	if i == len(x.pod.Containers) {
		x.end = x.frames[at].state
		return true
	}
	if x.left--; x.left < 0 {
		return false
	}
	if !x.remembers() {
		return x.next(at, i)
	}
	key := x.deadEnd(at, i)
	if x.dead[key] {
		return false
	}
	ok := x.next(at, i)
	if !ok && x.left >= 0 {
		if x.dead == nil {
			x.dead = map[uint64]bool{}
		}
		x.dead[key] = true
	}
	return ok
}

// next admits the i-th container and those after it.
func (x *search) next(at, i int) bool {
	h := x.whole
	if x.m.aligns() && !x.m.podScope {
		var ok bool
		if h, ok = x.m.hint(&x.frames[at].state, &x.pod.Containers[i]); !ok {
			return false
		}
	}
	return x.devices(at, i, h, 0)
}

// devices serves a container's resources from the r-th on, then its CPUs and memory, then the containers
// after it.
func (x *search) devices(at, i int, h Hint, r int) bool {
	c := &x.pod.Containers[i]
	for r < len(x.m.resources) && c.Devices[r] == 0 {
		r++
	}
	if r == len(x.m.resources) {
		next := x.push(at)
		s := &x.frames[next].state
		ok := x.m.takeCPUs(s, c, h) && x.m.takeMemory(s, c, h) && x.container(next, i+1)
		x.frames = x.frames[:next]
		return ok
	}
	f := &x.frames[at]
	reuse, n := f.state.own.devices[r], c.Devices[r]
	d := dealing{at: at, i: i, r: r, h: h}
	if n < reuse.Len() {
		if c.Kind == Init {
			x.note(i, r, lowest(reuse, n))
			return x.devices(at, i, h, r+1) // they stay with the pod
		}
		// kubelet takes any of them, so every choice must succeed.
		d.chance, d.reuse = true, reuse
		return x.deal(d, reuse, n, 0)
	}
	n -= reuse.Len()
	if n == 0 {
		return x.serve(d)
	}
	forced, free, ok := x.m.Honoured(&f.state, r, n, h)
	if !ok {
		return false
	}
	may := f.budget[r]
	if x.wish.Parts != nil {
		may &= x.wish.Parts[i][r]
	}
	if forced.Len() > n || forced&^may != 0 {
		return false
	}
	d.taken = forced
	return x.deal(d, free&may, n-forced.Len(), 0)
}

// serve gives a container the devices that init containers left and further ones.
func (x *search) serve(d dealing) bool {
	if x.left--; x.left < 0 {
		return false
	}
	part := x.frames[d.at].state.own.devices[d.r] | d.taken
	if x.wish.Parts != nil && part != x.wish.Parts[d.i][d.r] {
		return false
	}
	next := x.push(d.at)
	f := &x.frames[next]
	f.state.Free[d.r] &^= d.taken
	f.budget[d.r] &^= d.taken
	f.state.own.devices[d.r] = 0
	if x.pod.Containers[d.i].Kind == Init {
		f.state.own.devices[d.r] = part
	}
	x.note(d.i, d.r, part)
	ok := x.devices(next, d.i, d.h, d.r+1)
	x.frames = x.frames[:next]
	return ok
}

// handOn gives a container some of the devices that init containers left.
func (x *search) handOn(d dealing) bool {
	next := x.push(d.at)
	x.frames[next].state.own.devices[d.r] = d.reuse &^ d.taken
	x.note(d.i, d.r, d.taken)
	ok := x.devices(next, d.i, d.h, d.r+1)
	x.frames = x.frames[:next]
	return ok
}

func (x *search) note(i, r int, part nvtopo.Mask) {
	if i < len(x.parts) {
		x.parts[i][r] = part
	}
}

// dealing is the choice of devices of resource r for container i.
type dealing struct {
	at, i, r int
	h        Hint
	taken    nvtopo.Mask
	// chance means that kubelet takes from reuse at random, so that every way must succeed; otherwise one
	// must.
	chance bool
	reuse  nvtopo.Mask
}

// deal tries the ways to take n more devices of a set, from the NUMA nodes from the given position on and
// last those of no known node. Devices of one node are equivalent for kubelet's hints, so only their
// number matters.
func (x *search) deal(d dealing, from nvtopo.Mask, n, node int) bool {
	switch {
	case n == 0 && d.chance:
		return x.handOn(d)
	case n == 0:
		return x.serve(d)
	case from.Len() < n || node > x.m.nodes:
		return d.chance // no such way
	}
	group := from
	if node < x.m.nodes {
		group &= x.m.resources[d.r].onNode[node]
	}
	// All on as few nodes as possible comes first, the choice that users prefer.
	for k := min(n, group.Len()); k >= 0; k-- {
		next := d
		next.taken |= lowest(group, k)
		if x.deal(next, from&^group, n-k, node+1) != d.chance {
			return !d.chance
		}
	}
	return d.chance
}

// lowest returns the k lowest members of a set.
func lowest(m nvtopo.Mask, k int) nvtopo.Mask {
	var out nvtopo.Mask
	for ; k > 0; k-- {
		out |= m & -m
		m &= m - 1
	}
	return out
}
