// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	exporterAccount  = "nvtopo-exporter"
	schedulerAccount = "nvtopo-scheduler"
)

// caller is one account's clients.
type caller struct {
	kube kubernetes.Interface
	dyn  dynamic.Interface
}

func callerOf(t *testing.T, cfg *rest.Config, err error) caller {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return caller{kube: kube, dyn: dyn}
}

// checkAllowed compares an API server's answer with want: a part of the
// refusal, or nothing where the request has to pass.
func checkAllowed(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("allowed, want a refusal with %q", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused with %v, want %q in it", err, want)
	case err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
		t.Errorf("not a refusal but a failure: %v", err)
	}
}

// TestPolicies sends requests with the tokens of the shipped accounts.
func TestPolicies(t *testing.T) { //nolint:tparallel // its steps share one cluster
	c := startCluster(t, devcluster.Config{})
	if err := c.InstallManifests(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin := callerOf(t, c.RESTConfig(), nil)
	for _, node := range []string{"n1", "n2"} {
		plainNode(t, admin.kube, node)
	}
	account := func(name, node string) caller {
		t.Helper()
		if node == "" {
			cfg, err := c.ServiceAccountConfig(t.Context(), systemNamespace, name)
			return callerOf(t, cfg, err)
		}
		cfg, err := c.NodeBoundConfig(t.Context(), systemNamespace, name, node)
		return callerOf(t, cfg, err)
	}
	exporter, loose := account(exporterAccount, "n1"), account(exporterAccount, "")
	t.Run("exporter", func(t *testing.T) { testExporterRights(t, exporter, loose) })
	t.Run("allocations", func(t *testing.T) {
		testAllocationRights(t, admin, account(schedulerAccount, "n1"), exporter, editor(t, c, admin))
	})
	t.Run("leader", func(t *testing.T) { testLeaseRights(t, account(schedulerAccount, "n1"), exporter) })
	t.Run("templates", func(t *testing.T) { testTemplates(t, admin) })
	t.Run("keys that nothing reads", func(t *testing.T) { testKeyWarnings(t, c.RESTConfig()) })
	t.Run("keys of sets that nothing reads", func(t *testing.T) { testSetKeyWarnings(t, c) })
}

// editor is an account of a user's namespace that may do with pods what users do.
func editor(t *testing.T, c *devcluster.Cluster, admin caller) caller {
	t.Helper()
	_, err := admin.kube.CoreV1().ServiceAccounts("default").Create(t.Context(), &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "user"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	grant(t, admin.kube, "user", "default", []string{""}, []string{"pods", "pods/status", "pods/binding", "bindings"}, []string{"create", "update", "patch", "get"})
	cfg, err := c.ServiceAccountConfig(t.Context(), "default", "user")
	return callerOf(t, cfg, err)
}

func testExporterRights(t *testing.T, bound, loose caller) {
	t.Helper()
	apply := func(by caller, kind, name, namespace, subresource string, more map[string]any) error {
		gvr := v1alpha1.GroupVersionResource
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": kind}}
		switch kind {
		case "Node":
			gvr = v1.SchemeGroupVersion.WithResource("nodes")
			u.SetAPIVersion("v1")
		case "Lease":
			gvr = coordinationv1.SchemeGroupVersion.WithResource("leases")
			u.SetAPIVersion("coordination.k8s.io/v1")
		}
		maps.Copy(u.Object, more)
		u.SetName(name)
		opts := metav1.ApplyOptions{FieldManager: "test", Force: true}
		client := by.dyn.Resource(gvr).Namespace(namespace)
		if subresource == "status" {
			_, err := client.ApplyStatus(t.Context(), name, u, opts)
			return err
		}
		_, err := client.Apply(t.Context(), name, u, opts)
		return err
	}
	spec := map[string]any{"spec": map[string]any{"nodeUID": "u", "gpus": []any{}, "numaNodes": []any{}}}
	status := map[string]any{"status": map[string]any{"summary": map[string]any{
		"gpus": int64(0), "healthy": int64(0), "numaNodes": int64(0), "interconnect": "none",
	}}}
	labels := func(key string) map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{key: "x"}}}
	}
	type step struct {
		name, kind, object, namespace, subresource string
		by                                         caller
		more                                       map[string]any
		want                                       string
	}
	for _, tc := range []step{
		{"its topology", v1alpha1.Kind, "n1", "", "", bound, spec, ""},
		{"its topology's status", v1alpha1.Kind, "n1", "", "status", bound, status, ""},
		{"another's topology", v1alpha1.Kind, "n2", "", "", bound, spec, "may not write the NodeGPUTopology of n2"},
		{"a token without a node", v1alpha1.Kind, "n1", "", "", loose, spec, "not bound to a node"},
		{"its Lease", "Lease", "exporter-n1", systemNamespace, "", bound, nil, ""},
		{"its Lease again", "Lease", "exporter-n1", systemNamespace, "", bound, map[string]any{"spec": map[string]any{"holderIdentity": "n1"}}, ""},
		{"another's Lease", "Lease", "exporter-n2", systemNamespace, "", bound, nil, "may not write the Lease nvtopo-system/exporter-n2"},
		{"the leader's Lease", "Lease", "nvtopo-scheduler", systemNamespace, "", bound, nil, "may not write the Lease nvtopo-system/nvtopo-scheduler"},
		{"a Lease elsewhere", "Lease", "exporter-n1", "default", "", bound, nil, "cannot patch resource"},
		{"its node's labels", "Node", "n1", "", "", bound, labels("nvtopo.dev/gpu-count"), ""},
		{"its node's label for others", "Node", "n1", "", "", bound, labels("accelerator"), ""},
		{"its node's other labels", "Node", "n1", "", "", bound, labels("node-role.kubernetes.io/control-plane"), "may not change node-role.kubernetes.io/control-plane"},
		{"its node's spec", "Node", "n1", "", "", bound, map[string]any{"spec": map[string]any{"unschedulable": true}}, "labels and annotations only"},
		{"another node's labels", "Node", "n2", "", "", bound, labels("nvtopo.dev/gpu-count"), "may not change node n2"},
		{"its node's status", "Node", "n1", "", "status", bound, map[string]any{"status": map[string]any{"capacity": map[string]any{"a.b/c": "1"}}}, "cannot patch resource"},
		{"a new node", "Node", "n3", "", "", bound, nil, "cannot create resource"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			checkAllowed(t, apply(tc.by, tc.kind, tc.object, tc.namespace, tc.subresource, tc.more), tc.want)
		})
	}
	t.Run("a pod", func(t *testing.T) {
		_, err := bound.kube.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: podSpec()}, metav1.CreateOptions{})
		checkAllowed(t, err, "cannot create resource")
	})
}

