// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/transcript"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// money are objects that say who owes what, as the pool controller and people write them.
const money = `apiVersion: pool.nvtopo.dev/v1alpha1
kind: PriceBook
metadata: {name: default}
spec: {currency: USD, prices: [{resource: nvidia.com/gpu, pricePerHour: "2.0"}], mode: AllUnits, discountScope: Session}
---
apiVersion: pool.nvtopo.dev/v1alpha1
kind: TenantAccount
metadata: {name: team-a, finalizers: [pool.nvtopo.dev/billing]}
spec: {credits: [{id: payment-1, amount: "1000.00", at: "2026-11-01T00:00:00Z"}]}`

// configured is what people and programs made of our kinds, with foreign objects beside.
const configured = `apiVersion: pool.nvtopo.dev/v1alpha1
kind: ComputePool
metadata: {name: training, finalizers: [pool.nvtopo.dev/pool]}
spec: {poolType: gpu, capacity: {total: 8}, quotas: [{tenant: team-a, limit: 8, guaranteed: 8}]}
---
apiVersion: topology.nvtopo.dev/v1alpha1
kind: ClusterTopology
metadata: {name: default}
spec: {levels: [{name: rack, nodeLabel: topology.kubernetes.io/rack}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvidia-device-plugin-daemonset, namespace: kube-system}
spec:
  selector: {matchLabels: {name: plugin}}
  template:
    metadata: {labels: {name: plugin}}
    spec:
      nodeSelector: {there-is: none}
      containers:
      - name: nvidia-device-plugin-ctr
        image: plugin
        env: [{name: KUBELET_SOCKET, value: /var/lib/kubelet/device-plugins/nvtopo/kubelet.sock}, {name: KEPT, value: "1"}]`

