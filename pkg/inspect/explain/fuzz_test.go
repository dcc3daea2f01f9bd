// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// FuzzAdd: whatever objects are read, all that is in them is explained, with a state and, of what
// waits, a cause.
func FuzzAdd(f *testing.F) {
	w := newTestEnv()
	w.node(f, "n0", "a100-pcie-4-bridged", nil).holds(f, "a", "n0", 0, 2)
	w.waits(pod("asks", 2).Annotation(podrequest.MinLinkKey, "NV12").Obj())
	w.group("train", 2, []*v1.Pod{pod("m0", 1).Obj(), pod("m1", 3).Obj()}, gangrequest.RequiredKey, "rack")
	items := []any{}
	add := func(version, kind string, object any) {
		data, err := json.Marshal(object)
		if err != nil {
			f.Fatal(err)
		}
		fields := map[string]any{}
		if err := json.Unmarshal(data, &fields); err != nil {
			f.Fatal(err)
		}
		fields["apiVersion"], fields["kind"] = version, kind
		items = append(items, fields)
	}
	for i := range w.Pods {
		add("v1", "Pod", &w.Pods[i])
	}
	add("v1", "Node", &w.Nodes[0])
	add("topology.nvtopo.dev/v1alpha1", "NodeGPUTopology", &w.Topologies[0])
	add("coordination.k8s.io/v1", "Lease", &w.Leases[0])
	add("scheduling.x-k8s.io/v1alpha1", "PodGroup", &w.PodGroups[0])
	seed, err := json.Marshal(map[string]any{"kind": "List", "items": items})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte("kind: Pod\napiVersion: v1\nmetadata: {name: p}\n---\nnull\n"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","spec":{"nodeName":"n"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		w := &World{Objects: clusterobjects.Objects{Now: now}, Profiles: []Profile{ShippedProfile()}}
		if w.Add(data) != nil || len(w.Pods)+len(w.Nodes) > 20 {
			return
		}
		for i := range w.Pods {
			e, err := Pod(w, w.Pods[i].Namespace, w.Pods[i].Name)
			if err != nil || e.State == "" || e.State == Pending && (e.Cause == "" || e.Reason == "") {
				t.Errorf("pod %s is explained as %+v, %v", w.Pods[i].Name, e, err)
			}
		}
		for i := range w.PodGroups {
			if _, err := PodGroup(w, w.PodGroups[i].Namespace, w.PodGroups[i].Name); err != nil {
				t.Error(err)
			}
		}
	})
}
