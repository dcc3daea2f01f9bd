// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/topologies"
)

// reportedFabric is a ClusterTopology beside nodes; its written status is in it the next time, as it is
// through the watch.
type reportedFabric struct {
	*FabricReporter
	ct      *v1alpha1.ClusterTopology
	store   cache.Indexer
	gpus    []string
	refused error // of the next write
	written int
	clock   *clocktesting.FakeClock
}

func newReportedFabric(t *testing.T) *reportedFabric {
	t.Helper()
	f := &reportedFabric{
		ct: &v1alpha1.ClusterTopology{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterTopologyName, UID: "ct-uid", Generation: 1, ResourceVersion: "1"},
			Spec:       v1alpha1.ClusterTopologySpec{Levels: []v1alpha1.FabricLevel{{Name: "rack", NodeLabel: "rack"}}},
		},
		store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), clock: clocktesting.NewFakeClock(time.Unix(1_700_000_000, 0)),
	}
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("patch", v1alpha1.ClusterTopologyResource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		p, ok := a.(clienttesting.PatchAction)
		if !ok || p.GetPatchType() != types.ApplyPatchType || p.GetSubresource() != "status" || p.GetName() != f.ct.Name {
			return true, nil, fmt.Errorf("unexpected request %v", a)
		}
		return true, &unstructured.Unstructured{}, f.wrote(p.GetPatch())
	})
	f.FabricReporter = NewFabricReporter(f, corelisters.NewNodeLister(f.store), client, nil, f.clock)
	return f
}

func (f *reportedFabric) Reports() (out []topologies.Report) {
	for _, name := range f.gpus {
		out = append(out, topologies.Report{Node: testobj.Node(name).Obj()})
	}
	return out
}

func (f *reportedFabric) wrote(body []byte) error {
	if err := f.refused; err != nil {
		f.refused = nil
		return err
	}
	var sent v1alpha1.ClusterTopology
	if err := json.Unmarshal(body, &sent); err != nil {
		return err
	}
	if sent.UID != f.ct.UID {
		return fmt.Errorf("the status of %q, want that of %q", sent.UID, f.ct.UID)
	}
	f.written++
	f.ct = f.ct.DeepCopy()
	f.ct.Status, f.ct.ResourceVersion = sent.Status, strconv.Itoa(f.written+100)
	return nil
}

// set puts nodes with a rack each; "" is none.
func (f *reportedFabric) set(t *testing.T, racks map[string]string) {
	t.Helper()
	for name, rack := range racks {
		n := testobj.Node(name).Obj()
		if rack != "" {
			n.Labels["rack"] = rack
		}
		if err := f.store.Update(n); err != nil {
			t.Fatal(err)
		}
	}
}

// says returns the status in short.
func (f *reportedFabric) says() string {
	out := []string{fmt.Sprintf("gen %d, %d nodes", f.ct.Status.ObservedGeneration, f.ct.Status.Nodes)}
	for _, d := range f.ct.Status.Domains {
		out = append(out, fmt.Sprintf("%s %d of %d nodes", d.Level, d.Domains, d.Nodes))
	}
	for _, c := range f.ct.Status.Conditions {
		out = append(out, fmt.Sprintf("%s %s", c.Type, c.Status))
	}
	return strings.Join(out, ", ")
}

// TestFabricReporter: the fabric reporter writes changes only.
func TestFabricReporter(t *testing.T) {
	f := newReportedFabric(t)
	f.gpus = []string{"a", "b"}
	f.set(t, map[string]string{"a": "r0", "b": "", "control": ""})
	step := func(what, want string, wantWritten int) {
		t.Helper()
		before := f.written
		for range 3 { // the second check sees the first one's status
			f.look(t.Context(), f.ct)
			f.clock.Step(lookInterval)
		}
		if diff := cmp.Diff(want, f.says()); diff != "" {
			t.Errorf("%s (-want,+got):\n%s", what, diff)
		}
		if got := f.written - before; got != wantWritten {
			t.Errorf("%s: %d writes, want %d", what, got, wantWritten)
		}
	}
	step("a label is missing", "gen 1, 3 nodes, rack 1 of 1 nodes, Ready True, NotATree False, LabelsMissing True", 1)
	since := f.ct.Status.Conditions[2].LastTransitionTime
	if !strings.Contains(f.ct.Status.Conditions[2].Message, "1 node has no label rack: b") {
		t.Errorf("message %q", f.ct.Status.Conditions[2].Message)
	}
	step("nothing changes", "gen 1, 3 nodes, rack 1 of 1 nodes, Ready True, NotATree False, LabelsMissing True", 0)

	f.gpus = append(f.gpus, "control")
	step("a node gets GPUs", "gen 1, 3 nodes, rack 1 of 1 nodes, Ready True, NotATree False, LabelsMissing True", 1)
	if c := f.ct.Status.Conditions[2]; !c.LastTransitionTime.Equal(&since) || !strings.Contains(c.Message, "b, control") {
		t.Errorf("since %v, was %v: %s", c.LastTransitionTime, since, c.Message)
	}

	f.refused = errors.New("refused")
	f.set(t, map[string]string{"b": "r1", "control": "r1"})
	step("it is labelled; the first write is refused", "gen 1, 3 nodes, rack 2 of 3 nodes, Ready True, NotATree False, LabelsMissing False", 1)
	if c := f.ct.Status.Conditions[2]; !c.LastTransitionTime.After(since.Time) {
		t.Errorf("since %v, was %v", c.LastTransitionTime, since)
	}

	f.ct = f.ct.DeepCopy()
	f.ct.Spec.Excluded = []v1alpha1.ExcludedDomain{{Level: "rack", Domain: "r9"}}
	f.ct.Generation, f.ct.ResourceVersion = 2, "200"
	step("what is excluded is not there", "gen 2, 3 nodes, rack 2 of 3 nodes, Ready False, NotATree False, LabelsMissing False", 1)

	f.ct = f.ct.DeepCopy()
	f.ct.Status, f.ct.ResourceVersion = v1alpha1.ClusterTopologyStatus{}, "201"
	step("somebody emptied the status", "gen 2, 3 nodes, rack 2 of 3 nodes, Ready False, NotATree False, LabelsMissing False", 1)
}
