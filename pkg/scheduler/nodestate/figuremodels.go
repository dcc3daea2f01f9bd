// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"cmp"
	"maps"
	"slices"
)

const (
	// maxModels bounds the values of the label model, because nodes name the models of their GPUs.
	maxModels = 64
	// otherModels is the label value for all models beyond maxModels.
	otherModels = "other models"
)

// boundModels keeps the models with the most GPUs and sums the rest up as otherModels, maxModels in all.
func (f *figures) boundModels() {
	if len(f.gpus) <= maxModels {
		return
	}
	names := slices.SortedFunc(maps.Keys(f.gpus), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.gpus[b].total(), f.gpus[a].total()), cmp.Compare(a, b))
	})
	others := &gpuFigures{}
	for _, name := range names[maxModels-1:] {
		others.add(f.gpus[name])
		delete(f.gpus, name)
	}
	if named := f.gpus[otherModels]; named != nil {
		others.add(named)
	}
	f.gpus[otherModels] = others
	for key, g := range f.groups {
		if f.gpus[key.model] != nil {
			continue
		}
		delete(f.groups, key)
		key.model = otherModels
		if f.groups[key] == nil {
			f.groups[key] = &groupFigures{}
		}
		f.groups[key].add(g)
	}
}

func (g *gpuFigures) total() int { return g.used + g.free + g.stranded + g.unusable }

func (g *gpuFigures) add(o *gpuFigures) {
	g.used += o.used
	g.free += o.free
	g.stranded += o.stranded
	g.unusable += o.unusable
}

func (g *groupFigures) add(o *groupFigures) {
	g.free += o.free
	g.capacity += o.capacity
	g.freeGPUs += o.freeGPUs
}
