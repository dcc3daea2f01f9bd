// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/manifests"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	schedulerName = "topology-aware-scheduler"
	// part keeps pods on nodes of their own, so that the same pods wait in every run.
	part = "example.com/part"
	// patience bounds every wait of a test.
	patience = 2 * time.Minute
)

// testEnv is a cluster with content for each page.
type testEnv struct {
	*devcluster.Cluster
	kube kubernetes.Interface
	dyn  dynamic.Interface
}

// nodes returns sixteen nodes in four racks of two spines, two of them a part of their own.
func nodes() []devcluster.NodeSpec {
	var out []devcluster.NodeSpec
	for i := range 16 {
		spec := devcluster.NodeSpec{
			Name: fmt.Sprintf("gpu-%02d", i), Machine: "hgx-h200",
			Labels: map[string]string{
				"topology.kubernetes.io/switch": fmt.Sprint("spine-", i/8), "topology.kubernetes.io/rack": fmt.Sprint("rack-", i/4), part: "batch",
			},
		}
		if i >= 14 {
			spec.Machine, spec.Labels[part] = "dgx1-v100", "small"
		}
		out = append(out, spec)
	}
	return out
}

// newTestEnv starts the cluster with the shipped manifests and scheduler.
func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	c, err := devcluster.Start(t.Context(), devcluster.Config{Log: testkit.Log()})
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	l := &testEnv{Cluster: c}
	if l.kube, err = kubernetes.NewForConfig(c.RESTConfig()); err == nil {
		l.dyn, err = dynamic.NewForConfig(c.RESTConfig())
	}
	if err != nil {
		t.Fatal(err)
	}
	config, err := manifests.FS.ReadFile(manifests.SchedulerConfigPath)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return c.InstallManifests(t.Context()) },
		func() error { return c.ApplyManifests(t.Context(), manifests.Pools) },
		func() error { return c.AddNodes(t.Context(), nodes()) },
		func() error {
			return c.RunExporters(t.Context(), nodes(), devcluster.ExporterOptions{ServiceAccount: release.Namespace + "/nvtopo-exporter"})
		},
		func() error {
			_, err := c.StartScheduler(t.Context(), devcluster.SchedulerOptions{
				Binary: testkit.Program(t, "nvtopo-scheduler"), Config: config, ServiceAccount: release.Namespace + "/nvtopo-scheduler",
			})
			return err
		},
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

// pod returns a pod that requests GPUs on the nodes of a part.
func pod(name, of string, gpus int, annotations map[string]string) *v1.Pod {
	return testobj.Pod(name).Namespace("team-a").Annotations(annotations).Scheduler(schedulerName).NodeSelector(map[string]string{part: of}).
		Image("example.com/trainer").GPUs(gpus).CPU("1").Memory("1Gi").Obj()
}

func (e *testEnv) create(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		if _, err := e.kube.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// fill creates the pods: a gang that is placed and one that waits, single pods, and one that others
// prevent from being placed.
func (e *testEnv) fill(t *testing.T) {
	t.Helper()
	for _, name := range []string{"team-a", "team-b"} {
		ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{poolv1alpha1.LabelTenant: name}}}
		if _, err := e.kube.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	gang := func(name string, members, gpus int) {
		for i := range members {
			e.create(t, pod(fmt.Sprintf("%s-%d", name, i), "batch", gpus, map[string]string{gangrequest.GangKey: name, gangrequest.GangSizeKey: strconv.Itoa(members)}))
		}
	}
	gang("llm", 6, 8)
	for i := range 5 {
		e.create(t, pod(fmt.Sprintf("notebook-%d", i), "batch", 1+i%2, nil))
	}
	e.create(t, pod("infer-0", "batch", 4, nil), pod("resident-0", "small", 6, nil), pod("resident-1", "small", 6, nil))
	e.bound(t, 6+5+3)
	gang("vision", 12, 8)                      // more than fits
	e.create(t, pod("waits", "small", 4, nil)) // two are free on either node
	e.refused(t, "waits")
}

// bound waits until a number of pods have a node.
func (e *testEnv) bound(t *testing.T, want int) {
	t.Helper()
	testkit.Eventually(t, patience, fmt.Sprint(want, " pods have a node"), func(ctx context.Context) (bool, string) {
		all, err := e.kube.CoreV1().Pods("team-a").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		have := 0
		for i := range all.Items {
			if all.Items[i].Spec.NodeName != "" {
				have++
			}
		}
		return have == want, strconv.Itoa(have)
	})
}

