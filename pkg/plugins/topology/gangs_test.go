// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"

	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestGangsAsVictims: a pod of priority 5 that wants a linked pair, on a node with two pairs, never leaves
// a gang with fewer members than its minimum.
func TestGangsAsVictims(t *testing.T) {
	type tenant struct {
		gang     string // empty: in none
		surplus  bool   // above the gang's minimum
		held     bool   // it is only assumed so far
		node     int
		priority int32
		gpus     []int
	}
	pair := func(gang string, node int, priority int32, gpus ...int) tenant {
		return tenant{gang: gang, node: node, priority: priority, gpus: gpus}
	}
	above := func(x tenant) tenant { x.surplus = true; return x }
	tests := map[string]struct {
		tenants  map[string]tenant // those that are not on node 0 are on node 1, which has other GPUs
		cpus     string            // that the pod asks for; without GPUs if not empty
		claims   bool
		want     []string // evicted on the node
		others   []string // evicted elsewhere
		yields   []string // whose places are taken back
		wantCode fwk.Code
	}{
		"the whole gang goes": {
			tenants: map[string]tenant{"g0": pair("g", 0, 0, 0, 1), "h": pair("", 0, 9, 2, 3), "g1": pair("g", 1, 0, 0, 1), "g2": pair("g", 1, 4, 2, 3)},
			want:    []string{"g0"}, others: []string{"g1", "g2"},
		},
		"members on one node go together": {
			tenants: map[string]tenant{"g0": pair("g", 0, 0, 0, 1), "g1": pair("g", 0, 0, 2, 3)},
			want:    []string{"g0", "g1"},
		},
		"two single pods are fewer than a gang of three": {
			tenants: map[string]tenant{"g0": pair("g", 0, 0, 0, 1), "s": pair("", 0, 0, 2), "t": pair("", 0, 0, 3), "g1": pair("g", 1, 0, 0, 1), "g2": pair("g", 1, 0, 2, 3)},
			want:    []string{"s", "t"},
		},
		"a gang of two is as few as two pods, and better than a pod that matters more": {
			tenants: map[string]tenant{"g0": pair("g", 0, 0, 0, 1), "s": pair("", 0, 4, 2, 3), "g1": pair("g", 1, 0, 0, 1)},
			want:    []string{"g0"}, others: []string{"g1"},
		},
		"the member elsewhere matters more than the single pod": {
			tenants: map[string]tenant{"g0": pair("g", 0, 0, 0, 1), "s": pair("", 0, 3, 2, 3), "g1": pair("g", 1, 4, 0, 1)},
			want:    []string{"s"},
		},
		"a member above the minimum goes alone": {
			tenants: map[string]tenant{"g0": pair("g", 0, 0, 0, 1), "g2": above(pair("g", 0, 0, 2, 3)), "g1": pair("g", 1, 0, 0, 1)},
			want:    []string{"g2"},
		},
		"with the gang those above its minimum go": {
			tenants: map[string]tenant{"g0": pair("g", 0, 0, 0, 1), "h": pair("", 0, 9, 2, 3), "g1": above(pair("g", 1, 0, 0, 1))},
			want:    []string{"g0"}, others: []string{"g1"},
		},
		"a member that matters as much as the pod keeps the gang": {
			tenants:  map[string]tenant{"g0": pair("g", 0, 0, 0, 1), "h": pair("", 0, 9, 2, 3), "g1": pair("g", 1, 5, 0, 1)},
			wantCode: fwk.UnschedulableAndUnresolvable,
		},
		"nor does the default preemption break it, for a pod with claims": {
			tenants: map[string]tenant{"g0": pair("g", 0, 0, 0, 1), "h": pair("", 0, 9, 2, 3), "g1": pair("g", 1, 5, 0, 1)},
			claims:  true, wantCode: fwk.UnschedulableAndUnresolvable,
		},
		"a member whose gang is not known yet stays": {
			tenants: map[string]tenant{"g0": pair("unknown", 0, 0, 0, 1), "s": pair("", 0, 4, 2, 3)}, want: []string{"s"},
		},
		"a member that waits for the others gives its place back": {
			tenants: map[string]tenant{"g0": {gang: "g", held: true, gpus: []int{0, 1}}, "h": pair("", 0, 9, 2, 3)},
			yields:  []string{"g0"},
		},
		"for a pod without GPUs the whole gang goes": {
			tenants: map[string]tenant{"g0": pair("g", 0, 0, 0, 1), "g1": pair("g", 0, 0, 2, 3), "g2": pair("g", 1, 0, 0, 1)},
			cpus:    "63", want: []string{"g0", "g1"}, others: []string{"g2"},
		},
		"for a pod without GPUs a gang stays that has a member that matters more": {
			tenants: map[string]tenant{"g0": pair("g", 0, 0, 0, 1), "g1": pair("g", 1, 9, 0, 1)},
			cpus:    "64", wantCode: fwk.UnschedulableAndUnresolvable,
		},
		"for a pod without GPUs single pods go as ever": {
			tenants: map[string]tenant{"s": pair("", 0, 0, 0, 1), "g1": pair("g", 1, 9, 0, 1)},
			cpus:    "64", want: []string{"s"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := newTestEnvWith(t, []string{defaultpreemption.Name}, "a100-pcie-4-bridged", "v100-pcie-8")
			gangs := map[string]*eviction.Gang{}
			var pods []*v1.Pod
			for _, name := range slices.Sorted(maps.Keys(tc.tenants)) {
				x := tc.tenants[name]
				pod := s.tenant(name, x.node, x.priority, len(x.gpus), x.gpus...)
				known := pod
				if x.held {
					known = pod.DeepCopy()
					known.Spec.NodeName = ""
				}
				pods = append(pods, known)
				if x.gang == "" {
					continue
				}
				pod.Annotations[gangrequest.GangKey] = x.gang
				if x.gang == "unknown" {
					continue
				}
				g := gangs[x.gang]
				if g == nil {
					g = &eviction.Gang{}
					gangs[x.gang] = g
				}
				switch {
				case x.held:
				case x.surplus:
					g.Surplus = append(g.Surplus, pod)
				default:
					g.Needed = append(g.Needed, pod)
				}
			}
			s.tenant("all-of-node-1", 1, 9, 0).Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = s.nodes[1].Status.Allocatable[v1.ResourceCPU]
			s.show()
			var others, yields []string
			s.plugin.Profile.Gangs = true
			s.plugin.Profile.Placed = func(key gangrequest.Key) *eviction.Gang { return gangs[key.Name] }
			s.plugin.Profile.Evict = func(_ *v1.Pod, members []*v1.Pod) { others = namesOf(members) }
			s.plugin.Profile.Yield = func(uids []types.UID, _ string) {
				for _, uid := range uids {
					yields = append(yields, string(uid)) // which is its name
				}
			}
			pod := linkedPair("p", 5)
			if tc.cpus != "" {
				pod = asks("p", 5, 0).CPU(tc.cpus)
			}
			if tc.claims {
				pod.PodResourceClaims(v1.PodResourceClaim{Name: "c"})
			}
			s.known(append(pods, pod.Obj()))
			_, evicted, status := s.postFilter(pod.Obj())
			type outcome struct {
				Evicted, Others, Yields []string
				Code                    fwk.Code
			}
			want := outcome{tc.want, tc.others, tc.yields, tc.wantCode}
			if d := cmp.Diff(want, outcome{evicted, others, yields, status.Code()}); d != "" {
				t.Errorf("%v (-want, +got):\n%s", status, d)
			}
			if says := strings.Contains(status.Message(), "; with them go "); tc.cpus == "" && says != (len(tc.others) > 0) {
				t.Errorf("%q, want it to say that others go: %t", status.Message(), len(tc.others) > 0)
			}
		})
	}
}
