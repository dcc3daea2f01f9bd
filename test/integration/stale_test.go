// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	countingProfile        = "counting"
	countingBindingProfile = "counting-binding"
)

// TestStaleGraphs brings nodes into the states in which their graph does not count, and
// out of them.
func TestStaleGraphs(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	counting := map[string]string{topologyPlugin: "staleTopology: Count"}
	s := l.startScheduler(t, profile{name: preBindProfile, write: "PreBind"},
		profile{name: countingProfile, write: "PreBind", args: counting}, profile{name: countingBindingProfile, write: "Binding", args: counting})
	t.Run("a silent exporter comes back", l.testSilentExporter)
	t.Run("an object is deleted under running pods", l.testDeletedTopology)
	t.Run("an object of a later version", func(t *testing.T) { l.testNewerTopology(t, s) })
}

// patchTopology merges into an object's part as an administrator.
func (e *testEnv) patchTopology(t *testing.T, node string, part any, sub ...string) {
	t.Helper()
	body, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.dynamic(t).Resource(v1alpha1.GroupVersionResource).Patch(t.Context(), node, types.MergePatchType, body, metav1.PatchOptions{}, sub...)
	if err != nil {
		t.Fatal(err)
	}
}

// renew renews the Lease of a node's exporter, for so many seconds.
func (e *testEnv) renew(t *testing.T, node string, seconds int) {
	t.Helper()
	body := fmt.Appendf(nil, `{"spec":{"leaseDurationSeconds":%d,"renewTime":%q}}`, seconds, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	_, err := e.client.CoordinationV1().Leases(systemNamespace).
		Patch(t.Context(), nodelease.ExporterPrefix+node, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// wantByCount waits until a pod is bound without a choice and marked so.
func (e *testEnv) wantByCount(t *testing.T, name string, why placement.Reason) {
	t.Helper()
	pod := e.bound(t, name)
	for key := range pod.Annotations {
		if allocation.IsOutputKey(key) {
			t.Errorf("pod %s, which nobody chose for, has annotation %s", name, key)
		}
	}
	testkit.Eventually(t, waitLimit, "pod "+name+" has the condition", func(context.Context) (bool, string) {
		pod = e.get(t, name)
		i := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == allocation.ConditionPlacedByCount })
		if i < 0 {
			return false, fmt.Sprint(pod.Status.Conditions)
		}
		c := pod.Status.Conditions[i]
		return c.Status == v1.ConditionTrue && c.Reason == "PlacedByCount" && strings.Contains(c.Message, why.String()), c.String()
	})
	e.wantEvent(t, name, "PlacedByCount", why.String())
}

// wantEvent waits for an event about an object of that name.
func (e *testEnv) wantEvent(t *testing.T, object, reason, note string) {
	t.Helper()
	e.wantEventOfAny(t, []string{object}, reason, note)
}

// wantEventOfAny waits for an event about one of these objects.
func (l *testEnv) wantEventOfAny(t *testing.T, objects []string, reason, note string) {
	t.Helper()
	testkit.Eventually(t, waitLimit, "event "+reason+" about "+strings.Join(objects, " or "), func(ctx context.Context) (bool, string) {
		list, err := l.client.EventsV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		var seen []string
		for i := range list.Items {
			e := &list.Items[i]
			if !slices.Contains(objects, e.Regarding.Name) {
				continue
			}
			if e.Reason == reason && strings.Contains(e.Note, note) {
				return true, ""
			}
			seen = append(seen, e.Reason+": "+e.Note)
		}
		return false, strings.Join(seen, "\n")
	})
}

// testSilentExporter lets pods onto a node by count, and makes their GPUs known again.
func (e *testEnv) testSilentExporter(t *testing.T) {
	node := e.freshName("silent")
	spec := e.addNode(t, node, "dgx1-v100")
	e.publishOnce(t, spec, e.graphs[node])
	g := e.graphs[node]
	e.create(t, gpuPod(node+"-ours", preBindProfile, 2).NodeSelector(host(node)).Obj())
	ours := choiceOf(t, e.bound(t, node+"-ours"), g)

	e.renew(t, node, 1)
	time.Sleep(1500 * time.Millisecond)
	linked := gpuPod(node+"-linked", countingProfile, 2).Annotation(podrequest.MinLinkKey, "NVLINK").NodeSelector(host(node)).Obj()
	e.wantRefused(t, linked, placement.StaleGraph.String())
	e.wantRefused(t, gpuPod(node+"-refused", preBindProfile, 2).NodeSelector(host(node)).Obj(), placement.StaleGraph.String())
	e.remove(t, node+"-refused")
	var counted []*v1.Pod
	for _, p := range []string{countingProfile, countingBindingProfile} {
		pod := gpuPod(node+"-"+p, p, 2).NodeSelector(host(node)).Obj()
		e.create(t, pod)
		e.wantByCount(t, pod.Name, placement.StaleGraph)
		counted = append(counted, e.get(t, pod.Name))
	}
	e.wantRefused(t, gpuPod(node+"-much", countingProfile, 3).NodeSelector(host(node)).Obj(), "Insufficient")
	e.remove(t, node+"-much")

	// The exporter is back: two pairs are somewhere, so nobody may want to know where.
	e.renew(t, node, 120)
	testkit.Eventually(t, waitLimit, "the pod with link demands is refused for the pods by count", func(context.Context) (bool, string) {
		got := e.refused(t, linked.Name)
		return strings.Contains(got, placement.UnknownDevices.String()), got
	})
	// The agent publishes what kubelet gave them: all but one linked pair of the rest.
	left, pair := g.Healthy()&^ours.set, nvtopo.Mask(0)
	for _, i := range left.Positions() {
		for _, j := range left.Positions() {
			if i < j && g.Link(i, j).Class.Kind == nvtopo.KindNVLink {
				pair = nvtopo.MaskOf(i, j)
			}
		}
	}
	gone := (left &^ pair).Positions()
	var records []v1alpha1.Allocation
	for i, pod := range counted {
		records = append(records, v1alpha1.Allocation{
			PodUID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name, Container: "main", Resource: string(gpuResource), State: v1alpha1.StateForeign,
			GPUs: []string{g.GPUs[gone[2*i]].UUID, g.GPUs[gone[2*i+1]].UUID},
		})
	}
	e.patchTopology(t, node, map[string]any{"status": map[string]any{"allocations": records}}, "status")
	if got := choiceOf(t, e.bound(t, linked.Name), g); got.set != pair || got.Unconfirmed {
		t.Errorf("GPUs %v, unconfirmed %t, want %v, the pair that is left", got.set.Positions(), got.Unconfirmed, pair.Positions())
	}
}

// testDeletedTopology takes the object away under a running pod; the exporter makes it
// again within its interval.
func (e *testEnv) testDeletedTopology(t *testing.T) {
	node := e.freshName("deleted")
	spec := e.addNode(t, node, "dgx1-v100")
	e.publish(t, devcluster.ExporterOptions{Interval: time.Second}, spec)
	e.create(t, gpuPod(node+"-first", preBindProfile, 5).NodeSelector(host(node)).Obj())
	first := choiceOf(t, e.bound(t, node+"-first"), e.graphs[node])
	before := e.topology(t.Context(), t, node)
	if err := e.dynamic(t).Resource(v1alpha1.GroupVersionResource).Delete(t.Context(), node, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, waitLimit, "the exporter makes the object again", func(ctx context.Context) (bool, string) {
		u := e.topology(ctx, t, node)
		return u != nil && u.GetUID() != before.GetUID(), "absent"
	})
	e.create(t, gpuPod(node+"-second", countingBindingProfile, 3).NodeSelector(host(node)).Obj())
	second := choiceOf(t, e.bound(t, node+"-second"), e.graphs[node])
	if both := first.set & second.set; both != 0 || second.Unconfirmed {
		testkit.Violation(t, "GPUs %v were given out twice; unconfirmed %t", both.Positions(), second.Unconfirmed)
	}
}

// testNewerTopology has an exporter of a later version: the definition knows more than
// the scheduler, which ignores new fields and refuses new values.
func (e *testEnv) testNewerTopology(t *testing.T, s *devcluster.Scheduler) {
	t.Helper()
	e.widenDefinition(t)
	nodes := map[string]devcluster.NodeSpec{}
	for _, what := range []string{"field", "value"} {
		node := e.freshName("newer-" + what)
		nodes[what] = e.addNode(t, node, "dgx1-v100")
		e.publishOnce(t, nodes[what], e.graphs[node])
	}
	node := nodes["field"].Name
	e.patchTopology(t, node, map[string]any{"spec": map[string]any{"cooling": "liquid"}})
	e.create(t, gpuPod(node, preBindProfile, 8).NodeSelector(host(node)).Obj())
	choiceOf(t, e.bound(t, node), e.graphs[node])

	node = nodes["value"].Name
	g := e.graphs[node]
	u := e.topology(t.Context(), t, node)
	kinds, _, err := unstructured.NestedSlice(u.Object, "spec", "linkKinds")
	if err != nil {
		t.Fatal(err)
	}
	kinds[0].(map[string]any)["class"] = "Photonic"
	e.patchTopology(t, node, map[string]any{"spec": map[string]any{"linkKinds": kinds}})
	e.wantEvent(t, node, "MalformedTopology", "spec.linkKinds[0].class")
	// The last good graph still counts, and health is another matter.
	health := []map[string]any{{"id": g.GPUs[0].UUID, "healthy": false, "reason": "too hot"}}
	e.patchTopology(t, node, map[string]any{"status": map[string]any{"gpuHealth": health}}, "status")
	testkit.Naps(settleTime)
	e.create(t, gpuPod(node+"-last", preBindProfile, 2).NodeSelector(host(node)).Obj())
	last := choiceOf(t, e.bound(t, node+"-last"), g)
	if last.set.Has(0) {
		t.Error("a GPU was given out that the object says is broken")
	}
	// But not for ever, though the Lease goes on being renewed.
	e.renew(t, node, 3)
	testkit.Eventually(t, waitLimit, "the last good graph no longer counts", func(context.Context) (bool, string) {
		e.renew(t, node, 3)
		name := e.freshName("probe")
		e.create(t, gpuPod(name, preBindProfile, 1).Annotation(podrequest.MinLinkKey, "SYS").NodeSelector(host(node)).Obj())
		time.Sleep(500 * time.Millisecond)
		got := refusal(e.get(t, name))
		e.remove(t, name)
		return strings.Contains(got, placement.UnreadableGraph.String()), got
	})
	if got := e.scrape(t, s).sum("scheduler_nvtopo_nodes", `state="malformed"`); got != 1 {
		t.Errorf("%v nodes are counted as malformed, want 1", got)
	}
	testkit.Eventually(t, waitLimit, "the object says that it is stale", func(ctx context.Context) (bool, string) {
		conditions, _, err := unstructured.NestedSlice(e.topology(ctx, t, node).Object, "status", "conditions")
		i := slices.IndexFunc(conditions, func(c any) bool { return c.(map[string]any)["type"] == v1alpha1.ConditionStale })
		return i >= 0 && conditions[i].(map[string]any)["status"] == "True", fmt.Sprint(conditions, err)
	})
	e.wantEvent(t, node, "StaleTopology", "no GPUs are chosen")
}

// widenDefinition adds a field and a value to the definition, as a later release might.
func (e *testEnv) widenDefinition(t *testing.T) {
	t.Helper()
	client := e.dynamic(t).Resource(definitions)
	name := v1alpha1.Resource + "." + v1alpha1.GroupName
	crd, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		t.Fatal(err)
	}
	spec := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties"}
	version := versions[0].(map[string]any)
	if err := unstructured.SetNestedMap(version, map[string]any{"type": "string"}, append(slices.Clone(spec), "cooling")...); err != nil {
		t.Fatal(err)
	}
	class := append(slices.Clone(spec), "linkKinds", "items", "properties", "class", "enum")
	values, _, err := unstructured.NestedSlice(version, class...)
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedSlice(version, append(values, "Photonic"), class...); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Update(t.Context(), crd, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // until the API server validates by it
}
