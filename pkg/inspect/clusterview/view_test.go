// SPDX-License-Identifier: Apache-2.0

package clusterview_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

func sample(t *testing.T) *viewtest.Cluster {
	t.Helper()
	c, err := viewtest.Sample()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// states are the GPUs of a node in one line.
func states(n *clusterview.Node) string {
	var out []string
	for i := range n.GPUs {
		g := &n.GPUs[i]
		out = append(out, strings.TrimSpace(fmt.Sprintf("%d %s %s", g.Index, g.State, strings.Join(g.Pods, "+"))))
	}
	return strings.Join(out, ", ")
}

// TestHolders: the view tells who holds what.
func TestHolders(t *testing.T) {
	c := sample(t)
	// A pod that is gone, whose GPU kubelet still has on record by an agent that lives.
	agent := c.Leases[0]
	agent.Name = nodelease.AgentPrefix + "h100-1"
	agent.OwnerReferences = slices.Clone(agent.OwnerReferences)
	agent.OwnerReferences[0].UID = "uid-h100-1"
	c.Leases = append(c.Leases, agent)
	top := c.Topology("h100-1")
	top.Status.Allocations = []v1alpha1.Allocation{{
		PodUID: "gone", Namespace: "default", Pod: "past", Container: "main", Resource: v1alpha1.DefaultResource, GPUs: []string{top.Spec.GPUs[6].ID},
	}}
	c.Nodes[0].Spec.Unschedulable = true
	// A GPU that fails under its pod.
	failing := c.Topology("h100-2")
	failing.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: failing.Spec.GPUs[7].ID, Reason: "Xid79"}}
	v := clusterview.Of(&c.Objects, clusterview.Options{})
	got := map[string]string{}
	for _, n := range v.Nodes {
		got[n.Name] = states(n)
	}
	want := map[string]string{
		"h100-0": "0 used default/notebook-a, 1 free, 2 free, 3 free, 4 free, 5 used default/notebook-b, 6 free, 7 free",
		"h100-1": "0 free, 1 free, 2 used default/infer-0, 3 used default/infer-0, 4 free, 5 free, 6 used default/past, 7 free",
		"h100-2": "0 used default/train-0, 1 used default/train-0, 2 used default/train-0, 3 used default/train-0, 4 used default/pinned, 5 free, 6 free, 7 unhealthy default/database",
		"v100-0": "0 used default/train-1, 1 used default/train-1, 2 used default/train-1, 3 used default/train-1, 4 free, 5 free, 6 free, 7 unhealthy",
		"pcie-0": "0 free, 1 free, 2 free, 3 free",
		"old-0":  "0 used default/legacy, 1 used default/legacy, 2 free, 3 free, 4 free, 5 free, 6 free, 7 free",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GPUs (-want,+got):\n%s", diff)
	}
	if s := v.Node("h100-2").Supply; s.UsedGPUs != 6 || s.BadGPUs != 1 || s.FreeGPUs != 2 {
		t.Errorf("h100-2 has %d used, %d bad and %d free, want 6, 1 and 2", s.UsedGPUs, s.BadGPUs, s.FreeGPUs)
	}
	type said struct{ Closed, NoGraph, Pods string }
	nodes := map[string]said{}
	for _, n := range v.Nodes {
		var pods []string
		for i := range n.Pods {
			p := &n.Pods[i]
			pods = append(pods, fmt.Sprintf("%s %v+%d %s: %s", p.Name, p.GPUs, p.Counted, p.Gang, p.Unmovable))
		}
		nodes[n.Name] = said{n.Closed, n.NoGraph, strings.Join(pods, "; ")}
	}
	wantNodes := map[string]said{
		"h100-0": {Closed: "cordoned", Pods: "notebook-a [0]+0 : ; notebook-b [5]+0 : "},
		"h100-1": {Pods: "infer-0 [2 3]+0 : ; past [6]+0 : the pod is gone, and kubelet has yet to release its GPUs"},
		"h100-2": {Pods: "database [7]+0 : a PodDisruptionBudget allows no disruption; pinned [4]+0 : annotation nvtopo.dev/movable is false; " +
			"train-0 [0 1 2 3]+0 gang default/train: it is a member of gang default/train"},
		"v100-0": {Pods: "train-1 [0 1 2 3]+0 gang default/train: it is a member of gang default/train"},
		"pcie-0": {Pods: "foreign []+1 : the scheduler did not choose its GPUs"},
		"old-0":  {NoGraph: "its graph is stale: the exporter's Lease has run out", Pods: "legacy [0 1]+0 : "},
	}
	if diff := cmp.Diff(wantNodes, nodes); diff != "" {
		t.Errorf("nodes (-want,+got):\n%s", diff)
	}
	if want := []string{`node "old-0": its graph is stale: the exporter's Lease has run out`}; !slices.Equal(v.Problems, want) {
		t.Errorf("problems %q, want %q", v.Problems, want)
	}
}

