// SPDX-License-Identifier: Apache-2.0

package admission

import "github.com/nvtopo/nvtopo/pkg/nvtopo"

// maxSteps bounds the search for a way in which kubelet serves a pod. One container
// takes a few steps; only pods of many containers whose devices may come from
// many nodes in many ways come near it, and are refused then.
const maxSteps = 1 << 14

// Wish is which devices a pod is to get.
type Wish struct {
	// Sets are the devices of the whole pod by resource, where Fixed.
	Sets  [MaxResources]nvtopo.Mask
	Fixed [MaxResources]bool
	// Parts, if not nil, are what each container is to get.
	Parts []Part
}

// Part is one container's devices by resource.
type Part [MaxResources]nvtopo.Mask

// Admit reports whether kubelet admits the pod and, told to by its plugins, gives
// it the devices wished for. If got is not nil it has an entry for each container
// and is set to one way of dividing the devices that kubelet honours; what an
// init container leaves and kubelet hands on at random is among the parts as one
// of the ways it may go.
//
// kubelet takes the containers in turn, each from what the ones before have left.
// What a container gets from which NUMA node decides the hints of the next, so all
// ways to spread a container's devices over the nodes it may have them from are
// tried. Where kubelet chooses at random every choice has to end well.
func (m *Machine) Admit(s *State, pod *Pod, wish *Wish, got []Part) bool {
	return m.run(s, pod, wish, got, nil)
}

// Replay is Admit that goes on to change the state to what it is once kubelet has
// admitted the pod, unless kubelet refuses it.
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
	x := search{m: m, pod: pod, wish: wish, got: got, after: after, left: maxSteps}
	budget := s.Free
	for r, fixed := range wish.Fixed {
		if fixed {
			budget[r] &= wish.Sets[r]
		}
	}
	first := *s
	first.own = carried{}
	if m.podScope && m.aligns() {
		h, ok := m.hint(&first, &pod.whole)
		if !ok {
			return false
		}
		x.whole = h
	}
	return x.container(&first, &budget, 0)
}

// HintOf is what kubelet settles on for a pod's first container, or in the pod
// scope for all; ok is false where it refuses.
func (m *Machine) HintOf(s *State, pod *Pod, i int) (Hint, bool) {
	if !m.aligns() {
		return Hint{}, true
	}
	if m.podScope {
		return m.hint(s, &pod.whole)
	}
	return m.hint(s, &pod.Containers[i])
}

// hint merges the hints of all managers for one container, or a pod as one.
func (m *Machine) hint(s *State, c *Container) (Hint, bool) {
	l := lists{size: 1 << m.nodes}
	for r := range m.resources {
		m.addDevices(&l, r, c.Devices[r], s.Free[r], s.own.devices[r])
	}
	m.addCPUs(&l, s, c.CPUs)
	m.addMemory(&l, s, c.Memory)
	return m.merge(&l)
}

// search is one run of Admit.
type search struct {
	m     *Machine
	pod   *Pod
	wish  *Wish
	got   []Part
	after *State
	whole Hint
	left  int // steps
}

// container admits the pod's containers from the i-th on. budget are the devices
// they may be given.
func (x *search) container(s *State, budget *[MaxResources]nvtopo.Mask, i int) bool {
	if i == len(x.pod.Containers) {
		if x.after != nil {
			*x.after = *s
		}
		return true
	}
	if x.left--; x.left < 0 {
		return false
	}
	h := x.whole
	if x.m.aligns() && !x.m.podScope {
		var ok bool
		if h, ok = x.m.hint(s, &x.pod.Containers[i]); !ok {
			return false
		}
	}
	return x.devices(s, budget, i, h, 0)
}

