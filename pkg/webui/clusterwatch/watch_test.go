// SPDX-License-Identifier: Apache-2.0

package clusterwatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/testobj"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
)

var start = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// testEnv is a Watch over a fake API server.
type testEnv struct {
	kube  *fake.Clientset
	dyn   *dynamicfake.FakeDynamicClient
	watch *Watch
}

func newTestEnv(t *testing.T, objects ...runtime.Object) *testEnv {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{
		v1alpha1.GroupVersionResource: "NodeGPUTopologyList", v1alpha1.ClusterTopologyGVR: "ClusterTopologyList", poolv1alpha1.ComputePoolGVR: "ComputePoolList",
		{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}: "PodGroupList",
	}
	for _, resource := range []string{"workloads", "localqueues", "clusterqueues"} {
		kinds[schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: resource}] = resource + "List"
	}
	return &testEnv{kube: fake.NewClientset(objects...), dyn: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)}
}

// run runs the Watch until the test ends, or the function is called, which waits for its end.
func (e *testEnv) run(t *testing.T) (end func()) {
	t.Helper()
	var err error
	e.watch, err = New(Config{Kube: e.kube, Dynamic: e.dyn, LeaseNamespace: "nvtopo-system", Clock: clocktesting.NewFakeClock(start)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		e.watch.Run(ctx)
		close(ended)
	}()
	end = func() {
		cancel()
		<-ended
	}
	t.Cleanup(end)
	if err := e.watch.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	return end
}

// refuse has the API server refuse to list and watch a kind.
func refuse(f *clienttesting.Fake, resource string, err func(schema.GroupResource) error) {
	f.PrependReactor("list", resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, err(a.GetResource().GroupResource())
	})
	f.PrependWatchReactor(resource, clienttesting.DefaultWatchReactor(nil, err(schema.GroupResource{Resource: resource})))
}

// TestMissingKinds: a kind that is not there has no objects. A kind that is not installed is no
// problem, one that is forbidden is said, and everything else is shown.
func TestMissingKinds(t *testing.T) {
	r := newTestEnv(t, testobj.Node("n").Obj(), testobj.Pod("p").Namespace("ns").Obj())
	refuse(&r.dyn.Fake, "computepools", func(g schema.GroupResource) error { return apierrors.NewNotFound(g, "") })
	refuse(&r.dyn.Fake, "podgroups", func(g schema.GroupResource) error { return apierrors.NewForbidden(g, "", errors.New("no role")) })
	refuse(&r.kube.Fake, "persistentvolumeclaims", func(g schema.GroupResource) error { return apierrors.NewForbidden(g, "", errors.New("no role")) })
	r.run(t)
	s := r.watch.Snapshot()
	if len(s.World.Nodes) != 1 || len(s.World.Pods) != 1 || s.HasPools || s.World.ClaimsKnown || !s.World.Now.Equal(start) {
		t.Errorf("%d nodes, %d pods, pools %t, claims known %t, now %v", len(s.World.Nodes), len(s.World.Pods), s.HasPools, s.World.ClaimsKnown, s.World.Now)
	}
	if len(s.Problems) != 2 || !strings.Contains(strings.Join(s.Problems, "\n"), "podgroups may not be read, and are taken to be none") {
		t.Errorf("problems %q, want those of podgroups and persistentvolumeclaims", s.Problems)
	}
}

// TestSnapshotChanges: changes are in the next snapshot. A change of an object is in the next
// snapshot, and earlier ones keep theirs.
func TestSnapshotChanges(t *testing.T) {
	r := newTestEnv(t, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "ns", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}})
	r.run(t)
	before := r.watch.Snapshot()
	if len(before.World.Pods) != 1 || before.World.Pods[0].ManagedFields != nil {
		t.Fatalf("pods %+v, want one without managed fields", before.World.Pods)
	}
	for _, name := range []string{"c", "a"} {
		if _, err := r.kube.CoreV1().Pods("ns").Create(t.Context(), testobj.Pod(name).Namespace("ns").Obj(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(t, time.Minute, "both are there", func(context.Context) (bool, string) {
		var names []string
		now := r.watch.Snapshot()
		for i := range now.World.Pods {
			names = append(names, now.World.Pods[i].Name)
		}
		return slices.Equal(names, []string{"a", "b", "c"}) && now.Version > before.Version, fmt.Sprint(names)
	})
	if len(before.World.Pods) != 1 {
		t.Error("the earlier snapshot has changed")
	}
}

// TestRefusalTimes: a snapshot dates kubelet's refusals as the objects of the API server do, and marks
// the nodes that those mark.
func TestRefusalTimes(t *testing.T) {
	var objects []runtime.Object
	for i, written := range []time.Duration{-time.Minute, -time.Minute, -2 * time.Minute} {
		uid := fmt.Sprintf("refused-%d", i)
		a := &allocation.Allocation{
			Version: allocation.Version, Node: "n", PodUID: types.UID(uid),
			Containers: []allocation.Container{{Name: "main", Resource: "nvidia.com/gpu", GPUs: []string{"GPU-1"}}},
		}
		text, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		p := testobj.Pod(uid).Namespace("ns").UID(uid).Node("n").Phase(v1.PodFailed).Annotation(allocation.Key, text).Obj()
		p.CreationTimestamp, p.Status.Reason = metav1.NewTime(start.Add(-time.Hour)), "UnexpectedAdmissionError"
		p.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", FieldsV1: &metav1.FieldsV1{Raw: []byte("{}")}, Time: new(metav1.NewTime(start))},
			{Manager: "kubelet", Subresource: "status", FieldsV1: &metav1.FieldsV1{Raw: []byte("{}")}, Time: new(metav1.NewTime(start.Add(written)))},
		}
		objects = append(objects, p)
	}
	r := newTestEnv(t, objects...)
	r.run(t)
	got := refusals.Of(refusals.Seen(r.watch.Snapshot().World.Pods), start)
	want := refusals.Marks{"n": {Node: "n", Pods: 3, Reason: "UnexpectedAdmissionError", Until: start.Add(3 * time.Minute)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("marked nodes (-want +got):\n%s", diff)
	}
}

// TestLeaseTimes: a snapshot says when a Lease was renewed by the clock of the API server, not of the node.
func TestLeaseTimes(t *testing.T) {
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "exporter-n", Namespace: release.Namespace, ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: &metav1.FieldsV1{Raw: []byte("{}")}, Time: new(metav1.NewTime(start))},
			{
				Manager: "nvtopo-exporter", Operation: metav1.ManagedFieldsOperationApply,
				FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:renewTime":{}}}`)}, Time: new(metav1.NewTime(start.Add(-10 * time.Second))),
			},
		}},
		Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(start.Add(-3 * time.Minute)))},
	}
	leader := lease.DeepCopy()
	leader.Name = "nvtopo-scheduler"
	leader.ManagedFields[1].Operation = metav1.ManagedFieldsOperationUpdate
	r := newTestEnv(t, lease, leader)
	r.run(t)
	leases := r.watch.Snapshot().World.Leases
	if len(leases) != 2 {
		t.Fatalf("%d leases, want 2", len(leases))
	}
	slices.SortFunc(leases, func(a, b coordinationv1.Lease) int { return strings.Compare(a.Name, b.Name) })
	if got := leases[1].ManagedFields; len(got) != 1 || !got[0].Time.Time.Equal(start.Add(-10*time.Second)) {
		t.Errorf("managed fields of the leader's Lease %v, want when it was renewed", got)
	}
	if got, want := nodelease.Renewed(&leases[0]), start.Add(-10*time.Second); !got.Equal(want) {
		t.Errorf("renewed at %s, want %s", got, want)
	}
}

