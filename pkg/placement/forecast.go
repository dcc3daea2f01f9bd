// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/kubeletadmission"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/usage"
)

// forecast is what a node's kubelet would do with one pod. It is made anew for
// every question, and not at all on nodes whose kubelet aligns nothing.
type forecast struct {
	machine *kubeletadmission.Machine
	state   *kubeletadmission.State
	pod     *kubeletadmission.Pod // devices in the order of the node's accelerators
	wish    kubeletadmission.Wish // what is settled so far, in that order too

	// memo has the verdicts on sets of the resource asked about now, by how many GPUs
	// are on which NUMA node, which is all that they depend on.
	memo map[uint64]bool
}

// newForecast returns nil where kubelet has no say on the pod.
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

// strict reports whether kubelet refuses what it cannot align, so that GPUs nobody
// knows of may make it refuse the pod.
func (f *forecast) strict() bool { return f != nil && f.machine.Strict() }

// admits reports whether kubelet would take the pod at all.
func (f *forecast) admits() bool {
	return f == nil || f.machine.Admit(f.state, f.pod, &kubeletadmission.Wish{}, nil)
}

// inAnyOrder reports whether kubelet would also admit all pods that are on their way
// to it, should this one come first: bindings overtake each other, and
// kubelet takes pods that come together by their age. Who then has which GPUs may
// be another matter, which is repaired; a refused pod is lost.
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

// honours reports whether kubelet would give the pod this set of an accelerator
// beside what is settled.
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

// settle fixes an accelerator's set for the questions to come.
func (f *forecast) settle(ai int, set nvtopo.Mask) {
	if f != nil {
		f.wish.Sets[ai], f.wish.Fixed[ai] = set, true
		f.memo = nil
	}
}

// region returns GPUs among which all sets that kubelet honours are, where that is
// easy to say: for a pod whose first container alone has devices.
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