// devices serves a container's resources from the r-th on, then its CPUs and
// memory, then the containers after it.
func (x *search) devices(s *State, budget *[MaxResources]nvtopo.Mask, i int, h Hint, r int) bool {
	c := &x.pod.Containers[i]
	for r < len(x.m.resources) && c.Devices[r] == 0 {
		r++
	}
	if r == len(x.m.resources) {
		next := *s
		return x.m.takeCPUs(&next, c, h) && x.m.takeMemory(&next, c, h) && x.container(&next, budget, i+1)
	}
	reuse, n := s.own.devices[r], c.Devices[r]
	if n < reuse.Len() {
		return x.handOn(s, budget, i, h, r, reuse)
	}
	n -= reuse.Len()
	if n == 0 {
		return x.serve(s, budget, i, h, r, 0)
	}
	forced, free, ok := x.m.Honoured(s, r, n, h)
	if !ok {
		return false
	}
	may := budget[r]
	if x.wish.Parts != nil {
		may &= x.wish.Parts[i][r]
	}
	if forced.Len() > n || forced&^may != 0 {
		return false
	}
	d := dealing{x: x, s: s, budget: budget, i: i, h: h, r: r, taken: forced}
	return d.deal(free&may, n-forced.Len(), 0)
}

// handOn gives a container fewer devices than init containers left; kubelet takes
// any of them, so whatever it takes has to end well.
func (x *search) handOn(s *State, budget *[MaxResources]nvtopo.Mask, i int, h Hint, r int, reuse nvtopo.Mask) bool {
	if x.pod.Containers[i].Kind == Init {
		x.note(i, r, lowest(reuse, x.pod.Containers[i].Devices[r]))
		return x.devices(s, budget, i, h, r+1) // they stay with the pod
	}
	d := dealing{x: x, s: s, budget: budget, i: i, h: h, r: r, all: true, reuse: reuse}
	return d.deal(reuse, x.pod.Containers[i].Devices[r], 0)
}

// serve gives a container what init containers left and new devices beside.
func (x *search) serve(s *State, budget *[MaxResources]nvtopo.Mask, i int, h Hint, r int, fresh nvtopo.Mask) bool {
	if x.left--; x.left < 0 {
		return false
	}
	next, rest := *s, *budget
	next.Free[r] &^= fresh
	rest[r] &^= fresh
	part := next.own.devices[r] | fresh
	next.own.devices[r] = 0
	if x.pod.Containers[i].Kind == Init {
		next.own.devices[r] = part
	}
	if x.wish.Parts != nil && part != x.wish.Parts[i][r] {
		return false
	}
	x.note(i, r, part)
	return x.devices(&next, &rest, i, h, r+1)
}

func (x *search) note(i, r int, part nvtopo.Mask) {
	if x.got != nil {
		x.got[i][r] = part
	}
}

// dealing tries the ways to take devices from NUMA nodes. Devices of one node are
// alike to kubelet's hints, so only their number counts.
type dealing struct {
	x      *search
	s      *State
	budget *[MaxResources]nvtopo.Mask
	i      int
	h      Hint
	r      int
	taken  nvtopo.Mask
	// all: every way has to end well, with devices of reuse; else one has to.
	all   bool
	reuse nvtopo.Mask
}

// deal takes n more of from, of nodes from the given position on, and last those
// of no known node.
func (d *dealing) deal(from nvtopo.Mask, n, node int) bool {
	if n == 0 {
		return d.done()
	}
	if from.Len() < n {
		return d.all // no such way
	}
	if node > d.x.m.nodes {
		return d.all
	}
	group := from
	if node < d.x.m.nodes {
		group &= d.x.m.resources[d.r].onNode[node]
	}
	// All on as few nodes as possible comes first: what Split and users like best.
	for k := min(n, group.Len()); k >= 0; k-- {
		next := *d
		next.taken |= lowest(group, k)
		if next.deal(from&^group, n-k, node+1) != d.all {
			return !d.all
		}
	}
	return d.all
}

func (d *dealing) done() bool {
	x := d.x
	if !d.all {
		return x.serve(d.s, d.budget, d.i, d.h, d.r, d.taken)
	}
	next := *d.s
	next.own.devices[d.r] = d.reuse &^ d.taken
	x.note(d.i, d.r, d.taken)
	return x.devices(&next, d.budget, d.i, d.h, d.r+1)
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
