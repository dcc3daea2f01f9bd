// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/alias"
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
	hardware, allocations := []string{"report-hardware nodegputopologies"}, []string{"report-allocations nodegputopologies"}
	plain := marked(labels("zone", "a"), "", nil)
	forOthers := []string{
		alias.LabelAccelerator, "nvidia-a100", alias.LabelCount, "8", alias.LabelInterconnect, "nvswitch", alias.LabelNUMANodes, "2",
		alias.LabelGPUsPerNUMA, "4", alias.LabelSingleNUMA4GPUs, "true", alias.LabelSingleNUMA8GPUs, "false",
	}
	tests := map[string]struct {
		request request
		want    string
	}{
		"its own topology":                   {request{resource: "nodegputopologies", object: named("", "n1"), user: n1, may: hardware}, ""},
		"its own topology's status":          {request{resource: "nodegputopologies", subresource: "status", object: named("", "n1"), old: named("", "n1"), user: n1}, ""},
		"another's topology":                 {request{resource: "nodegputopologies", object: named("", "n2"), user: n1}, "bound to node n1 and may not write the NodeGPUTopology of n2"},
		"another's status":                   {request{resource: "nodegputopologies", subresource: "status", object: named("", "n2"), old: named("", "n2"), user: n1}, "NodeGPUTopology of n2"},
		"deleting another's":                 {request{resource: "nodegputopologies", old: named("", "n2"), user: n1}, "NodeGPUTopology of n2"},
		"its exporter Lease":                 {request{resource: "leases", object: named("nvtopo-system", "exporter-n1"), user: n1, may: hardware}, ""},
		"its agent Lease":                    {request{resource: "leases", object: named("nvtopo-system", "agent-n1"), old: named("nvtopo-system", "agent-n1"), user: n1, may: allocations}, ""},
		"the agent's Lease, by the exporter": {request{resource: "leases", object: named("nvtopo-system", "agent-n1"), user: n1, may: hardware}, "may not write the Lease nvtopo-system/agent-n1"},
		"the exporter's Lease, by the agent": {request{resource: "leases", object: named("nvtopo-system", "exporter-n1"), user: n1, may: allocations}, "may not write the Lease nvtopo-system/exporter-n1"},
		"the graph, by the agent":            {request{resource: "nodegputopologies", object: named("", "n1"), old: named("", "n1"), user: n1, may: allocations}, "spec: the graph is the exporter's"},
		"deleting the graph, by the agent":   {request{resource: "nodegputopologies", old: named("", "n1"), user: n1, may: allocations}, "spec: the graph is the exporter's"},
		"another's Lease":                    {request{resource: "leases", object: named("nvtopo-system", "exporter-n2"), user: n1}, "may not write the Lease nvtopo-system/exporter-n2"},
		"the leader's Lease":                 {request{resource: "leases", object: named("nvtopo-system", "nvtopo-scheduler"), user: n1}, "Lease nvtopo-system/nvtopo-scheduler"},
		"its Lease elsewhere":                {request{resource: "leases", object: named("kube-node-lease", "exporter-n1"), user: n1, may: hardware}, "Lease kube-node-lease/exporter-n1"},
		"a token without a node":             {request{resource: "nodegputopologies", object: named("", "n1"), user: account("nvtopo-system", "")}, "not bound to a node"},
		"an account elsewhere":               {request{resource: "leases", object: named("kube-system", "any"), user: account("kube-system", "n1")}, ""},
		"the administrator":                  {request{resource: "nodegputopologies", object: named("", "n2")}, ""},
		"the scheduler's Lease":              {request{resource: "leases", object: named("nvtopo-system", "nvtopo-scheduler"), user: n1, may: []string{"write-any nodegputopologies"}}, ""},
		"a label of ours":                    {request{resource: "nodes", object: marked(labels("zone", "a", "nvtopo.dev/gpu-count", "8"), "", nil), old: plain, user: n1}, ""},
		"a label for others":                 {request{resource: "nodes", object: marked(labels("zone", "a", "accelerator", "x", "gpu-count", "8"), "", nil), old: plain, user: n1}, ""},
		"all labels for others":              {request{resource: "nodes", object: marked(labels(append(forOthers, "zone", "a")...), "", nil), old: plain, user: n1}, ""},
		"a key beside them":                  {request{resource: "nodes", object: marked(labels("zone", "a", "topology.kubernetes.io/region", "b"), "", nil), old: plain, user: n1}, "may not change topology.kubernetes.io/region"},
		"a label of ours dropped":            {request{resource: "nodes", object: marked(nil, "", nil), old: marked(labels("nvtopo.dev/x", "1"), "", nil), user: n1}, ""},
		"a foreign label":                    {request{resource: "nodes", object: marked(labels("zone", "b"), "", nil), old: plain, user: n1}, "metadata.labels: this account may not change zone"},
		"a foreign label dropped":            {request{resource: "nodes", object: marked(nil, "", nil), old: plain, user: n1}, "may not change zone"},
		"a foreign annotation":               {request{resource: "nodes", object: marked(map[string]any{"annotations": map[string]any{"a": "b"}, "labels": labels("zone", "a")["labels"]}, "", nil), old: plain, user: n1}, "metadata.annotations: this account may not change a"},
		"the compat annotation":              {request{resource: "nodes", object: marked(map[string]any{"annotations": map[string]any{"topology.kubernetes.io/gpu-topology": "b"}}, "", nil), old: marked(nil, "", nil), user: n1}, ""},
		"a taint":                            {request{resource: "nodes", object: marked(nil, "spec", map[string]any{"unschedulable": true}), old: marked(nil, "", nil), user: n1}, "labels and annotations only"},
		"a capacity":                         {request{resource: "nodes", subresource: "status", object: marked(nil, "status", map[string]any{"capacity": map[string]any{"nvidia.com/gpu": "9"}}), old: marked(nil, "", nil), user: n1}, "labels and annotations only"},
		"a finalizer":                        {request{resource: "nodes", object: marked(map[string]any{"finalizers": []any{"a/b"}}, "", nil), old: marked(nil, "", nil), user: n1}, "labels and annotations only"},
		"another node":                       {request{resource: "nodes", object: plain, old: plain, user: account("nvtopo-system", "n2")}, "bound to node n2 and may not change node n1"},
		"a new node":                         {request{resource: "nodes", object: plain, user: n1}, "neither create nor delete"},
		"deleting its node":                  {request{resource: "nodes", old: plain, user: n1}, "neither create nor delete"},
		"no node, a node":                    {request{resource: "nodes", object: plain, old: plain, user: account("nvtopo-system", "")}, "not bound to a node"},
		"a kubelet":                          {request{resource: "nodes", object: marked(labels("zone", "b"), "", nil), old: plain}, ""},
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

// TestNodeEventsPolicy: a node agent writes events about pods in its own name only.
func TestNodeEventsPolicy(t *testing.T) {
	// event is what the agent of n1 writes, with fields replaced, or dropped if there is no value.
	event := func(change map[string]any) map[string]any {
		out := map[string]any{
			"metadata": map[string]any{"name": "p.1", "namespace": "team"}, "type": "Warning", "reason": "GPUsSwapped", "action": "Verifying", "note": "x",
			"reportingController": "nvtopo-node-agent", "reportingInstance": "n1",
			"regarding": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "p", "uid": "u"},
		}
		for field, value := range change {
			out[field] = value
			if value == nil {
				delete(out, field)
			}
		}
		return out
	}
	one := func(field string, value any) map[string]any { return event(map[string]any{field: value}) }
	about := func(version, kind string) map[string]any {
		return one("regarding", map[string]any{"apiVersion": version, "kind": kind, "namespace": "team", "name": "p"})
	}
	n1, allocations := account("nvtopo-system", "n1"), []string{"report-allocations nodegputopologies"}
	long := strings.Repeat("n", 253)
	const name, pods, reasons = "may only write events of nvtopo-node-agent on n1", "about Pods of v1", "the Warnings of docs/events.md"
	tests := map[string]struct {
		request request
		want    string
	}{
		"its own event":                  {request{object: event(nil), user: n1, may: allocations}, ""},
		"its own event, counted":         {request{object: one("series", map[string]any{"count": int64(2)}), old: event(nil), user: n1, may: allocations}, ""},
		"an event of 1 KiB":              {request{object: one("note", strings.Repeat("x", 1024)), user: n1, may: allocations}, ""},
		"a node's name that is too long": {request{object: one("reportingInstance", long[:128]), user: account("nvtopo-system", long), may: allocations}, ""},
		"another node's name":            {request{object: one("reportingInstance", "n2"), user: n1, may: allocations}, name},
		"no node's name":                 {request{object: one("reportingInstance", nil), user: n1, may: allocations}, name},
		"the scheduler's name":           {request{object: one("reportingController", "nvtopo-scheduler"), user: n1, may: allocations}, name},
		"no controller":                  {request{object: one("reportingController", nil), user: n1, may: allocations}, name},
		"another node's event, counted":  {request{object: event(nil), old: one("reportingInstance", "n2"), user: n1, may: allocations}, name},
		"the kubelet's event taken over": {request{object: event(nil), old: one("reportingController", "kubelet"), user: n1, may: allocations}, name},
		"an event about a Node":          {request{object: about("v1", "Node"), user: n1, may: allocations}, pods},
		"an event about another Pod":     {request{object: about("example.com/v1", "Pod"), user: n1, may: allocations}, pods},
		"an event about nothing":         {request{object: one("regarding", nil), user: n1, may: allocations}, pods},
		"an event with somebody else":    {request{object: one("related", map[string]any{"kind": "Secret", "name": "s"}), user: n1, may: allocations}, pods},
		"another reason":                 {request{object: one("reason", "FailedScheduling"), user: n1, may: allocations}, reasons},
		"no reason":                      {request{object: one("reason", nil), user: n1, may: allocations}, reasons},
		"good news":                      {request{object: one("type", "Normal"), user: n1, may: allocations}, reasons},
		"more than 1 KiB":                {request{object: one("note", strings.Repeat("x", 1025)), user: n1, may: allocations}, "note: want at most 1024 bytes"},
		"more than 1 KiB in letters":     {request{object: one("note", strings.Repeat("é", 513)), user: n1, may: allocations}, "note: want at most 1024 bytes"},
		"the exporter":                   {request{object: event(nil), user: n1, may: []string{"report-hardware nodegputopologies"}}, "events are the node agent's"},
		"a token without a node":         {request{object: event(nil), user: account("nvtopo-system", ""), may: allocations}, "not bound to a node"},
		"the scheduler":                  {request{object: one("reportingController", "nvtopo-scheduler"), user: n1, may: []string{"write-any nodegputopologies"}}, ""},
		"an account elsewhere":           {request{object: one("reason", "Pulled"), user: account("kube-system", "n1")}, ""},
		"a kubelet":                      {request{object: one("reason", "Pulled")}, ""},
	}
	policies := compiledPolicies(t)
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tc.request.resource = "events"
			checkAnswer(t, answer(t, policies, tc.request, "nvtopo-node-events"), tc.want)
		})
	}
	// The reasons are those that docs/events.md has as the agent's.
	page, err := os.ReadFile("../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	agents := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 4 || !strings.HasPrefix(cells[0], "`") {
			continue
		}
		want := reasons
		if strings.Contains(cells[3], "node agent") {
			agents++
			want = ""
		}
		r := request{resource: "events", object: event(map[string]any{"reason": strings.Trim(cells[0], "`"), "type": "Warning"}), user: n1, may: allocations}
		checkAnswer(t, answer(t, policies, r, "nvtopo-node-events"), want)
	}
	if agents != 7 {
		t.Errorf("docs/events.md has %d reasons of the node agent, want 7", agents)
	}
}

