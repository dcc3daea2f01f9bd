// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// TestLinkSnapshot: class and bandwidth are those of the choice. They were computed when it was written,
// from the graph at that time: after a link failed since Reserve they described a ring that the pod was
// not chosen for, and no event reported that its ring got slower.
func TestLinkSnapshot(t *testing.T) {
	r := newTestEnv(t, "dgx1-v100")
	pod := schedtest.Pod("p").GPUs(2).Obj()
	info, l := r.view(t)
	a, reason := r.Allocations.Assume(demandOf(t, pod), pod, info, l)
	if reason != placement.Fits {
		t.Fatal(reason)
	}
	want, err := r.Nodes.Annotations(a, true)
	if err != nil {
		t.Fatal(err)
	}
	obj := topologyOf(t, "n", "dgx1-v100")
	obj.ResourceVersion = "2"
	for i := range obj.Spec.LinkKinds {
		was := &obj.Spec.LinkKinds[i]
		*was = v1alpha1.LinkKind{Name: was.Name, Class: "SYS", Bandwidth: resource.MustParse("6G")}
	}
	if _, err := r.Graphs.Apply(obj); err != nil {
		t.Fatal(err)
	}
	got, err := r.Nodes.Annotations(a, true)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("annotations after the links changed (-want,+got):\n%s", diff)
	}
	read, err := allocation.Parse(want[allocation.Key])
	if err != nil {
		t.Fatal(err)
	}
	if got, err = r.Nodes.Annotations(read, true); err != nil || got[allocation.LinkClassKey] == want[allocation.LinkClassKey] {
		t.Errorf("a choice that was read has the links %s (%v), want those of now", got[allocation.LinkClassKey], err)
	}
}
