// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"maps"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// account is a service account of a namespace; its token is bound to a node
// unless that is empty.
func account(namespace, node string) *user.DefaultInfo {
	info := &user.DefaultInfo{
		Name:   "system:serviceaccount:" + namespace + ":any",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	if node != "" {
		info.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {node}}
	}
	return info
}

func TestNodePolicies(t *testing.T) {
	named := func(namespace, name string) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name, "namespace": namespace}}
	}
	// marked is node n1 with more metadata and one field beside.
	marked := func(meta map[string]any, field string, value any) map[string]any {
		all := map[string]any{"name": "n1"}
		maps.Copy(all, meta)
		out := map[string]any{"metadata": all, "spec": map[string]any{"podCIDR": "10.0.0.0/24"}}
		if field != "" {
			out[field] = value
		}
		return out
	}
	labels := func(pairs ...string) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return map[string]any{"labels": m}
	}
	n1 := account("nvtopo-system", "n1")
	plain := marked(labels("zone", "a"), "", nil)
	tests := map[string]struct {
		request request
		want    string
	}{
		"its own topology":          {request{resource: "nodegputopologies", object: named("", "n1"), user: n1}, ""},
		"its own topology's status": {request{resource: "nodegputopologies", subresource: "status", object: named("", "n1"), old: named("", "n1"), user: n1}, ""},
		"another's topology":        {request{resource: "nodegputopologies", object: named("", "n2"), user: n1}, "bound to node n1 and may not write the NodeGPUTopology of n2"},
		"another's status":          {request{resource: "nodegputopologies", subresource: "status", object: named("", "n2"), old: named("", "n2"), user: n1}, "NodeGPUTopology of n2"},
		"deleting another's":        {request{resource: "nodegputopologies", old: named("", "n2"), user: n1}, "NodeGPUTopology of n2"},
		"its exporter Lease":        {request{resource: "leases", object: named("nvtopo-system", "exporter-n1"), user: n1}, ""},
		"its agent Lease":           {request{resource: "leases", object: named("nvtopo-system", "agent-n1"), old: named("nvtopo-system", "agent-n1"), user: n1}, ""},
		"another's Lease":           {request{resource: "leases", object: named("nvtopo-system", "exporter-n2"), user: n1}, "may not write the Lease nvtopo-system/exporter-n2"},
		"the leader's Lease":        {request{resource: "leases", object: named("nvtopo-system", "nvtopo-scheduler"), user: n1}, "Lease nvtopo-system/nvtopo-scheduler"},
		"its Lease elsewhere":       {request{resource: "leases", object: named("kube-node-lease", "exporter-n1"), user: n1}, "Lease kube-node-lease/exporter-n1"},
		"a token without a node":    {request{resource: "nodegputopologies", object: named("", "n1"), user: account("nvtopo-system", "")}, "not bound to a node"},
		"an account elsewhere":      {request{resource: "leases", object: named("kube-system", "any"), user: account("kube-system", "n1")}, ""},
		"the administrator":         {request{resource: "nodegputopologies", object: named("", "n2")}, ""},
		"the scheduler's Lease":     {request{resource: "leases", object: named("nvtopo-system", "nvtopo-scheduler"), user: n1, may: []string{"write-any nodegputopologies"}}, ""},
		"a label of ours":           {request{resource: "nodes", object: marked(labels("zone", "a", "nvtopo.dev/gpu-count", "8"), "", nil), old: plain, user: n1}, ""},
		"a label for others":        {request{resource: "nodes", object: marked(labels("zone", "a", "accelerator", "x", "gpu-count", "8"), "", nil), old: plain, user: n1}, ""},
		"a label of ours dropped":   {request{resource: "nodes", object: marked(nil, "", nil), old: marked(labels("nvtopo.dev/x", "1"), "", nil), user: n1}, ""},
		"a foreign label":           {request{resource: "nodes", object: marked(labels("zone", "b"), "", nil), old: plain, user: n1}, "metadata.labels: this account may not change zone"},
		"a foreign label dropped":   {request{resource: "nodes", object: marked(nil, "", nil), old: plain, user: n1}, "may not change zone"},
		"a foreign annotation":      {request{resource: "nodes", object: marked(map[string]any{"annotations": map[string]any{"a": "b"}, "labels": labels("zone", "a")["labels"]}, "", nil), old: plain, user: n1}, "metadata.annotations: this account may not change a"},
		"the compat annotation":     {request{resource: "nodes", object: marked(map[string]any{"annotations": map[string]any{"topology.kubernetes.io/gpu-topology": "b"}}, "", nil), old: marked(nil, "", nil), user: n1}, ""},
		"a taint":                   {request{resource: "nodes", object: marked(nil, "spec", map[string]any{"unschedulable": true}), old: marked(nil, "", nil), user: n1}, "labels and annotations only"},
		"a capacity":                {request{resource: "nodes", subresource: "status", object: marked(nil, "status", map[string]any{"capacity": map[string]any{"nvidia.com/gpu": "9"}}), old: marked(nil, "", nil), user: n1}, "labels and annotations only"},
		"a finalizer":               {request{resource: "nodes", object: marked(map[string]any{"finalizers": []any{"a/b"}}, "", nil), old: marked(nil, "", nil), user: n1}, "labels and annotations only"},
		"another node":              {request{resource: "nodes", object: plain, old: plain, user: account("nvtopo-system", "n2")}, "bound to node n2 and may not change node n1"},
		"a new node":                {request{resource: "nodes", object: plain, user: n1}, "neither create nor delete"},
		"deleting its node":         {request{resource: "nodes", old: plain, user: n1}, "neither create nor delete"},
		"no node, a node":           {request{resource: "nodes", object: plain, old: plain, user: account("nvtopo-system", "")}, "not bound to a node"},
		"a kubelet":                 {request{resource: "nodes", object: marked(labels("zone", "b"), "", nil), old: plain}, ""},
	}
	policies := compiledPolicies(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			policy := "nvtopo-node-writes"
			if tc.request.resource == "nodes" {
				policy = "nvtopo-node-marks"
			}
			checkAnswer(t, answer(t, policies, tc.request, policy), tc.want)
		})
	}
}
