// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"slices"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// enumerable is the largest number of GPUs for which every set is tried. With more, nvtopo cannot pick
// sets that contain given GPUs.
const enumerable = 16

// pickBest returns the best devices for a question by the objective. It fails without tables, if an id
// that must be taken is not in the graph or shares a device with another, or if too few distinct devices
// are offered.
func pickBest(tables *nvtopo.Tables, q *question.Question) ([]string, bool) {
	if tables == nil {
		return nil, false
	}
	g := tables.Graph()
	byPosition := map[int]string{} // position -> the id to take there
	place := func(id string) (int, bool) {
		m, missing := g.Positions([]string{question.Physical(id)})
		return m.First(), len(missing) == 0
	}
	var must, free nvtopo.Mask
	for _, id := range q.Must {
		p, ok := place(id)
		if !ok || must.Has(p) {
			return nil, false
		}
		must |= nvtopo.MaskOf(p)
		byPosition[p] = id
	}
	for _, id := range q.Offered.Sorted() {
		p, ok := place(id)
		if !ok {
			continue
		}
		free |= nvtopo.MaskOf(p)
		if _, taken := byPosition[p]; !taken {
			byPosition[p] = id
		}
	}
	set, ok := pickSound(tables, free, must, q.Size)
	if !ok {
		return nil, false
	}
	ids := make([]string, 0, q.Size)
	for p := range set.All() {
		ids = append(ids, byPosition[p])
	}
	slices.Sort(ids)
	return ids, true
}

// pickSound is pickWith without the GPUs that the graph reports as unhealthy, and for several GPUs also
// without degraded ones, as long as enough remain. Kubelet's offer follows the device plugin's view of
// health, which may not include them.
func pickSound(tables *nvtopo.Tables, free, must nvtopo.Mask, k int) (nvtopo.Mask, bool) {
	g := tables.Graph()
	healthy, degraded := g.Healthy(), g.Degraded()
	pools := []nvtopo.Mask{healthy &^ degraded, healthy, free}
	if k == 1 {
		pools[0] = degraded
	}
	for _, pool := range pools {
		if set, ok := pickWith(tables, free&(pool|must), must, k); ok {
			return set, true
		}
	}
	return 0, false
}

// pickWith returns the best set of k out of free that contains must, of one GPU model if possible.
func pickWith(tables *nvtopo.Tables, free, must nvtopo.Mask, k int) (nvtopo.Mask, bool) {
	for _, con := range []nvtopo.Constraint{{}, {AllowMixedModels: true}} {
		var set nvtopo.Mask
		var ok bool
		if must == 0 || tables.Graph().Len() > enumerable {
			set, ok = tables.Pick(free, free, k, con)
			ok = ok && set&must == must
		} else {
			set, ok = tables.PickWhere(free, free, k, con, func(s nvtopo.Mask) bool { return s&must == must })
		}
		if ok {
			return set, true
		}
	}
	return 0, false
}
