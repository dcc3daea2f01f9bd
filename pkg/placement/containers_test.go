// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// kubeletDraws allocates a pod's GPUs as kubelet's device manager does without a topology policy: first,
// at random, from those that init containers left, then those that the plugin prefers. It returns each
// container's GPUs, and the containers for which kubelet decided by chance.
func kubeletDraws(r *rand.Rand, cs []podrequest.Container, plan []nvtopo.Mask, set nvtopo.Mask) (got []nvtopo.Mask, chance []bool) {
	var reuse nvtopo.Mask
	free, diced := set, false
	for i, c := range cs {
		n := c.GPUs[0]
		var part nvtopo.Mask
		for n > 0 && reuse&^part != 0 {
			left := (reuse &^ part).Positions()
			part |= 1 << left[r.IntN(len(left))]
			n--
		}
		diced = diced || n == 0 && part != reuse
		if n > 0 { // the plugin is called, and must include the GPUs left
			prefer := plan[i] &^ part & free
			if part&^plan[i] != 0 || prefer.Len() != n {
				prefer = nvtopo.MaskOf(free.Positions()[:n]...)
			}
			part |= prefer
			free &^= prefer
		}
		if c.Kind == podrequest.InitContainer {
			reuse |= part
		} else {
			reuse &^= part
		}
		got, chance = append(got, part), append(chance, diced)
	}
	return got, chance
}

// TestPlannedSets: kubelet passes on the sets that were planned.
func TestPlannedSets(t *testing.T) {
	tables := nodeOf(t, "dgx1-v100").Accels[0].Tables
	r := rand.New(rand.NewPCG(3, 9))
	certain := 0
	for range 5000 {
		var cs []podrequest.Container
		for i := range r.IntN(4) {
			kind := podrequest.InitContainer
			if r.IntN(3) == 0 {
				kind = podrequest.SidecarContainer
			}
			cs = append(cs, podrequest.Container{Name: fmt.Sprint("i", i), Kind: kind, GPUs: []int{1 + r.IntN(3)}})
		}
		for i := range 1 + r.IntN(2) {
			cs = append(cs, podrequest.Container{Name: fmt.Sprint("a", i), Kind: podrequest.AppContainer, GPUs: []int{1 + r.IntN(3)}})
		}
		k := needed(cs)
		if k > 8 {
			continue
		}
		full := nvtopo.FullMask(8)
		set, _ := tables.Pick(full, full, k, nvtopo.Constraint{})
		plan, ok := divide(tables, set, cs, 0)
		if !ok {
			t.Fatalf("%+v: no division of %v", cs, set.Positions())
		}
		var running nvtopo.Mask
		for i, p := range plan {
			if p.Len() != cs[i].GPUs[0] || p&^set != 0 || cs[i].Kind != podrequest.InitContainer && p&running != 0 {
				t.Fatalf("%+v: container %d gets %v of %v beside %v", cs, i, p.Positions(), set.Positions(), running.Positions())
			}
			if cs[i].Kind != podrequest.InitContainer {
				running |= p
			}
		}
		got, chance := kubeletDraws(r, cs, plan, set)
		var all nvtopo.Mask
		for i := range got {
			all |= got[i]
			if !chance[i] && got[i] != plan[i] {
				t.Fatalf("%+v: container %d gets %v, planned %v of %v", cs, i, got[i].Positions(), plan[i].Positions(), set.Positions())
			}
			if !chance[i] && cs[i].Kind != podrequest.InitContainer {
				certain++
			}
		}
		if all != set {
			t.Fatalf("%+v: the pod gets %v, planned %v", cs, all.Positions(), set.Positions())
		}
	}
	if certain < 1000 {
		t.Errorf("only %d containers were not left to chance", certain)
	}
}

// needed is the number of GPUs that the containers need at once: all that run side by side, or an init
// container with the sidecars before it, whichever is more.
func needed(cs []podrequest.Container) int {
	running, most := 0, 0
	for _, c := range cs {
		if c.Kind == podrequest.InitContainer {
			most = max(most, running+c.GPUs[0])
		} else {
			running += c.GPUs[0]
		}
	}
	return max(most, running)
}
