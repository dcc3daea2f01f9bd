// SPDX-License-Identifier: Apache-2.0

package clusterview_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// TestNoScheduler: a view says first of all problems that no scheduler leads, and how to see why.
func TestNoScheduler(t *testing.T) {
	const expired = "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler was last renewed at 2026-11-24T11:55:00Z; " +
		"see why no scheduler runs: kubectl -n nvtopo-system get deploy,pods; with 0 replicas: kubectl -n nvtopo-system scale deploy/nvtopo-scheduler --replicas=2; else describe its pods, or kubectl -n nvtopo-system logs deploy/nvtopo-scheduler --previous"
	shipped := &diagnosis.Profiles{LeaderLease: &diagnosis.LeaderLease{Namespace: "nvtopo-system", Name: diagnosis.ShippedLease}}
	for name, tc := range map[string]struct {
		age       time.Duration // of the Lease; 0: there is none
		published *diagnosis.Profiles
		gone      bool   // no Leases and no NodeGPUTopologies are there
		placed    string // schedulerName of a pod that got its node a minute ago, by the annotation of h100-0's pod
		want      string
	}{
		"a scheduler leads":                                 {age: time.Second, published: shipped},
		"its Lease has expired":                             {age: 5 * time.Minute, published: shipped, want: expired},
		"the shipped Lease has expired, and nobody says":    {age: 5 * time.Minute, want: expired},
		"its Lease is gone":                                 {published: shipped, want: "no scheduler leads: there is no Lease nvtopo-system/nvtopo-scheduler; see why"},
		"nobody says, and there is no Lease":                {},
		"nothing of nvtopo is there":                        {gone: true, want: "no scheduler leads: nvtopo is not installed, or was taken out by nvtopo uninstall: none of its programs has a Lease, and no node a NodeGPUTopology; install nvtopo: kubectl apply -f manifests/core/namespace.yaml; helm upgrade --install nvtopo"},
		"a scheduler of another name has placed pods since": {age: 5 * time.Minute, placed: "ours"},
	} {
		t.Run(name, func(t *testing.T) {
			c := sample(t)
			c.Published = tc.published
			if tc.gone {
				c.Leases, c.LeasesKnown, c.Topologies = nil, true, nil
			}
			if tc.age > 0 {
				c.Leases = append(c.Leases, coordinationv1.Lease{
					ObjectMeta: metav1.ObjectMeta{Namespace: "nvtopo-system", Name: diagnosis.ShippedLease},
					Spec: coordinationv1.LeaseSpec{
						HolderIdentity: new("pod-1_x"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(c.Now.Add(-tc.age))),
					},
				})
			}
			if tc.placed != "" {
				p := &c.Pods[slices.IndexFunc(c.Pods, func(p v1.Pod) bool { return p.Name == "notebook-a" })]
				p.Spec.SchedulerName = tc.placed
				p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.Now.Add(-time.Minute))}}
			}
			v := clusterview.Of(&c.Objects, clusterview.Options{})
			if !strings.HasPrefix(v.NoScheduler, tc.want) || (tc.want == "") != (v.NoScheduler == "") {
				t.Errorf("got %q, want %q", v.NoScheduler, tc.want)
			}
			if first := v.Problems[0]; tc.want != "" && first != v.NoScheduler {
				t.Errorf("the first problem is %q, want that no scheduler leads", first)
			}
			c.Now = c.Now.Add(2 * time.Second)
			if later := clusterview.Of(&c.Objects, clusterview.Options{}).NoScheduler; later != v.NoScheduler {
				t.Errorf("a moment later it says %q, want the same as before, %q: who shows what changes would show it again", later, v.NoScheduler)
			}
		})
	}
}

// TestNoTopologiesAtAll: where nodes have GPUs and none has a graph, as after an uninstall, a view says so.
func TestNoTopologiesAtAll(t *testing.T) {
	for name, tc := range map[string]struct {
		topologies bool
		want       bool
	}{"some nodes have graphs": {true, false}, "none has": {false, true}} {
		t.Run(name, func(t *testing.T) {
			c := sample(t)
			if !tc.topologies {
				c.Topologies = nil
			}
			v := clusterview.Of(&c.Objects, clusterview.Options{})
			if got := slices.ContainsFunc(v.Problems, func(p string) bool { return strings.HasPrefix(p, diagnosis.NoTopologies) }); got != tc.want {
				t.Errorf("problems %q: says that there are no graphs %t, want %t", v.Problems, got, tc.want)
			}
		})
	}
}