// TestStatusOwnership: each account has its part of the status. The exporter's and the agent's
// writes go to one status, of which each owns a part.
func TestStatusOwnership(t *testing.T) {
	condition := func(kind, status string) map[string]any { return map[string]any{"type": kind, "status": status} }
	conditions := func(list ...any) map[string]any { return map[string]any{"conditions": list} }
	allocation := func(gpu string) []any {
		return []any{map[string]any{"podUID": "u", "container": "c", "resource": "nvidia.com/gpu", "gpus": []any{gpu}, "state": "confirmed"}}
	}
	full := map[string]any{
		"conditions": []any{condition("Ready", "True"), condition("Enforced", "True"), condition("Pinned", "False")},
		"gpuHealth":  []any{map[string]any{"id": "GPU-0", "healthy": false}}, "summary": map[string]any{"gpus": int64(8)},
		"kubelet": map[string]any{"topologyManagerPolicy": "none"}, "allocations": allocation("GPU-0"),
	}
	// with is full with one field replaced, or dropped if there is no value.
	with := func(field string, value any) map[string]any {
		out := maps.Clone(full)
		out[field] = value
		if value == nil {
			delete(out, field)
		}
		return out
	}
	const theirs, agents, schedulers = "are the exporter's", "are the node agent's", "is the scheduler's"
	tests := map[string]struct {
		old, status map[string]any
		want        string // whose it is; empty: nobody's in particular
	}{
		"nothing changed":               {full, full, ""},
		"an empty status":               {nil, map[string]any{}, ""},
		"conditions in another order":   {full, with("conditions", []any{condition("Pinned", "False"), condition("Enforced", "True"), condition("Ready", "True")}), ""},
		"the first allocation":          {nil, map[string]any{"allocations": allocation("GPU-0")}, agents},
		"another GPU in an allocation":  {full, with("allocations", allocation("GPU-1")), agents},
		"no allocation any more":        {full, with("allocations", nil), agents},
		"kubelet's policy":              {full, with("kubelet", map[string]any{"topologyManagerPolicy": "restricted"}), agents},
		"kubelet's policy dropped":      {full, with("kubelet", nil), agents},
		"the first Enforced":            {conditions(condition("Ready", "True")), conditions(condition("Ready", "True"), condition("Enforced", "True")), agents},
		"Enforced turns false":          {full, with("conditions", []any{condition("Ready", "True"), condition("Enforced", "False"), condition("Pinned", "False")}), agents},
		"Pinned dropped":                {full, with("conditions", []any{condition("Ready", "True"), condition("Enforced", "True")}), agents},
		"Ready turns false":             {full, with("conditions", []any{condition("Ready", "False"), condition("Enforced", "True"), condition("Pinned", "False")}), theirs},
		"Ready dropped":                 {full, with("conditions", []any{condition("Enforced", "True"), condition("Pinned", "False")}), theirs},
		"a condition that nobody knows": {full, with("conditions", []any{condition("Ready", "True"), condition("Enforced", "True"), condition("Pinned", "False"), condition("New", "True")}), theirs},
		"a cordon acknowledged": {
			full, with("conditions", []any{condition("Ready", "True"), condition("Enforced", "True"), condition("Pinned", "False"), condition("CordonAcknowledged", "True")}), schedulers,
		},
		"a cordon acknowledged that was not": {
			conditions(condition("CordonAcknowledged", "False")), conditions(condition("CordonAcknowledged", "True")), schedulers,
		},
		"a GPU that looks healthy again": {full, with("gpuHealth", nil), theirs},
		"the summary":                    {full, with("summary", map[string]any{"gpus": int64(9)}), theirs},
	}
	policies := compiledPolicies(t)
	verbs := map[string]string{theirs: "report-hardware nodegputopologies", agents: "report-allocations nodegputopologies"}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			object := func(status map[string]any) map[string]any {
				out := map[string]any{"metadata": map[string]any{"name": "n1"}, "spec": map[string]any{"nodeUID": "x"}}
				if status != nil {
					out["status"] = status
				}
				return out
			}
			for owner, verb := range verbs {
				want := tc.want
				if want == owner {
					want = ""
				}
				r := request{
					resource: "nodegputopologies", subresource: "status", object: object(tc.status), old: object(tc.old),
					user: account("nvtopo-system", "n1"), may: []string{verb},
				}
				checkAnswer(t, answer(t, policies, r, "nvtopo-node-writes"), want)
			}
		})
	}
}

