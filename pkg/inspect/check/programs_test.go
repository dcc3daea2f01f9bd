// SPDX-License-Identifier: Apache-2.0

package check

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// TestPrograms: a node whose exporter or agent is silent, and one with GPUs and without a graph, are notes.
func TestPrograms(t *testing.T) {
	lease := func(c *testEnv) *coordinationv1.Lease {
		return &c.Leases[slices.IndexFunc(c.Leases, func(l coordinationv1.Lease) bool { return l.Name == nodelease.ExporterPrefix+"a" })]
	}
	silent := func(c *testEnv) *metav1.MicroTime { return new(metav1.NewMicroTime(c.Now.Add(-3 * time.Minute))) }
	drop := func(c *testEnv) {
		c.Topologies = slices.DeleteFunc(c.Topologies, func(t v1alpha1.NodeGPUTopology) bool { return t.Name == "a" })
	}
	// runs has a program run on a node, selected by a label that "a" lacks if it is said so.
	runs := func(c *testEnv, program, node string, selector map[string]string) {
		p := testobj.Pod(program + "-" + node).UID(program + node).Node(node).Phase(v1.PodRunning).Obj()
		p.Labels, p.Spec.NodeSelector = map[string]string{"app.kubernetes.io/name": program}, selector
		c.Pods = append(c.Pods, *p)
	}
	const exporter, nodeAgent = "nvtopo-exporter", "nvtopo-node-agent"
	for name, tc := range map[string]struct {
		change func(c *testEnv)
		want   wanted
	}{
		"all exporters are there": {change: func(*testEnv) {}},
		"a Lease has run out": {
			change: func(c *testEnv) { lease(c).Spec.RenewTime = new(metav1.NewMicroTime(c.Now.Add(-3 * time.Minute))) },
			want: wanted{notes: []string{StaleExporter}, message: "the Lease nvtopo-system/exporter-a was last renewed at 2026-11-21T12:57:00Z; see why its exporter is silent: " +
				"kubectl -n nvtopo-system get lease exporter-a -o custom-columns=LEASE:.metadata.name,HOLDER:.spec.holderIdentity,RENEWED:.spec.renewTime; " +
				"kubectl -n nvtopo-system get pods -o wide -l app.kubernetes.io/name=nvtopo-exporter --field-selector spec.nodeName=a"},
		},
		"a Lease is gone": {
			change: func(c *testEnv) { lease(c).Name = "another" },
			want:   wanted{notes: []string{StaleExporter}, message: "there is no Lease exporter-a of this node"},
		},
		"a Lease is of an earlier node of the name": {
			change: func(c *testEnv) {
				lease(c).OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "a", UID: "earlier"}}
			},
			want: wanted{notes: []string{StaleExporter}, message: "the Lease nvtopo-system/exporter-a is of an earlier node of the name; see why its exporter is silent"},
		},
		"a graph is gone": {change: drop, want: wanted{notes: []string{MissingExporter}, message: "the node has nvidia.com/gpu and no NodeGPUTopology that is its own"}},
		"a graph is of an earlier node of the name": {
			change: func(c *testEnv) { c.Topologies[0].Spec.NodeUID = "earlier" },
			want:   wanted{notes: []string{MissingExporter}, message: "no NodeGPUTopology that is its own"},
		},
		"a node without GPUs needs none": {
			change: func(c *testEnv) { drop(c); c.Nodes[0].Status.Allocatable = v1.ResourceList{} },
		},
		"a Lease of a namespace of its own has run out": {
			change: func(c *testEnv) {
				lease(c).Namespace, lease(c).Spec.RenewTime = "gpus", new(metav1.NewMicroTime(c.Now.Add(-3*time.Minute)))
			},
			want: wanted{notes: []string{StaleExporter}, message: "kubectl -n gpus get lease exporter-a"},
		},
		"an agent's Lease has run out": {
			change: func(c *testEnv) { c.agent().Spec.RenewTime = silent(c) },
			want: wanted{notes: []string{StaleAgent}, message: "stale-agent: Node a (node-a): choices of GPUs are not enforced there, since the Lease nvtopo-system/agent-a was last renewed at 2026-11-21T12:57:00Z; " +
				"see why its node agent is silent: " +
				"kubectl -n nvtopo-system get lease agent-a -o custom-columns=LEASE:.metadata.name,HOLDER:.spec.holderIdentity,RENEWED:.spec.renewTime; " +
				"kubectl -n nvtopo-system get pods -o wide -l app.kubernetes.io/name=nvtopo-node-agent --field-selector spec.nodeName=a"},
		},
		"a node's agent is gone with its Lease": {change: func(c *testEnv) { c.agent().Name = "another" }},
		"an agent's Lease is of an earlier node of the name": {
			change: func(c *testEnv) {
				c.agent().Spec.RenewTime, c.agent().OwnerReferences = silent(c), []metav1.OwnerReference{{Kind: "Node", Name: "a", UID: "earlier"}}
			},
		},
		"an agent of a node without a graph is silent": {
			change: func(c *testEnv) { drop(c); c.agent().Spec.RenewTime = silent(c) },
			want:   wanted{notes: []string{MissingExporter, StaleAgent}},
		},
		"the exporter and the agent of a node are silent": {
			change: func(c *testEnv) { lease(c).Spec.RenewTime, c.agent().Spec.RenewTime = silent(c), silent(c) },
			want:   wanted{notes: []string{StaleAgent, StaleExporter}},
		},
		"a node without a graph lacks the label that exporters want": {
			change: func(c *testEnv) { drop(c); runs(c, exporter, "b", map[string]string{"nvidia.com/gpu.present": "true"}) },
			want: wanted{notes: []string{MissingExporter}, message: "no NodeGPUTopology that is its own; no pod of nvtopo-exporter runs there, since the node lacks the label nvidia.com/gpu.present=true: " +
				"kubectl -n nvtopo-system get pods -o wide -l app.kubernetes.io/name=nvtopo-exporter; kubectl -n nvtopo-system describe daemonset nvtopo-exporter"},
		},
		"a node has a taint that exporters do not tolerate": {
			change: func(c *testEnv) {
				drop(c)
				runs(c, exporter, "b", nil)
				c.Nodes[0].Spec.Taints = []v1.Taint{{Key: "team", Value: "x", Effect: v1.TaintEffectNoSchedule}}
			},
			want: wanted{notes: []string{MissingExporter}, message: "no pod of nvtopo-exporter runs there, since its pods do not tolerate the taint team=x:NoSchedule of the node: kubectl"},
		},
		"an exporter's pod is there": {
			change: func(c *testEnv) { drop(c); runs(c, exporter, "a", nil) },
			want:   wanted{notes: []string{MissingExporter}, message: "see why its exporter is silent: kubectl -n nvtopo-system get lease exporter-a"},
		},
		"no exporter's pod is on the node of a stale graph": {
			change: func(c *testEnv) { lease(c).Spec.RenewTime = silent(c); runs(c, exporter, "b", nil) },
			want:   wanted{notes: []string{StaleExporter}, message: "12:57:00Z; no pod of nvtopo-exporter runs there: kubectl"},
		},
		"a node has no agent, and another has": {
			change: func(c *testEnv) {
				runs(c, nodeAgent, "a", nil)
				c.Nodes[1].Spec.Taints = []v1.Taint{{Key: "team", Value: "x", Effect: v1.TaintEffectNoExecute}}
			},
			want: wanted{notes: []string{MissingAgent}, message: "missing-agent: Node b (node-b): choices of GPUs are not enforced there, since there is no Lease agent-b of this node; " +
				"no pod of nvtopo-node-agent runs there, since its pods do not tolerate the taint team=x:NoExecute of the node: kubectl"},
		},
		"an agent's pod has never renewed a Lease": {
			change: func(c *testEnv) { runs(c, nodeAgent, "b", nil) },
			want:   wanted{notes: []string{MissingAgent}, message: "see why its node agent is silent: kubectl -n nvtopo-system get lease agent-b"},
		},
		"agents are on all nodes with graphs": {
			change: func(c *testEnv) {
				runs(c, nodeAgent, "a", nil)
				c.Topologies, c.Nodes[1].Status.Allocatable = c.Topologies[:1], v1.ResourceList{}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			tc.change(c)
			r := Examine(c.World)
			tc.want.compare(t, r)
		})
	}
}
