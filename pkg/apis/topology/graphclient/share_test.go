// SPDX-License-Identifier: Apache-2.0

package graphclient

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

func decodedObject(tb testing.TB, machine string) *v1alpha1.NodeGPUTopology {
	tb.Helper()
	obj := &v1alpha1.NodeGPUTopology{}
	if err := json.Unmarshal(objectOf(tb, machine), obj); err != nil {
		tb.Fatal(err)
	}
	return obj
}

// TestListSharing: equal machines share their lists.
func TestListSharing(t *testing.T) {
	for name, tc := range map[string]struct {
		change     func(*v1alpha1.NodeGPUTopologySpec)
		wantShared bool
	}{
		"the same":           {change: func(*v1alpha1.NodeGPUTopologySpec) {}, wantShared: true},
		"other GPUs":         {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.GPUs[0].ID = "GPU-x" }, wantShared: true},
		"another bandwidth":  {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.LinkKinds[0].Bandwidth = resource.MustParse("1G") }},
		"another kind":       {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.LinkKinds[0].Lanes = 17 }},
		"another row":        {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.LinkRows[6] = "SYS" }},
		"other CPUs":         {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.NUMANodes[0].CPUs = "0-1" }},
		"another NUMA node":  {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.NUMANodes[1].ID = 5 }},
		"another core":       {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.NUMANodes[0].Siblings = []string{"7"} }},
		"other threads":      {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.NUMANodes[0].ThreadsPerCore = 1 }},
		"other memory":       {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.NUMANodes[0].Memory = new(resource.MustParse("1Gi")) }},
		"no memory":          {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.NUMANodes[0].Memory = nil }},
		"another distance":   {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.NUMANodes[0].Distances[1] = 99 }},
		"another adapter":    {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.NICs[0].Name = "x" }},
		"it is elsewhere":    {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.NICs[0].NUMANode = 1 }},
		"another PCIe level": {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.NICs[0].Distances[7] = "PIX" }},
		"no adapters":        {change: func(s *v1alpha1.NodeGPUTopologySpec) { s.NICs = nil }},
	} {
		t.Run(name, func(t *testing.T) {
			var m machines
			first, second := decodedObject(t, "dgx-h100"), decodedObject(t, "dgx-h100")
			tc.change(&second.Spec)
			want := second.DeepCopy()
			for _, obj := range []*v1alpha1.NodeGPUTopology{first, second} {
				if _, err := m.transform(obj); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, second); diff != "" {
				t.Errorf("it is another (-before,+after):\n%s", diff)
			}
			if got := &first.Spec.NUMANodes[0] == &second.Spec.NUMANodes[0]; got != tc.wantShared {
				t.Errorf("shared: %t, want %t", got, tc.wantShared)
			}
		})
	}
}

// TestSharedQuantities: the first call of String writes into a quantity, and several goroutines read those of
// shared lists. They have their text before they are shared, and machines that differ by it alone are equal.
func TestSharedQuantities(t *testing.T) {
	var m machines
	first, second := decodedObject(t, "dgx-h100"), decodedObject(t, "dgx-h100")
	clear := func(q *resource.Quantity) { *q = *resource.NewQuantity(q.Value(), q.Format) } // as if it had come in bytes
	for _, obj := range []*v1alpha1.NodeGPUTopology{first, second} {
		for i := range obj.Spec.NUMANodes {
			clear(obj.Spec.NUMANodes[i].Memory)
		}
		for i := range obj.Spec.LinkKinds {
			clear(&obj.Spec.LinkKinds[i].Bandwidth)
		}
	}
	_ = first.Spec.LinkKinds[0].Bandwidth.String() // somebody printed it
	for _, obj := range []*v1alpha1.NodeGPUTopology{first, second} {
		if _, err := m.transform(obj); err != nil {
			t.Fatal(err)
		}
	}
	if &first.Spec.NUMANodes[0] != &second.Spec.NUMANodes[0] {
		t.Error("machines that differ in the text that quantities keep do not share their lists")
	}
	for _, q := range []*resource.Quantity{first.Spec.NUMANodes[0].Memory, &first.Spec.LinkKinds[0].Bandwidth} {
		before := *q
		if text := q.String(); *q != before {
			t.Errorf("String of %s has changed a shared quantity", text)
		}
	}
}

// TestComparedFields fails when a field is added that sameMachine does not
// know: machines that differ in it would become one.
func TestComparedFields(t *testing.T) {
	for _, tc := range []struct {
		of     any
		fields int
	}{{v1alpha1.NodeGPUTopologySpec{}, 7}, {v1alpha1.NUMANode{}, 6}, {v1alpha1.NIC{}, 3}} {
		if got := reflect.TypeOf(tc.of).NumField(); got != tc.fields {
			t.Errorf("%T has %d fields, %d are known here", tc.of, got, tc.fields)
		}
	}
}

// TestMachineMemory: few machines are remembered.
func TestMachineMemory(t *testing.T) {
	var m machines
	for i := range 5 * keptMachines {
		obj := decodedObject(t, "l40s-8")
		obj.Spec.NUMANodes[0].ID = int32(i)
		if _, err := m.transform(obj); err != nil {
			t.Fatal(err)
		}
		if kept := len(m.recent); kept != min(i+1, keptMachines) || m.recent[0].NUMANodes[0].ID != int32(i) {
			t.Fatalf("after %d there are %d, the last of which is %d", i+1, kept, m.recent[0].NUMANodes[0].ID)
		}
	}
}
