// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// wanted is what a World must come to; lists are of invariants.
type wanted struct {
	violations, pending, notes []string
	message                    string // part of the first finding's line
}

func (w *wanted) compare(t *testing.T, r *Report) {
	t.Helper()
	list := func(v []string) []string { return append([]string{}, v...) }
	got := [][]string{slugs(r.Violations), slugs(r.Pending), slugs(r.Notes)}
	want := [][]string{list(w.violations), list(w.pending), list(w.notes)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations, pending, notes (-want +got):\n%s%v\n%v\n%v", diff, r.Violations, r.Pending, r.Notes)
	}
	for _, all := range [][]Violation{r.Violations, r.Pending, r.Notes} {
		if len(all) > 0 {
			if !strings.Contains(all[0].String(), w.message) {
				t.Errorf("%q does not contain %q", all[0], w.message)
			}
			return
		}
	}
}

// TestInvariants: each invariant is found broken, and nothing else is reported.
func TestInvariants(t *testing.T) {
	part := func(name string, gpus ...string) allocation.Container {
		return allocation.Container{Name: name, Resource: gpu, GPUs: gpus}
	}
	cases := map[string]struct {
		build func(c *testEnv)
		want  wanted
	}{
		"pods with GPUs of their own": {build: func(c *testEnv) {
			c.record(c.pod("one", "a", 0, 3), "main", 0, 3)
			c.pod("two", "a", 1)
			c.pod("three", "b", 0, 1, 2, 3, 4, 5, 6, 7)
		}},
		"two pods with one GPU": {
			build: func(c *testEnv) { c.pod("one", "b", 0, 3); c.pod("two", "b", 3) },
			want:  wanted{violations: []string{SharedByAnnotation}, message: "Pod default/one (uid-one), Pod default/two (uid-two), Node b"},
		},
		"three pods with one GPU are one finding": {
			build: func(c *testEnv) { c.pod("one", "b", 3); c.pod("two", "b", 3); c.pod("three", "b", 3) },
			want:  wanted{violations: []string{SharedByAnnotation}, message: "3 live pods have"},
		},
		"a pod that is being deleted still has its GPUs": {
			build: func(c *testEnv) { c.pod("one", "b", 3).DeletionTimestamp = at(0); c.pod("two", "b", 3) },
			want:  wanted{violations: []string{SharedByAnnotation}},
		},
		"a pod that has ended has none": {build: func(c *testEnv) {
			c.pod("one", "b", 3).Status.Phase = v1.PodSucceeded
			c.pod("two", "b", 3).Status.Phase = v1.PodFailed
			c.pod("three", "b", 3)
		}},
		"an annotation without a node means nothing": {build: func(c *testEnv) {
			c.pod("one", "b", 3).Spec.NodeName = ""
			c.pod("two", "b", 3)
		}},
		"pods of a Node that is gone still share": {
			build: func(c *testEnv) {
				c.Nodes = c.Nodes[:1]
				c.pod("one", "b", 3)
				c.pod("two", "b", 3)
			},
			want: wanted{violations: []string{SharedByAnnotation}, notes: []string{Unverified, Unverified}},
		},
		"kubelet's record gives one GPU to two pods": {
			build: func(c *testEnv) {
				c.record(c.pod("one", "a", 0), "main", 0)
				c.record(c.pod("two", "a", 1), "main", 0)
			},
			want: wanted{violations: []string{SharedByRecord}, pending: []string{RecordDiffers}, message: "NodeGPUTopology a (topology-a), Pod default/one"},
		},
		"a record of a pod that is gone shares with nobody": {build: func(c *testEnv) {
			c.record(c.pod("one", "a", 0), "main", 0)
			c.record(testobj.Pod("gone").Node("a").Obj(), "main", 0)
		}},
		"an annotation corrected while the other's is not": {
			build: func(c *testEnv) {
				one := c.pod("one", "a", 1) // chosen 0, kubelet gave it 1
				corrected(one)
				c.record(one, "main", 1)
				c.record(c.pod("two", "a", 1), "main", 0)
			},
			want: wanted{pending: []string{RecordDiffers, SharedByAnnotation}},
		},
		"two choices of one GPU, told apart by kubelet only": {
			build: func(c *testEnv) {
				c.record(c.pod("one", "a", 1), "main", 1)
				c.record(c.pod("two", "a", 1), "main", 0)
			},
			want: wanted{violations: []string{SharedByAnnotation}, pending: []string{RecordDiffers}},
		},
		"the same where no agent speaks for the record": {
			build: func(c *testEnv) {
				one := c.pod("one", "b", 1)
				corrected(one)
				c.record(one, "main", 1)
				c.record(c.pod("two", "b", 1), "main", 0)
			},
			want: wanted{violations: []string{SharedByAnnotation}},
		},
		"kubelet recorded another GPU than chosen": {
			build: func(c *testEnv) { c.record(c.pod("one", "a", 0, 3), "main", 0, 2) },
			want:  wanted{pending: []string{RecordDiffers}, message: "kubelet recorded"},
		},
		"kubelet recorded GPUs for a container nothing was chosen for": {
			build: func(c *testEnv) {
				p := c.pod("one", "a", 0)
				c.record(p, "main", 0)
				c.record(p, "other", 1)
			},
			want: wanted{pending: []string{RecordDiffers}, message: "nothing was chosen"},
		},
		"a record that nobody keeps up is not compared": {build: func(c *testEnv) { c.record(c.pod("one", "b", 0), "main", 1) }},
		"an init container with any of the pod's own GPUs": {build: func(c *testEnv) {
			p := c.pod("one", "a", 0, 3)
			p.Spec.InitContainers = []v1.Container{testobj.Container("prepare", 1)}
			initial := part("prepare", c.ids("a", 0)...)
			initial.Init = true
			c.allocate(p, initial, part("main", c.ids("a", 0, 3)...))
			c.record(p, "prepare", 3)
			c.record(p, "main", 0, 3)
		}},
		"a pod of ours without an allocation": {
			build: func(c *testEnv) { c.pod("one", "b", 0).Annotations = nil },
			want:  wanted{violations: []string{MissingAllocation}, message: "Pod default/one (uid-one), Node b: metadata.annotations[nvtopo.dev/allocation]"},
		},
		"policy none may go without": {
			build: func(c *testEnv) {
				c.pod("one", "b", 0).Annotations = map[string]string{podrequest.TopologyPolicyKey: "none"}
			},
			want: wanted{notes: []string{PlacedByCount}},
		},
		"policy none with a demand may not": {
			build: func(c *testEnv) {
				c.pod("one", "b", 0).Annotations = map[string]string{podrequest.TopologyPolicyKey: "none", podrequest.MinLinkKey: "NV1"}
			},
			want: wanted{violations: []string{MissingAllocation}},
		},
		"a profile that allows nodes without a graph": {
			build: func(c *testEnv) {
				c.Profiles = []diagnosis.Profile{{Name: DefaultProfile, AllowNoGraph: true}}
				c.pod("one", "b", 0).Annotations = nil
			},
			want: wanted{notes: []string{PlacedByCount}},
		},
		"a pod of another scheduler needs none": {build: func(c *testEnv) {
			p := c.pod("one", "b", 0)
			p.Spec.SchedulerName, p.Annotations = "default-scheduler", nil
		}},
		"a pod without GPUs needs none": {build: func(c *testEnv) {
			p := c.pod("one", "b")
			p.Annotations = nil
		}},
		"an annotation that is not JSON": {
			build: func(c *testEnv) { c.pod("one", "b", 0).Annotations[allocation.Key] = "{" },
			want:  wanted{violations: []string{MalformedAllocation}},
		},
		"an allocation for another node": {
			build: func(c *testEnv) { c.pod("one", "b", 0).Spec.NodeName = "a" },
			want:  wanted{pending: []string{MisplacedAllocation}, message: "it is for node b, and the pod is on node a"},
		},
		"an allocation of another pod": {
			build: func(c *testEnv) { c.pod("one", "b", 0).UID = "other" },
			want:  wanted{violations: []string{MisplacedAllocation}, message: "UID uid-one"},
		},
		"fewer GPUs than asked": {
			build: func(c *testEnv) { c.pod("one", "b", 0).Spec.Containers[0] = testobj.Container("main", 2) },
			want:  wanted{violations: []string{IncompleteAllocation}, message: "asks for 2 nvidia.com/gpu and has 1"},
		},
		"a container without its GPUs": {
			build: func(c *testEnv) {
				p := c.pod("one", "b", 0)
				p.Spec.Containers = append(p.Spec.Containers, testobj.Container("second", 1))
			},
			want: wanted{violations: []string{IncompleteAllocation}, message: "container second asks for 1 nvidia.com/gpu and has none"},
		},
		"GPUs for a container that asks for none": {
			build: func(c *testEnv) {
				p := c.pod("one", "b", 0)
				c.allocate(p, part("main", c.ids("b", 0)...), part("ghost", c.ids("b", 1)...))
				delete(p.Annotations, allocation.GPUIDsKey)
			},
			want: wanted{violations: []string{IncompleteAllocation}, message: "container ghost has nvidia.com/gpu"},
		},
		"two containers with one GPU": {
			build: func(c *testEnv) {
				p := c.pod("one", "b", 0)
				p.Spec.Containers = append(p.Spec.Containers, testobj.Container("second", 1))
				c.allocate(p, part("main", c.ids("b", 0)...), part("second", c.ids("b", 0)...))
				delete(p.Annotations, allocation.GPUIDsKey)
			},
			want: wanted{violations: []string{IncompleteAllocation}, message: "run at the same time"},
		},
		"an init container with a GPU of a sidecar before it": {
			build: func(c *testEnv) {
				p := c.pod("one", "b", 0)
				p.Spec.InitContainers = []v1.Container{testobj.Sidecar("side", 1), testobj.Container("prepare", 1)}
				initial := part("prepare", c.ids("b", 1)...)
				initial.Init = true
				c.allocate(p, part("side", c.ids("b", 1)...), initial, part("main", c.ids("b", 0)...))
				delete(p.Annotations, allocation.GPUIDsKey)
			},
			want: wanted{violations: []string{IncompleteAllocation}, message: "containers side and prepare"},
		},
		"a sidecar after an init container may have its GPU": {build: func(c *testEnv) {
			p := c.pod("one", "b", 0)
			p.Spec.InitContainers = []v1.Container{testobj.Container("prepare", 1), testobj.Sidecar("side", 1)}
			initial := part("prepare", c.ids("b", 1)...)
			initial.Init = true
			c.allocate(p, initial, part("side", c.ids("b", 1)...), part("main", c.ids("b", 0)...))
			delete(p.Annotations, allocation.GPUIDsKey)
		}},
		"an init container with GPUs beyond the pod's request": {
			build: func(c *testEnv) {
				p := c.pod("one", "b", 0)
				p.Spec.InitContainers = []v1.Container{testobj.Container("prepare", 1)}
				initial := part("prepare", c.ids("b", 1)...)
				initial.Init = true
				c.allocate(p, initial, part("main", c.ids("b", 0)...))
				delete(p.Annotations, allocation.GPUIDsKey)
			},
			want: wanted{violations: []string{IncompleteAllocation}, message: "needs 1 nvidia.com/gpu at once and holds 2"},
		},
		"a flat copy that says something else": {
			build: func(c *testEnv) { c.pod("one", "b", 0).Annotations[allocation.GPUIDsKey] = "GPU-x" },
			want:  wanted{violations: []string{InconsistentOutputs}},
		},
		"a GPU that the node never had": {
			build: func(c *testEnv) {
				p := c.pod("one", "b", 0)
				c.allocate(p, part("main", "GPU-x"))
			},
			want: wanted{violations: []string{UnknownGPU}, message: "no GPU-x"},
		},
		"a GPU that the graph lost after the choice": {
			build: func(c *testEnv) {
				p := c.pod("one", "b", 0)
				c.allocate(p, part("main", "GPU-x"))
				c.topology("b").ManagedFields[0].Time = at(time.Minute)
			},
			want: wanted{notes: []string{GPUGone}, message: "the graph changed at"},
		},
		"a graph that changed just before the choice": {
			build: func(c *testEnv) {
				p := c.pod("one", "b", 0)
				c.allocate(p, part("main", "GPU-x"))
				c.topology("b").ManagedFields[0].Time = at(-5 * time.Second)
			},
			want: wanted{notes: []string{GPUGone}},
		},
		"a GPU that failed after the choice": {
			build: func(c *testEnv) {
				c.pod("one", "b", 0)
				fail(c, "b", 0)
				c.topology("b").ManagedFields[1].Time = at(time.Minute)
			},
			want: wanted{notes: []string{GPUFailed}},
		},
		"a GPU that had failed when it was chosen": {
			build: func(c *testEnv) { c.pod("one", "b", 0); fail(c, "b", 0) },
			want:  wanted{violations: []string{UnhealthyGPU}, message: "is not healthy"},
		},
		"a degraded GPU in a set": {
			build: func(c *testEnv) { c.pod("one", "b", 0, 3); degrade(c, "b", 3) },
			want:  wanted{violations: []string{UnhealthyGPU}, message: "is degraded, and not the pod's only GPU"},
		},
		"a GPU of a set that was degraded after the choice": {
			build: func(c *testEnv) {
				c.pod("one", "b", 0, 3)
				degrade(c, "b", 3)
				c.topology("b").ManagedFields[1].Time = at(time.Minute)
			},
			want: wanted{notes: []string{GPUFailed}},
		},
		"a degraded GPU by itself": {
			build: func(c *testEnv) { c.pod("one", "b", 3); degrade(c, "b", 3) },
		},
		"GPUs without the link asked for": {
			build: func(c *testEnv) { c.pod("one", "b", 0, 5).Annotations[podrequest.MinLinkKey] = "NV1" },
			want:  wanted{violations: []string{DemandUnmet}, message: "link class"},
		},
		"GPUs of two NUMA nodes for a policy of one": {
			build: func(c *testEnv) {
				c.pod("one", "b", 0, 4).Annotations[podrequest.TopologyPolicyKey] = "single-numa-node"
			},
			want: wanted{violations: []string{DemandUnmet}, message: "NUMA policy"},
		},
		"the profile's own policy": {
			build: func(c *testEnv) {
				c.Schedulers = []diagnosis.State{{Name: "s", Synced: true, Profiles: []diagnosis.Profile{{Name: DefaultProfile, DefaultPolicy: "restricted"}}}}
				c.pod("one", "b", 0, 4)
			},
			want: wanted{violations: []string{DemandUnmet}, message: "NUMA policy"},
		},
		"GPUs slower than asked": {
			build: func(c *testEnv) { c.pod("one", "b", 0, 5).Annotations[podrequest.MinBandwidthKey] = "20" },
			want:  wanted{violations: []string{DemandUnmet}, message: "ring bandwidth"},
		},
		"GPUs of another model": {
			build: func(c *testEnv) { c.pod("one", "b", 0).Annotations[podrequest.GPUModelKey] = "H100" },
			want:  wanted{violations: []string{DemandUnmet}, message: "gpu-model"},
		},
		"a link that went down after the choice": {
			build: func(c *testEnv) {
				c.pod("one", "b", 0, 5).Annotations[podrequest.MinLinkKey] = "NV1"
				c.topology("b").ManagedFields[0].Time = at(time.Minute)
			},
			want: wanted{notes: []string{DegradedSince}},
		},
		"a demand that was added after the choice": {
			build: func(c *testEnv) {
				p := c.pod("one", "b", 0, 5)
				p.Annotations[podrequest.MinLinkKey] = "NV1"
				p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: at(time.Minute), FieldsV1: fields("f:" + podrequest.MinLinkKey)}}
			},
			want: wanted{notes: []string{DegradedSince}, message: "changed by kubectl"},
		},
		"GPUs that kubelet gave against the demand": {
			build: func(c *testEnv) {
				p := c.pod("one", "a", 0, 5)
				p.Annotations[podrequest.MinLinkKey] = "NV1"
				corrected(p)
				c.record(p, "main", 0, 5)
			},
			want: wanted{notes: []string{DegradedSince}, message: "kubelet gave it"},
		},
		"the same, corrected within the second in which it was bound": {
			build: func(c *testEnv) {
				p := c.pod("one", "a", 0, 5)
				p.Annotations[podrequest.MinLinkKey] = "NV1"
				corrected(p)
				p.ManagedFields[0].Manager, p.ManagedFields[0].Time = allocation.CorrectionManager, at(time.Second)
				c.record(p, "main", 0, 5)
			},
			want: wanted{notes: []string{DegradedSince}, message: "kubelet gave it"},
		},
		"GPUs against the demand that the scheduler wrote itself": {
			build: func(c *testEnv) {
				p := c.pod("one", "a", 0, 5)
				p.Annotations[podrequest.MinLinkKey] = "NV1"
				corrected(p)
				p.ManagedFields[0].Time = at(time.Second)
				c.record(p, "main", 0, 5)
			},
			want: wanted{violations: []string{DemandUnmet}},
		},
		"a demand that cannot be read": {
			build: func(c *testEnv) { c.pod("one", "b", 0, 5).Annotations[podrequest.MinLinkKey] = "fast" },
			want:  wanted{notes: []string{Unverified}},
		},
		"a Node made anew under its name": {
			build: func(c *testEnv) { c.pod("one", "b", 0); c.Nodes[1].UID = "new" },
			want:  wanted{notes: []string{MissingExporter, Unverified}},
		},
		"a pod that is older than its node's graph": {
			build: func(c *testEnv) {
				p := c.pod("one", "b", 0)
				c.allocate(p, part("main", "GPU-x"))
				c.topology("b").CreationTimestamp = *at(time.Minute)
			},
			want: wanted{notes: []string{GPUGone}},
		},
		"a graph that cannot be read": {
			build: func(c *testEnv) { c.pod("one", "b", 0); c.topology("b").Spec.LinkRows = nil },
			want:  wanted{notes: []string{MalformedTopology, Unverified}},
		},
		"two nodes that publish one UUID": {
			build: func(c *testEnv) { c.topology("b").Spec.GPUs[0].ID = c.topology("a").Spec.GPUs[0].ID },
			want:  wanted{notes: []string{SameUUID}},
		},
		"one UUID on two nodes is not shared": {
			build: func(c *testEnv) {
				c.topology("b").Spec.GPUs[0].ID = c.topology("a").Spec.GPUs[0].ID
				c.pod("one", "a", 0)
				p := c.pod("two", "b", 0)
				c.allocate(p, part("main", c.ids("a", 0)...))
			},
			want: wanted{notes: []string{SameUUID}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			tc.build(c)
			tc.want.compare(t, Examine(c.World))
		})
	}
}

