// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// TestRoomier: which changes of a node's topology may let a pod in, where kubelet had recorded GPU 1 for a
// pod, GPU 2 was degraded and GPU 3 unhealthy.
func TestRoomier(t *testing.T) {
	tests := map[string]struct {
		change func(n *Node, a *Accel)
		want   bool
	}{
		"nothing":                         {func(*Node, *Accel) {}, false},
		"another node":                    {func(n *Node, _ *Accel) { n.NodeUID = "other" }, true},
		"a GPU is healthy again":          {func(_ *Node, a *Accel) { a.Healthy = nvtopo.FullMask(4) }, true},
		"a GPU is degraded no more":       {func(_ *Node, a *Accel) { a.Degraded = 0 }, true},
		"one more is degraded":            {func(_ *Node, a *Accel) { a.Degraded |= nvtopo.MaskOf(0) }, false},
		"one more is unhealthy":           {func(_ *Node, a *Accel) { a.Healthy &^= nvtopo.MaskOf(0) }, false},
		"GPUs of another model":           {func(_ *Node, a *Accel) { a.Kind++ }, true},
		"kubelet released the GPU":        {func(n *Node, _ *Accel) { n.Records = nil }, true},
		"kubelet recorded one more pod":   {func(n *Node, _ *Accel) { n.Records["q"] = []Record{{Resource: gpu, GPUs: n.ids(0)}} }, false},
		"a pod that nobody chose for":     {func(n *Node, _ *Accel) { n.Records["q"] = []Record{{Resource: gpu, GPUs: n.ids(0), Foreign: true}} }, true},
		"kubelet is configured otherwise": {func(n *Node, _ *Accel) { n.Settings = "other" }, true},
		"CPUs are reserved no more":       {func(n *Node, _ *Accel) { n.ReservedCPUs = nil }, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			version := func() *Node {
				n := testNode(t, true)
				n.ReservedCPUs = nvtopo.NewCPUSet(0)
				n.Records = map[types.UID][]Record{"p": {{Resource: gpu, GPUs: n.ids(1)}}}
				n.Accels[0].Healthy, n.Accels[0].Degraded = nvtopo.MaskOf(0, 1, 2), nvtopo.MaskOf(2)
				return n
			}
			old, n := version(), version()
			n.Accels[0].Tables = old.Accels[0].Tables
			tc.change(n, n.Accels[0])
			if got := n.Roomier(old); got != tc.want {
				t.Errorf("roomier: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestFreer: which changes of a node's usage let a pod in.
func TestFreer(t *testing.T) {
	tests := map[string]struct {
		change func(u *Usage)
		want   bool
	}{
		"nothing":                 {func(*Usage) {}, false},
		"a GPU is free":           {func(u *Usage) { u.Used[0] = nvtopo.MaskOf(0) }, true},
		"one more is used":        {func(u *Usage) { u.Used[0] |= nvtopo.MaskOf(2) }, false},
		"one GPU less is counted": {func(u *Usage) { u.Counted[0]-- }, true},
		"one more is counted":     {func(u *Usage) { u.Counted[0]++ }, false},
		"the GPUs of the last foreign one are known": {func(u *Usage) { u.Foreign[0] = false }, true},
		"CPU is free":                     {func(u *Usage) { u.NUMA[1].MilliCPU++ }, true},
		"memory is free":                  {func(u *Usage) { u.NUMA[1].Memory++ }, true},
		"less of both":                    {func(u *Usage) { u.NUMA[0].MilliCPU--; u.NUMA[0].Memory-- }, false},
		"the agent's word counts no more": {func(u *Usage) { u.AgentLived = false }, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			old := *testNode(t, true).Idle
			old.Used, old.Counted, old.Foreign, old.AgentLived = []nvtopo.Mask{nvtopo.MaskOf(0, 1)}, []int{1}, []bool{true}, true
			u := old
			u.Used, u.Counted, u.Foreign, u.NUMA = slices.Clone(old.Used), slices.Clone(old.Counted), slices.Clone(old.Foreign), slices.Clone(old.NUMA)
			tc.change(&u)
			if got := u.Freer(&old); got != tc.want {
				t.Errorf("freer: %t, want %t", got, tc.want)
			}
		})
	}
}
