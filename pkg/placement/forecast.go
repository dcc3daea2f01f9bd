// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// forecast predicts which devices a node's kubelet would give one pod. A new one is made for each pod and
// node, and none on nodes whose kubelet aligns nothing.
type forecast struct {
	machine *kubeletadmission.Machine
	state   *kubeletadmission.State
	pod     *kubeletadmission.Pod // devices in the order of the node's accelerators
	wish    kubeletadmission.Wish // the sets settled so far, in that order too

	// memo has the verdicts on sets of the current resource, by the number of GPUs on each NUMA node, on
	// which alone they depend.
	memo map[uint64]bool
}

// newForecast returns nil where kubelet does not align the pod.
func newForecast(u *usage.Usage, r *podrequest.Request) *forecast {
	k := u.Node.Kubelet
	if k == nil {
		return nil
	}
	pod := u.AdmissionOf(r)
	if pod == nil || !k.Machine.Concerns(pod) {
		return nil
	}
	return &forecast{machine: k.Machine, state: u.Held, pod: pod}
}

// strict reports whether kubelet refuses pods that it cannot align, so that GPUs that are not in the graph
// may make it refuse the pod.
func (f *forecast) strict() bool { return f != nil && f.machine.Strict() }

// admits reports whether kubelet would take the pod at all.
func (f *forecast) admits() bool {
	return f == nil || f.machine.Admit(f.state, f.pod, &kubeletadmission.Wish{}, nil)
}

// inAnyOrder reports whether kubelet would also admit all pods on their way to it if this one came first:
// bindings overtake each other, and kubelet takes pods that arrive together by their age. The pods may
// then have each other's GPUs, which is repaired; a refused pod is lost.
func inAnyOrder(u *usage.Usage, f *forecast) bool {
	if f == nil || len(u.ToAdmit) == 0 {
		return true
	}
	s := *u.Before
	if !f.machine.Replay(&s, f.pod, &f.wish) && !f.machine.Replay(&s, f.pod, &kubeletadmission.Wish{}) {
		return false
	}
	for _, pod := range u.ToAdmit {
		if !f.machine.Replay(&s, pod, &kubeletadmission.Wish{}) {
			return false
		}
	}
	return true
}

// honours reports whether kubelet would give the pod this set of an accelerator together with the settled
// sets.
func (f *forecast) honours(ai int, g *nvtopo.Graph, set nvtopo.Mask) bool {
	if f == nil {
		return true
	}
	counts, short := f.counts(g, set)
	if ok, known := f.memo[counts]; known && short {
		return ok
	}
	wish := f.wish
	wish.Sets[ai], wish.Fixed[ai] = set, true
	ok := f.machine.Admit(f.state, f.pod, &wish, nil)
	if short && f.memo != nil {
		f.memo[counts] = ok
	}
	return ok
}

// counts packs the numbers of GPUs by NUMA node into one word, if they fit.
func (f *forecast) counts(g *nvtopo.Graph, set nvtopo.Mask) (counts uint64, short bool) {
	nodes := len(g.NUMANodes)
	if nodes >= 9 { // 7 bits hold a count of up to 64
		return 0, false
	}
	for m := set; m != 0; m &= m - 1 {
		at := nodes
		for i := range g.NUMANodes {
			if g.NUMANodes[i].ID == g.GPUs[m.First()].NUMANode {
				at = i
				break
			}
		}
		if at < 9 {
			counts += 1 << (7 * at)
		}
	}
	return counts, true
}

// settle fixes an accelerator's set for later calls.
func (f *forecast) settle(ai int, set nvtopo.Mask) {
	if f != nil {
		f.wish.Sets[ai], f.wish.Fixed[ai] = set, true
		f.memo = nil
	}
}

// region returns GPUs that contain every set that kubelet honours; ok is false unless the pod's first
// container alone has devices.
func (f *forecast) region(ai int) (nvtopo.Mask, bool) {
	if f == nil {
		return 0, false
	}
	n := f.pod.Containers[0].Devices[ai]
	for i := 1; i < len(f.pod.Containers); i++ {
		if f.pod.Containers[i].Devices != [kubeletadmission.MaxResources]int{} {
			return 0, false
		}
	}
	h, ok := f.machine.HintOf(f.state, f.pod, 0)
	if !ok || n == 0 {
		return 0, false
	}
	forced, free, ok := f.machine.Honoured(f.state, ai, n, h)
	switch {
	case !ok:
		return 0, false
	case forced == 0:
		return free, true
	case forced.Len() == n:
		return forced, true
	}
	return 0, false
}