func testAllocationRights(t *testing.T, admin, scheduler, exporter, user caller) {
	t.Helper()
	const key = "nvtopo.dev/gpu-ids"
	pod := func(name string, annotations map[string]string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: podSpec()}
	}
	create := func(by caller, p *v1.Pod) error {
		_, err := by.kube.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
		return err
	}
	patch := func(by caller, name, body string, sub ...string) error {
		_, err := by.kube.CoreV1().Pods("default").Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, sub...)
		return err
	}
	binding := func(name string) *v1.Binding {
		return &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{key: "GPU-1"}}, Target: v1.ObjectReference{Kind: "Node", Name: "n1"},
		}
	}
	bindPod := func(by caller, name string) error {
		return by.kube.CoreV1().Pods("default").Bind(t.Context(), binding(name), metav1.CreateOptions{})
	}
	legacyBind := func(ctx context.Context, by caller, name string) error {
		return by.kube.CoreV1().RESTClient().Post().Namespace("default").Resource("bindings").Body(binding(name)).Do(ctx).Error()
	}
	// The API server learns of the role a moment after it was granted.
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, waitLimit, true, func(context.Context) (bool, error) {
		err := create(user, pod("p", nil))
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		t.Fatal(err)
	}
	const set, other = `{"metadata":{"annotations":{"nvtopo.dev/gpu-ids":"GPU-1"}}}`, `{"metadata":{"annotations":{"nvtopo.dev/gpu-ids":"GPU-2"}}}`
	checkAllowed(t, create(user, pod("bad", map[string]string{key: "GPU-1"})), key)
	checkAllowed(t, create(user, pod("bad", map[string]string{"scheduling.k8s.io/numa-node": "0"})), "scheduling.k8s.io/numa-node")
	checkAllowed(t, patch(user, "p", set), key)
	checkAllowed(t, patch(user, "p", set, "status"), key)
	checkAllowed(t, bindPod(user, "p"), key)
	checkAllowed(t, legacyBind(t.Context(), user, "p"), key)
	checkAllowed(t, patch(exporter, "p", set), "cannot patch resource")
	checkAllowed(t, patch(scheduler, "p", set), "")
	// What is there already does not stand in a user's or kubelet's way.
	checkAllowed(t, patch(user, "p", `{"metadata":{"labels":{"a":"b"}}}`), "")
	checkAllowed(t, patch(user, "p", `{"status":{"message":"x"}}`, "status"), "")
	checkAllowed(t, patch(user, "p", other), key)
	checkAllowed(t, patch(user, "p", `{"metadata":{"annotations":null}}`), key)
	checkAllowed(t, patch(user, "p", `{"metadata":{"annotations":{"nvtopo.dev/gpu-ids":null}}}`, "status"), key)
	if err := create(user, pod("q", nil)); err != nil {
		t.Fatal(err)
	}
	checkAllowed(t, bindPod(scheduler, "q"), "")
	got, err := admin.kube.CoreV1().Pods("default").Get(t.Context(), "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.NodeName != "n1" || got.Annotations[key] != "GPU-1" {
		t.Errorf("bound to %q with %v, want n1 with the Binding's annotation", got.Spec.NodeName, got.Annotations)
	}
	// These subresources keep the old annotations by themselves.
	for _, sub := range []string{"resize", "ephemeralcontainers"} {
		if err := patch(admin, "q", `{"metadata":{"annotations":{"nvtopo.dev/gpu-ids":"GPU-9"}}}`, sub); err != nil {
			t.Errorf("patch %s: %v", sub, err)
		}
	}
	if got, err := admin.kube.CoreV1().Pods("default").Get(t.Context(), "q", metav1.GetOptions{}); err != nil || got.Annotations[key] != "GPU-1" {
		t.Errorf("another subresource changed the annotations: %v, %v", got.Annotations, err)
	}
}

