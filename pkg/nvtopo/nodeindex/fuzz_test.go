// SPDX-License-Identifier: Apache-2.0

package nodeindex

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// FuzzIndex adds and removes machines according to the bytes, four for each step, and compares every
// choice with one that looks at each machine.
func FuzzIndex(f *testing.F) {
	f.Add([]byte{0, 0, 0xff, 8, 1, 1, 0x0f, 4, 0, 4, 0, 2})
	f.Add([]byte{3, 0, 0x0f, 1, 3, 3, 0x05, 2, 3, 7, 0x03, 2, 0, 0, 0, 0})
	f.Add([]byte{5, 9, 0xff, 0x82, 5, 5, 0xf0, 0xff, 6, 2, 0, 0x41})
	kinds := tables(f, "dgx1-v100", "l40s-8", "a100-pcie-4-bridged")
	f.Fuzz(func(t *testing.T, ops []byte) {
		x, machines := NewIndex(), map[int]Machine{}
		w := DefaultOrder()
		for ; len(ops) >= 4; ops = ops[4:] {
			node, how, free, what := int(ops[0]%8), ops[1], nvtopo.Mask(ops[2]), ops[3]
			if how%8 == 4 {
				x.Remove(node)
				delete(machines, node)
			} else {
				tb := kinds[int(how)%len(kinds)]
				full := nvtopo.FullMask(tb.Graph().Len())
				m := Machine{Tables: tb, Healthy: full &^ nvtopo.Mask(how>>6), Kind: uint64(how >> 5 & 1), Unknown: what>>7 != 0, Held: int(what >> 5 & 3), Singles: how>>4&1 != 0}
				m.Free = free & m.Healthy
				x.Put(node, m)
				machines[node] = m
			}
			d := Demand{GPUs: 1 + int(what%8), KnownOnly: what&8 != 0}
			if what&16 != 0 {
				d.Constraint.Policy = nvtopo.PolicySingleNUMANode
			}
			want := linear(machines, &d, &w)
			got, _, ok := x.Best(&d, &w)
			if _, equal := want[got]; ok != (len(want) > 0) || ok && !equal {
				t.Fatalf("%+v of %+v: node %d (%t), a linear search takes one of %v", d, machines, got, ok, want)
			}
			if x.Largest() != largest(machines) {
				t.Fatalf("largest machine has %d GPUs, want %d", x.Largest(), largest(machines))
			}
		}
	})
}