// TestStatusCost: the greatest status is affordable. The API server stops a policy that computes
// for too long, and then refuses the request.
func TestStatusCost(t *testing.T) {
	const allocations, gpus = 1024, 64 // the schema's limits
	object := func(state string) map[string]any {
		list := make([]any, allocations)
		for i := range list {
			ids := make([]any, gpus)
			for j := range ids {
				ids[j] = fmt.Sprintf("GPU-%08d-%04d", i, j)
			}
			last := "confirmed"
			if i == allocations-1 {
				last = state
			}
			list[i] = map[string]any{
				"podUID": fmt.Sprintf("uid-%d", i), "namespace": "default", "pod": fmt.Sprintf("pod-%d", i), "container": "main",
				"resource": "nvidia.com/gpu", "gpus": ids, "state": last,
			}
		}
		return map[string]any{
			"metadata": map[string]any{"name": "n1"}, "spec": map[string]any{"nodeUID": "x"},
			"status": map[string]any{"allocations": list, "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}},
		}
	}
	policies := compiledPolicies(t)
	for verb, want := range map[string]string{"report-allocations nodegputopologies": "", "report-hardware nodegputopologies": "are the node agent's"} {
		r := request{
			resource: "nodegputopologies", subresource: "status", object: object("swapped"), old: object("confirmed"),
			user: account("nvtopo-system", "n1"), may: []string{verb},
		}
		checkAnswer(t, answer(t, policies, r, "nvtopo-node-writes"), want)
	}
}