// testLeaseRights elects a leader: by the scheduler's account only.
func testLeaseRights(t *testing.T, scheduler, exporter caller) {
	t.Helper()
	leases := func(by caller) error {
		client := by.kube.CoordinationV1().Leases(systemNamespace)
		l, err := client.Get(t.Context(), "nvtopo-scheduler", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			l, err = client.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "nvtopo-scheduler"}}, metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
		_, err = client.Update(t.Context(), l, metav1.UpdateOptions{})
		return err
	}
	checkAllowed(t, leases(scheduler), "")
	checkAllowed(t, leases(exporter), "cannot get resource")
	if _, err := scheduler.kube.CoordinationV1().Leases(systemNamespace).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the scheduler cannot see which graphs are fresh: %v", err)
	}
	if _, err := scheduler.dyn.Resource(v1alpha1.GroupVersionResource).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the scheduler cannot see the graphs: %v", err)
	}
}

func testTemplates(t *testing.T, admin caller) {
	t.Helper()
	replicas := int32(0)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "d"}},
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "d"}, Annotations: map[string]string{"nvtopo.dev/gpu-ids.main": "GPU-1"}},
				Spec:       podSpec(),
			},
		},
	}
	create := func() error {
		_, err := admin.kube.AppsV1().Deployments("default").Create(t.Context(), deployment, metav1.CreateOptions{})
		return err
	}
	checkAllowed(t, create(), "spec.template.metadata.annotations: drop nvtopo.dev/gpu-ids.main")
	deployment.Spec.Template.Annotations = map[string]string{"nvtopo.dev/min-link": "NVLINK"}
	checkAllowed(t, create(), "")
}
