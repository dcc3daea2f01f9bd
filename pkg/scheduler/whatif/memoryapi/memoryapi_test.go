// SPDX-License-Identifier: Apache-2.0

package memoryapi

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

// waiting returns a pod without a node.
func waiting(name string) *testobj.PodWrapper {
	return testobj.Pod(name).Namespace("a").UID(name + "-uid").Phase(v1.PodPending)
}

// newClient returns a real client of a store with two pods, of which one is on a node.
func newClient(t *testing.T) (*Store, kubernetes.Interface) {
	t.Helper()
	var s whatif.Snapshot
	for _, p := range []*v1.Pod{waiting("bound").Node("n").Obj(), waiting("free").Obj()} {
		if err := s.Add(whatif.PodKind, p); err != nil {
			t.Fatal(err)
		}
	}
	store, err := NewStore(s.Objects)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(Serve(t.Context(), store))
	if err != nil {
		t.Fatal(err)
	}
	return store, client
}

func TestClientReads(t *testing.T) {
	_, client := newClient(t)
	for name, tc := range map[string]struct {
		namespace, selector string
		want                []string
	}{
		"all":                  {"", "", []string{"bound", "free"}},
		"those of a namespace": {"b", "", nil},
		"those on a node":      {"", "spec.nodeName=n", []string{"bound"}},
		"those not at an end":  {"", "status.phase!=Succeeded,status.phase!=Failed", []string{"bound", "free"}},
		"those at an end":      {"", "status.phase!=Pending", nil},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := client.CoreV1().Pods(tc.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: tc.selector})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range list.Items {
				got = append(got, list.Items[i].Name)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := client.CoreV1().Pods("a").Get(t.Context(), "none", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod that is not there: %v", err)
	}
	if _, err := client.CoreV1().Secrets("a").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a kind that is not there: %v", err)
	}
	if _, err := client.CoreV1().Pods("a").Create(t.Context(), waiting("new").Obj(), metav1.CreateOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("a request that schedulers do not make: %v", err)
	}
	resources, err := client.Discovery().ServerResourcesForGroupVersion("topology.nvtopo.dev/v1alpha1")
	if err != nil || len(resources.APIResources) != 2 {
		t.Errorf("discovery: %v, %v", resources, err)
	}
}

// TestInformerUpdates: an informer gets all changes: the writes of a scheduler come back through its
// watches.
func TestInformerUpdates(t *testing.T) {
	store, client := newClient(t)
	factory := informers.NewSharedInformerFactory(client, 0)
	lister := factory.Core().V1().Pods().Lister().Pods("a")
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	sees := func(what, name string, is func(*v1.Pod) bool) {
		t.Helper()
		testkit.Soon(t, what, func() bool {
			p, err := lister.Get(name)
			return err == nil && is(p)
		})
	}
	ctx := t.Context()
	if err := store.Create(whatif.PodKind, "a", "late", waiting("late").Obj()); err != nil {
		t.Fatal(err)
	}
	sees("a created pod", "late", func(*v1.Pod) bool { return true })
	if err := store.Create(whatif.PodKind, "a", "late", waiting("late").Obj()); err == nil {
		t.Error("a pod was created twice")
	}
	condition := `{"status":{"conditions":[{"type":"PodScheduled","status":"False","message":%q}]}}`
	for _, message := range []string{"first", "second"} {
		if _, err := client.CoreV1().Pods("a").Patch(ctx, "free", types.StrategicMergePatchType, fmt.Appendf(nil, condition, message), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	sees("a condition, merged by its type", "free", func(p *v1.Pod) bool {
		return len(p.Status.Conditions) == 1 && p.Status.Conditions[0].Message == "second"
	})
	if _, err := client.CoreV1().Pods("a").Patch(ctx, "free", types.MergePatchType, []byte(`{"metadata":{"annotations":{"k":"v"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Pods("a").Bind(ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "free", Annotations: map[string]string{"l": "w"}}, Target: v1.ObjectReference{Kind: "Node", Name: "m"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	sees("a binding with its annotations", "free", func(p *v1.Pod) bool {
		return p.Spec.NodeName == "m" && p.Annotations["k"] == "v" && p.Annotations["l"] == "w" && p.Status.Conditions[0].Status == v1.ConditionTrue
	})
	before := store.Changed()
	if err := client.CoreV1().Pods("a").Delete(ctx, "bound", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	sees("that a pod is to go, and stays", "bound", func(p *v1.Pod) bool { return p.DeletionTimestamp != nil })
	if diff := cmp.Diff([]string{"a/bound"}, store.Leaving()); diff != "" {
		t.Errorf("pods that are to go (-want +got):\n%s", diff)
	}
	if !store.Watched("pods") || store.Watched("pods", "nodes") || !store.Changed().After(before) {
		t.Errorf("pods watched %t, nodes too %t, last change %v, the one before %v", store.Watched("pods"), store.Watched("pods", "nodes"), store.Changed(), before)
	}
}