// TestStaleReason: the Lease of the exporter says whether a graph is stale, as it does to the scheduler. The condition,
// which a scheduler writes a while later, counts only where no Leases were read.
func TestStaleReason(t *testing.T) {
	stale := []metav1.Condition{{Type: v1alpha1.ConditionStale, Status: metav1.ConditionTrue}}
	byServer := func(c *viewtest.Cluster, at time.Time) {
		c.Leases[1].ManagedFields = []metav1.ManagedFieldsEntry{{
			Operation: metav1.ManagedFieldsOperationApply, Time: new(metav1.NewTime(at)), FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:renewTime":{}}}`)},
		}}
	}
	for name, tc := range map[string]struct {
		change func(c *viewtest.Cluster)
		node   string
		want   string
	}{
		"the Lease has run out":                      {node: "old-0", want: "its graph is stale: the exporter's Lease has run out"},
		"the Lease has run out, and a condition too": {change: func(c *viewtest.Cluster) { c.Topology("old-0").Status.Conditions = stale }, node: "old-0", want: "its graph is stale: the exporter's Lease has run out"},
		"an exporter came back, and the condition is still there": {
			change: func(c *viewtest.Cluster) { c.Topology("h100-1").Status.Conditions = stale }, node: "h100-1",
		},
		"no Leases were read": {
			change: func(c *viewtest.Cluster) { c.Leases, c.Topology("h100-1").Status.Conditions = nil, stale }, node: "h100-1", want: "its graph is stale",
		},
		"no Leases were read, and no scheduler has written": {change: func(c *viewtest.Cluster) { c.Leases = nil }, node: "h100-1"},
		"the cluster has no Lease of any exporter": {
			change: func(c *viewtest.Cluster) {
				c.Leases, c.LeasesKnown = c.Leases[:1], true
				c.Leases[0].Name = "nvtopo-scheduler"
			}, node: "h100-1", want: "its graph is stale: there is no Lease exporter-h100-1",
		},
		"the Leases are in another namespace": {
			change: func(c *viewtest.Cluster) { c.Leases, c.LeasesKnown = nil, true }, node: "h100-1",
		},
		"a node whose clock is an hour behind": {
			change: func(c *viewtest.Cluster) {
				c.Leases[1].Spec.RenewTime = new(metav1.NewMicroTime(c.Now.Add(-time.Hour)))
				byServer(c, c.Now.Add(-time.Minute))
			}, node: "h100-1",
		},
		"a node whose clock is an hour ahead": {
			change: func(c *viewtest.Cluster) {
				c.Leases[1].Spec.RenewTime = new(metav1.NewMicroTime(c.Now.Add(time.Hour)))
				byServer(c, c.Now.Add(-3*time.Minute))
			}, node: "h100-1", want: "its graph is stale: the exporter's Lease has run out",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := sample(t)
			if tc.change != nil {
				tc.change(c)
			}
			if got := clusterview.Of(&c.Objects, clusterview.Options{}).Node(tc.node).NoGraph; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestExcludedDomain: an excluded domain is open to pods. Exclusion stops members of gangs alone,
// so that what is free there counts as anywhere.
func TestExcludedDomain(t *testing.T) {
	before := clusterview.Of(&sample(t).Objects, clusterview.Options{})
	c := sample(t)
	for _, d := range before.Tree().Domains(1) {
		if d.Name != "" {
			c.ClusterTopology.Spec.Excluded = append(c.ClusterTopology.Spec.Excluded, v1alpha1.ExcludedDomain{Level: before.Levels[0], Domain: d.Path, Reason: "cooling"})
		}
	}
	v := clusterview.Of(&c.Objects, clusterview.Options{})
	var excluded int
	for _, d := range v.Tree().Domains(1) {
		if d.Excluded != "" {
			excluded++
		}
	}
	if excluded == 0 {
		t.Fatal("the sample has no domain that could be excluded")
	}
	if diff := cmp.Diff(before.Supply, v.Supply, cmpopts.IgnoreUnexported(clusterview.Linked{})); diff != "" {
		t.Errorf("supply without and with excluded domains (-,+):\n%s", diff)
	}
	for _, n := range v.Nodes {
		if want := before.Node(n.Name).Closed; n.Closed != want {
			t.Errorf("%s is closed because %q, want %q", n.Name, n.Closed, want)
		}
	}
}

// TestImmovablePods: the view tells why a pod must stay.
func TestImmovablePods(t *testing.T) {
	tests := map[string]struct {
		change func(p *v1.Pod)
		want   string
	}{
		"a pod of a ReplicaSet": {func(*v1.Pod) {}, ""},
		"movable, said so":      {func(p *v1.Pod) { p.Annotations["nvtopo.dev/movable"] = "true" }, ""},
		"a word nobody reads":   {func(p *v1.Pod) { p.Annotations["nvtopo.dev/movable"] = "never" }, `annotation nvtopo.dev/movable: "never" is neither true nor false`},
		"a pod of nobody":       {func(p *v1.Pod) { p.OwnerReferences = nil }, "no controller would make it again"},
		"a DaemonSet's":         {func(p *v1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }, "it belongs on its node (DaemonSet)"},
		"being deleted":         {func(p *v1.Pod) { p.DeletionTimestamp = &p.CreationTimestamp }, "it is being deleted"},
		"an allocation of another pod": {
			func(p *v1.Pod) { p.UID = types.UID("other") }, "the scheduler did not choose its GPUs",
		},
		"spread over zones": {func(p *v1.Pod) {
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{WhenUnsatisfiable: v1.DoNotSchedule}}
		}, "its place depends on other pods (affinity or topology spread)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := viewtest.New()
			if err := c.AddNode("n", "dgx-h100"); err != nil {
				t.Fatal(err)
			}
			tc.change(c.AddPod("p", "n", 1, 3))
			v := clusterview.Of(&c.Objects, clusterview.Options{})
			if got := v.Node("n").Pods[0].Unmovable; got != tc.want {
				t.Errorf("it must stay because %q, want %q", got, tc.want)
			}
		})
	}
}

// TestGroups: the groups together are the cluster.
func TestGroups(t *testing.T) {
	v := clusterview.Of(&sample(t).Objects, clusterview.Options{})
	var lines func(g *clusterview.Group, indent string) []string
	lines = func(g *clusterview.Group, indent string) []string {
		out := []string{fmt.Sprintf("%s%s %s %d/%d", indent, g.Level, g.Name, g.Supply.UsedGPUs, g.Supply.GPUs)}
		for i := range g.Groups {
			out = append(out, lines(&g.Groups[i], indent+"  ")...)
		}
		return out
	}
	for _, tc := range []struct {
		levels []string
		want   []string
		err    string
	}{
		{levels: []string{"spine"}, want: []string{"cluster cluster 17/44", "  spine s0 14/32", "  spine s1 3/12"}},
		{levels: []string{"rack", "pod"}, want: []string{
			"cluster cluster 17/44", "  rack r0 4/16", "    pod default/notebook-a 1/1", "    pod default/notebook-b 1/1", "    pod default/infer-0 2/2",
			"  rack r1 10/16", "    pod default/database 1/1", "    pod default/pinned 1/1", "    pod default/train-0 4/4", "    pod default/train-1 4/4",
			"  rack r2 3/12", "    pod default/legacy 2/2", "    pod default/foreign 1/1",
		}},
		{levels: []string{"row"}, err: `no level "row": want some of spine, rack, node, pod`},
		{levels: []string{"rack", "rack"}, err: `level "rack" twice`},
	} {
		g, err := v.Group(tc.levels)
		if tc.err != "" {
			if err == nil || err.Error() != tc.err {
				t.Errorf("%v: %v, want %s", tc.levels, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, lines(g, "")); diff != "" {
			t.Errorf("%v (-want,+got):\n%s", tc.levels, diff)
		}
	}
	all, err := v.Group(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := lines(all, ""); len(got) != 1+2+3+6+9 {
		t.Errorf("by all levels:\n%s", strings.Join(got, "\n"))
	}
}