// foreign have the kinds and nearly the names of ours.
const foreign = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: nvtopo-of-others}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: nvtopo-of-others}
spec: {matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [limitranges]}]}, validations: [{expression: "true"}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: exporter-nvtopo-of-others, namespace: default}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: nvtopo-of-others, namespace: default, labels: {app.kubernetes.io/part-of: nvtopo}}`

// TestUninstall: `nvtopo uninstall` leaves nothing of an installation with pools but money and
// definitions, --purge nothing at all, foreign objects stay, and pods run on as they were.
func TestUninstall(t *testing.T) {
	e := newTestEnv(t, devcluster.Config{Controllers: true, KwokBinary: testkit.Kwok(t), Log: testkit.Log()})
	e.install(t)
	objects := e.objects(t)
	for _, folder := range []string{"overlays/pools", "ui"} {
		objects.apply(t, built(t, folder)...)
	}
	objects.apply(t, decoded(t, money)...)
	objects.apply(t, decoded(t, configured)...)
	objects.apply(t, decoded(t, foreign)...)
	e.node(t, "node-1", "dgx-a100")
	scheduler := e.startShipped(t, manifests.SchedulerConfigPath)
	metered := gpuPod("metered", shippedProfile, 2).Obj()
	metered.Finalizers = []string{"pool.nvtopo.dev/metering", "example.com/theirs"}
	e.create(t, gpuPod("runs", shippedProfile, 4).Obj(), metered)
	before := map[string]*v1.Pod{}
	for _, name := range []string{"runs", "metered"} {
		testkit.Eventually(t, waitLimit, "pod "+name+" runs", func(context.Context) (bool, string) {
			before[name] = e.get(t, name)
			return before[name].Status.Phase == v1.PodRunning, string(before[name].Status.Phase)
		})
		if before[name].Annotations[allocation.Key] == "" {
			t.Fatalf("pod %s has no allocation", name)
		}
	}
	if left := objects.ours(t); len(left) < 100 {
		t.Fatalf("the test sees %d objects of an installation: %v", len(left), left)
	}
	testkit.Eventually(t, waitLimit, "every program has its Lease", func(ctx context.Context) (bool, string) {
		leases, err := e.client.CoordinationV1().Leases(systemNamespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(leases.Items) == 4, fmt.Sprintf("%d Leases, %v", len(leases.Items), err)
	})
	shown := transcript.New("uninstall", "--kubeconfig", e.Kubeconfig())
	shown.Hide("nvtopo-scheduler-config-[a-z0-9]{10}", "nvtopo-scheduler-config-0123456789") // it changes with the configuration
	shown.Say("What would be removed of an installation with pools. Nothing is, with --dry-run.")
	plan := shown.Run(t, "uninstall", "--dry-run")
	shown.Compare(t)
	for _, want := range []string{
		"DaemonSet nvtopo-system/nvtopo-node-agent", "KUBELET_SOCKET", "NodeGPUTopology node-1", "finalizer pool.nvtopo.dev/metering", "kept PriceBook default: money; --purge removes it",
	} {
		if !strings.Contains(plan, want) {
			t.Errorf("the plan does not say %q:\n%s", want, plan)
		}
	}
	if again := e.nvtopo(t, "uninstall", "--dry-run"); again != plan {
		t.Errorf("a dry run changed something (-before +after):\n%s", cmp.Diff(plan, again))
	}

	e.create(t, gpuPod("waits", shippedProfile, 64).Obj())
	e.tried(t, "waits")
	if !slices.ContainsFunc(e.get(t, "waits").ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "nvtopo-scheduler" }) {
		t.Errorf("the managers of a pod's fields do not tell that our scheduler tried it: %v", e.get(t, "waits").ManagedFields)
	}

	// What here are processes beside the cluster would end with their pods.
	e.StopExporters("node-1")
	if err := scheduler.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	said := e.nvtopo(t, "uninstall")
	t.Log(said)
	objects.wantLeft(t, "uninstall", func(o *unstructured.Unstructured) bool {
		kinds := []string{"PriceBook", "TenantAccount", "CustomResourceDefinition", "APIService"} // the API server makes one of each group
		return slices.Contains(kinds, o.GetKind()) && len(o.GetFinalizers()) == 0
	})
	for name, was := range before {
		if diff := cmp.Diff(lasting(was), lasting(e.get(t, name))); diff != "" {
			t.Errorf("pod %s (-before +after):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff([]string{"example.com/theirs"}, e.get(t, "metered").Finalizers); diff != "" {
		t.Errorf("finalizers of the metered pod (-want +got):\n%s", diff)
	}
	plugin, err := e.client.AppsV1().DaemonSets("kube-system").Get(t.Context(), "nvidia-device-plugin-daemonset", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]v1.EnvVar{{Name: "KEPT", Value: "1"}}, plugin.Spec.Template.Spec.Containers[0].Env); diff != "" {
		t.Errorf("variables of the device plugin (-want +got):\n%s", diff)
	}

	for _, said := range []string{said, e.nvtopo(t, "uninstall"), e.nvtopo(t, "uninstall", "--dry-run")} {
		if !strings.Contains(said, "pods that name nvtopo's scheduler have no node and will get none: default/waits.") {
			t.Errorf("the pod that waits is not named:\n%s", said)
		}
	}
	e.remove(t, "waits")
	if said := e.nvtopo(t, "uninstall", "--purge"); !strings.Contains(said, "nothing of nvtopo is left") {
		t.Error(said)
	}
	objects.wantLeft(t, "uninstall --purge", func(*unstructured.Unstructured) bool { return false })
	e.create(t, gpuPod("late", shippedProfile, 4).Obj())
	for _, view := range []string{"explain late -n default", "top", "get pods -A"} {
		if said := e.nvtopo(t, strings.Fields(view)...); !strings.Contains(said, "no scheduler leads: nvtopo is not installed") || !strings.Contains(said, "install nvtopo: ") {
			t.Errorf("nvtopo %s does not say that nvtopo is not there, and how to install it:\n%s", view, said)
		}
	}
	for name, was := range before {
		if diff := cmp.Diff(lasting(was), lasting(e.get(t, name))); diff != "" {
			t.Errorf("after the purge, pod %s (-before +after):\n%s", name, diff)
		}
	}
}

// lasting is what of a pod must not change while it runs.
func lasting(p *v1.Pod) *v1.Pod {
	p = p.DeepCopy()
	p.ResourceVersion, p.ManagedFields, p.Finalizers, p.Generation = "", nil, nil, 0
	return p
}

// nvtopo runs the command as the administrator and returns what it prints.
func (e *testEnv) nvtopo(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.New("nvtopo")
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append(args, "--kubeconfig", e.Kubeconfig()))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("nvtopo %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

// clusterObjects are all objects of a cluster, whatever their kind.
type clusterObjects struct {
	e      *testEnv
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func (e *testEnv) objects(t *testing.T) *clusterObjects {
	t.Helper()
	return &clusterObjects{e, e.dynamic(t), restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(e.client.Discovery()))}
}

// apply applies objects, those of new kinds once the API server has them.
func (c *clusterObjects) apply(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		testkit.Eventually(t, waitLimit, o.GetKind()+" "+o.GetName()+" is applied", func(ctx context.Context) (bool, string) {
			gvk := o.GroupVersionKind()
			m, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			if err != nil {
				c.mapper.Reset()
				return false, err.Error()
			}
			r := dynamic.ResourceInterface(c.client.Resource(m.Resource))
			if m.Scope.Name() == meta.RESTScopeNameNamespace {
				r = c.client.Resource(m.Resource).Namespace(o.GetNamespace())
			}
			_, err = r.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true})
			return err == nil, fmt.Sprint(err)
		})
	}
}

// ours lists every object of every kind that has something of nvtopo in its name, labels, finalizers or kind,
// as "kind namespace/name". It knows nothing of how the command finds them.
func (c *clusterObjects) ours(t *testing.T) map[string]*unstructured.Unstructured {
	t.Helper()
	lists, err := c.e.client.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*unstructured.Unstructured{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Kind == "Event" {
				continue
			}
			found, err := c.client.Resource(gv.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("list %s: %v", r.Name, err)
			}
			for i := range found.Items {
				o := &found.Items[i]
				if o.GetKind() != "Pod" || len(o.GetFinalizers()) > 0 {
					if text := marks(t, gv.Group, o); strings.Contains(text, "nvtopo") && !strings.Contains(text, "nvtopo-of-others") {
						out[o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()] = o
					}
				}
			}
		}
	}
	return out
}

// marks is the text of an object by which it might be ours. Pods keep their annotations.
func marks(t *testing.T, group string, o *unstructured.Unstructured) string {
	t.Helper()
	all := []any{group, o.GetName(), o.GetNamespace(), o.GetLabels(), o.GetFinalizers()}
	if o.GetKind() != "Pod" {
		all = append(all, o.GetAnnotations())
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wantLeft waits until nothing of ours is left but what may be: the garbage collector comes later.
func (c *clusterObjects) wantLeft(t *testing.T, after string, may func(*unstructured.Unstructured) bool) {
	t.Helper()
	testkit.Eventually(t, waitLimit, "nothing of ours is left after "+after, func(context.Context) (bool, string) {
		var left []string
		for name, o := range c.ours(t) {
			if !may(o) {
				left = append(left, name)
			}
		}
		slices.Sort(left)
		return len(left) == 0, strings.Join(left, ", ")
	})
	others := decoded(t, foreign)
	for _, o := range others {
		m, err := c.mapper.RESTMapping(o.GroupVersionKind().GroupKind())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.client.Resource(m.Resource).Namespace(o.GetNamespace()).Get(t.Context(), o.GetName(), metav1.GetOptions{}); err != nil {
			t.Errorf("after %s a foreign object: %v", after, err)
		}
	}
}

// built are the objects that kustomize builds of a folder of manifests, definitions first.
func built(t *testing.T, folder string) []*unstructured.Unstructured {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(testkit.Repository(), "manifests", folder))
	if err != nil {
		t.Fatal(err)
	}
	text, err := all.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decoded(t, string(text))
}

func decoded(t *testing.T, text string) (out []*unstructured.Unstructured) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatalf("%v:\n%s", err, doc)
		}
		out = append(out, o)
	}
	return out
}