// fail makes a GPU unhealthy.
func fail(c *testEnv, node string, i int) {
	t := c.topology(node)
	t.Status.GPUHealth = append(t.Status.GPUHealth, v1alpha1.GPUHealth{ID: c.graphs[node].GPUs[i].UUID, Reason: "lost"})
}

func degrade(c *testEnv, node string, i int) {
	t := c.topology(node)
	t.Status.GPUHealth = append(t.Status.GPUHealth, v1alpha1.GPUHealth{ID: c.graphs[node].GPUs[i].UUID, Healthy: true, Degraded: true})
}

// TestPendingGrace: a pending finding becomes a violation only if it lasts.
func TestPendingGrace(t *testing.T) {
	c := newTestEnv(t)
	p := c.pod("one", "a", 0)
	c.record(p, "main", 1)
	k := NewChecker(DefaultGrace)
	steps := []struct {
		after      time.Duration
		record     int
		violations int
	}{{0, 1, 0}, {29 * time.Second, 1, 0}, {30 * time.Second, 1, 1}, {31 * time.Second, 0, 0}, {32 * time.Second, 1, 0}, {70 * time.Second, 1, 1}}
	start := c.Now
	for _, s := range steps {
		c.Now = start.Add(s.after)
		c.topology("a").Status.Allocations[0].GPUs = c.ids("a", s.record)
		r := k.Examine(c.World)
		if len(r.Violations) != s.violations {
			t.Errorf("after %v: %d violations, want %d: %v, pending %v", s.after, len(r.Violations), s.violations, r.Violations, r.Pending)
		}
		if want := s.record == 1 && s.violations == 0; (len(r.Pending) > 0) != want {
			t.Errorf("after %v: pending %v, want some: %t", s.after, r.Pending, want)
		}
	}
}