// refused waits until the scheduler has written why a pod waits.
func (e *testEnv) refused(t *testing.T, name string) {
	t.Helper()
	testkit.Eventually(t, patience, name+" is refused", func(ctx context.Context) (bool, string) {
		p, err := e.kube.CoreV1().Pods("team-a").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for i := range p.Status.Conditions {
			if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
				return true, ""
			}
		}
		return false, "nothing is said yet"
	})
}

// pools creates a pool with two tenants. No Kueue runs here: the objects of its controller are written
// under the controller's account.
func (e *testEnv) pools(t *testing.T) {
	t.Helper()
	config, err := e.ServiceAccountConfig(t.Context(), release.Namespace, "nvtopo-pool-controller")
	if err != nil {
		t.Fatal(err)
	}
	controller, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	e.object(t, e.dyn, poolv1alpha1.ComputePoolGVR, "ComputePool", "", "training", map[string]any{
		"poolType": "gpu", "capacity": map[string]any{"total": int64(128), "reserved": int64(8)},
		"quotas": []any{
			map[string]any{"tenant": "team-a", "guaranteed": int64(32), "limit": int64(96), "weight": int64(2)},
			map[string]any{"tenant": "team-b", "guaranteed": int64(24), "limit": int64(64), "weight": int64(1)},
		},
	})
	status := map[string]any{
		"phase": "Ready", "totalCapacity": int64(128), "reservedCapacity": int64(8), "allocatedCapacity": int64(71), "availableCapacity": int64(49), "discovered": int64(128),
		"nodes": int64(16), "readyNodes": int64(16), "utilizationPercent": int64(55),
		"shares": []any{
			map[string]any{"tenant": "team-a", "guaranteed": int64(32), "pinned": int64(0), "limit": int64(96), "used": int64(71), "borrowed": int64(39), "pending": int64(13)},
			map[string]any{"tenant": "team-b", "guaranteed": int64(24), "pinned": int64(0), "limit": int64(64), "used": int64(0), "borrowed": int64(0), "pending": int64(0)},
		},
	}
	data, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := controller.Resource(poolv1alpha1.ComputePoolGVR).Patch(t.Context(), "training", types.MergePatchType, data, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	e.object(t, e.dyn, poolv1alpha1.PriceBookGVR, "PriceBook", "", "default", map[string]any{
		"currency": "USD", "minPeriodSeconds": int64(60), "prices": []any{map[string]any{"resource": v1alpha1.DefaultResource, "pricePerHour": "2.5"}},
	})
	e.object(t, e.dyn, poolv1alpha1.TenantAccountGVR, "TenantAccount", "", "team-a", map[string]any{
		"credits": []any{map[string]any{"id": "payment-1", "amount": "5000.00", "at": "2026-01-01T00:00:00Z"}},
	})
	all, err := e.kube.CoreV1().Pods("team-a").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now().UTC().Add(-2 * time.Hour).Format(time.RFC3339)
	models := map[string]any{"batch": "NVIDIA-H200", "small": "Tesla-V100-SXM2-32GB"}
	for i := range all.Items {
		p := &all.Items[i]
		if p.Spec.NodeName == "" {
			continue
		}
		gpus := p.Spec.Containers[0].Resources.Limits[v1alpha1.DefaultResource]
		e.object(t, controller, poolv1alpha1.UsageRecordGVR, "UsageRecord", p.Namespace, string(p.UID)+"-gpu", map[string]any{
			"tenant": "team-a", "pool": "training", "pod": p.Name, "podUID": string(p.UID), "node": p.Spec.NodeName,
			"resource": v1alpha1.DefaultResource, "model": models[p.Spec.NodeSelector[part]], "quantity": gpus.String(), "start": start,
		})
	}
}

// viewer returns a token of an account that may see all of the web view, and nothing else.
func (e *testEnv) viewer(t *testing.T) (token string) {
	t.Helper()
	const name = "viewer"
	if err := e.ApplyManifests(t.Context(), manifests.UI); err != nil {
		t.Fatal(err)
	}
	account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := e.kube.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "nvtopo-ui-viewer"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceDefault}},
	}
	if _, err := e.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := e.ServiceAccountConfig(t.Context(), metav1.NamespaceDefault, name)
	if err != nil {
		t.Fatal(err)
	}
	return config.BearerToken
}

// object creates an object of a kind of pools.
func (e *testEnv) object(t *testing.T, by dynamic.Interface, of schema.GroupVersionResource, kind, namespace, name string, spec map[string]any) {
	t.Helper()
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": of.GroupVersion().String(), "kind": kind, "metadata": metadata, "spec": spec}}
	_, err := by.Resource(of).Namespace(namespace).Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("%s %s: %v", kind, name, err)
	}
}