// TestLeaseRenewals: renewals of Leases are no changes, but one that comes after the Lease has run
// out is.
func TestLeaseRenewals(t *testing.T) {
	lease := func(renewed time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "exporter-n", OwnerReferences: []metav1.OwnerReference{{Kind: "Node", UID: "u"}}},
			Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(renewed)), LeaseDurationSeconds: new(int32(60))},
		}
	}
	other := lease(start.Add(10 * time.Second))
	other.OwnerReferences[0].UID = "other"
	for name, tc := range map[string]struct {
		after *coordinationv1.Lease
		want  bool
	}{
		"in time":         {lease(start.Add(10 * time.Second)), false},
		"the same":        {lease(start), false},
		"too late":        {lease(start.Add(61 * time.Second)), true},
		"back in time":    {lease(start.Add(-time.Second)), true},
		"of another node": {other, true},
		"given up":        {&coordinationv1.Lease{}, true},
	} {
		if got := revived(lease(start), tc.after); got != tc.want {
			t.Errorf("%s: a change is %t, want %t", name, got, tc.want)
		}
	}
}

// TestUnreadableObject: an object that cannot be read is said, and keeps nothing else from being
// shown.
func TestUnreadableObject(t *testing.T) {
	r := newTestEnv(t)
	for name, spec := range map[string]any{"good": map[string]any{}, "bad": "a word"} {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.Kind, "metadata": map[string]any{"name": name}, "spec": spec,
		}}
		if _, err := r.dyn.Resource(v1alpha1.GroupVersionResource).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r.run(t)
	s := r.watch.Snapshot()
	if len(s.World.Topologies) != 2 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "nodegputopologies bad cannot be read") {
		t.Errorf("%d topologies, problems %q", len(s.World.Topologies), s.Problems)
	}
	mended := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": v1alpha1.Kind, "metadata": map[string]any{"name": "bad"}, "spec": map[string]any{},
	}}
	if _, err := r.dyn.Resource(v1alpha1.GroupVersionResource).Update(t.Context(), mended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, "the problem is gone", func(context.Context) (bool, string) {
		problems := r.watch.Snapshot().Problems
		return len(problems) == 0, fmt.Sprint(problems)
	})
}

// TestUnresponsiveAPIServer: an API server that does not answer settles nothing. Nobody is told
// that there are no pods.
func TestUnresponsiveAPIServer(t *testing.T) {
	a := &access{name: "pods"}
	for _, err := range []error{errors.New("connection refused"), apierrors.NewServiceUnavailable("x"), apierrors.NewUnauthorized("x"), apierrors.NewInternalError(errors.New("x"))} {
		a.note(err)
		if asked, _, problem := a.state(); asked || problem != "pods cannot be read now, and are what they were: the API server does not answer" {
			t.Errorf("%v: settled %t, %q", err, asked, problem)
		}
	}
	a.note(nil)
	a.note(errors.New("connection refused"))
	if asked, _, _ := a.state(); !asked {
		t.Error("what was read before is taken back")
	}
}

// TestNamespaceScope: snapshots of a namespace hold its objects only. An explanation reads jobs and
// claims of its own namespace only.
func TestNamespaceScope(t *testing.T) {
	r := newTestEnv(t,
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine", Namespace: "a"}},
		&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Namespace: "b"}})
	r.run(t)
	if w := r.watch.Snapshot().Of("a"); len(w.Claims) != 1 || w.Claims[0].Name != "mine" || !w.ClaimsKnown {
		t.Errorf("claims %+v, known %t", w.Claims, w.ClaimsKnown)
	}
}

// TestShutdown: everything ends with the context. Run returns when all that it started has.
func TestShutdown(t *testing.T) {
	r := newTestEnv(t)
	end := r.run(t)
	end() // it would not come back
}
