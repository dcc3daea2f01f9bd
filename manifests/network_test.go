// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// TestNetworkPolicies: each program's pods are in one policy, which lets others connect to the
// program's own port and limits nothing that the program connects to.
func TestNetworkPolicies(t *testing.T) {
	var policies []*networkingv1.NetworkPolicy
	for _, list := range objects(t) {
		for _, obj := range list {
			if p, ok := obj.(*networkingv1.NetworkPolicy); ok {
				policies = append(policies, p)
			}
		}
	}
	metrics := &metav1.LabelSelector{MatchLabels: map[string]string{"nvtopo.dev/metrics": "true"}}
	wantFrom := map[string][]networkingv1.NetworkPolicyPeer{
		"nvtopo-scheduler": {{NamespaceSelector: metrics}}, "nvtopo-exporter": {{NamespaceSelector: metrics}}, "nvtopo-node-agent": {{NamespaceSelector: metrics}},
		"nvtopo-pool-controller": {{NamespaceSelector: metrics}},
		"nvtopo-ui":              nil, // people, from anywhere
	}
	all := workloads(t)
	for name, w := range all {
		t.Run(name, func(t *testing.T) {
			var of []*networkingv1.NetworkPolicy
			for _, p := range policies {
				selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
				if err != nil {
					t.Fatal(err)
				}
				if p.Namespace == "nvtopo-system" && selector.Matches(labels.Set(w.meta.Labels)) {
					of = append(of, p)
				}
			}
			if len(of) != 1 {
				t.Fatalf("%d policies select its pods, want 1", len(of))
			}
			spec := of[0].Spec
			if diff := cmp.Diff([]networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, spec.PolicyTypes); diff != "" || len(spec.Egress) > 0 {
				t.Errorf("the policy limits more than who connects: %s", diff)
			}
			if len(spec.Ingress) != 1 {
				t.Fatalf("%d rules, want 1", len(spec.Ingress))
			}
			if diff := cmp.Diff(wantFrom[name], spec.Ingress[0].From); diff != "" {
				t.Errorf("who may connect (-want +got):\n%s", diff)
			}
			for _, port := range w.spec.Containers[0].Ports {
				if !slices.ContainsFunc(spec.Ingress[0].Ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntVal == port.ContainerPort }) {
					t.Errorf("nobody may connect to port %d", port.ContainerPort)
				}
			}
		})
	}
	ports := 0
	for _, p := range policies {
		ports += len(p.Spec.Ingress[0].Ports)
	}
	if ports != len(all) {
		t.Errorf("%d ports are open, want %d: one of each program", ports, len(all))
	}
}

// TestControlPlaneNodes: scheduler and pool controller prefer a node without GPUs, and run on one with
// GPUs where there is no other.
func TestControlPlaneNodes(t *testing.T) {
	node := func(labels map[string]string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
	}
	nodes := map[string]struct {
		labels    map[string]string
		preferred bool
	}{
		"a node without GPUs":                        {map[string]string{"zone": "a"}, true},
		"a node that NVIDIA's labels deny GPUs":      {map[string]string{"nvidia.com/gpu.present": "false"}, true},
		"a node with GPUs by NVIDIA's labels":        {map[string]string{"nvidia.com/gpu.present": "true"}, false},
		"a node with GPUs that an exporter labelled": {map[string]string{v1alpha1.LabelGPUCount: "8"}, false},
	}
	all := workloads(t)
	for _, program := range []string{"nvtopo-scheduler", "nvtopo-pool-controller"} {
		affinity := all[program].spec.Affinity.NodeAffinity
		if affinity == nil {
			t.Errorf("%s prefers no nodes", program)
			continue
		}
		if affinity.RequiredDuringSchedulingIgnoredDuringExecution != nil || all[program].spec.NodeSelector != nil {
			t.Errorf("%s does not run on every node", program)
		}
		terms, err := nodeaffinity.NewPreferredSchedulingTerms(affinity.PreferredDuringSchedulingIgnoredDuringExecution)
		if err != nil {
			t.Fatal(err)
		}
		for name, tc := range nodes {
			if got := terms.Score(node(tc.labels)) > 0; got != tc.preferred {
				t.Errorf("%s prefers %s: %t, want %t", program, name, got, tc.preferred)
			}
		}
	}
}
