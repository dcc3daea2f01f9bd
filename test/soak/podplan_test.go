// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"strings"
)

// podPlan is the request of a pod.
type podPlan struct {
	Profile  int
	Priority int
	Wish     int
	Guarded  bool  // covered by the PodDisruptionBudget
	GPUs     []int // of each container
	Init     int   // GPUs of an init container; 0: there is none
	Sidecar  int   // GPUs of a sidecar; 0: there is none
}

func (p *podPlan) gpus() int {
	n := 0
	for _, g := range p.GPUs {
		n += g
	}
	return max(n, p.Init) + p.Sidecar
}

func (b *planner) podOp() op {
	if float64(b.asked) < crowd*float64(b.gpus) || len(b.live) == 0 {
		b.made++
		return b.create(opCreate, fmt.Sprintf("%s-%05d", b.prefix, b.made))
	}
	total := 0
	for _, o := range operations {
		if strings.HasPrefix(string(o.kind), "pod") {
			total += o.weight
		}
	}
	pick := b.rng.IntN(total)
	i := b.rng.IntN(len(b.live))
	name := b.live[i]
	b.live = append(b.live[:i], b.live[i+1:]...)
	b.asked -= b.want(name).gpus()
	for _, o := range operations {
		if !strings.HasPrefix(string(o.kind), "pod") {
			continue
		}
		if pick < o.weight {
			if o.kind == opRecreate {
				return b.create(opRecreate, name)
			}
			return op{Kind: o.kind, Pod: name}
		}
		pick -= o.weight
	}
	return op{Kind: opDelete, Pod: name}
}

func (b *planner) want(name string) *podPlan {
	w := b.wants[name]
	return &w
}

func (b *planner) create(kind opKind, name string) op {
	w := b.draw()
	b.wants[name] = w
	b.live = append(b.live, name)
	b.asked += w.gpus()
	return op{Kind: kind, Pod: name, Want: w}
}

// sizes are the weights of the pods' numbers of GPUs.
var sizes = []struct{ gpus, weight int }{{1, 40}, {2, 28}, {3, 6}, {4, 16}, {6, 2}, {8, 8}}

func (b *planner) draw() podPlan {
	pick, gpus := b.rng.IntN(100), 0
	for _, s := range sizes {
		if gpus = s.gpus; pick < s.weight {
			break
		}
		pick -= s.weight
	}
	w := podPlan{
		Profile: b.rng.IntN(len(profiles)), Wish: b.rng.IntN(len(wishes)), GPUs: []int{gpus},
		Guarded: b.rng.IntN(8) == 0,
	}
	if b.rng.IntN(4) == 0 {
		w.Priority = 1 + b.rng.IntN(len(priorities)-1)
	}
	switch b.rng.IntN(8) {
	case 0:
		if gpus > 1 {
			w.GPUs = []int{gpus / 2, gpus - gpus/2}
		}
	case 1:
		w.Init = 1 + b.rng.IntN(gpus)
	case 2:
		if gpus < 4 {
			w.Sidecar = 1
		}
	}
	return w
}
