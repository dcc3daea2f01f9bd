// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/devcluster/demo"
	"github.com/nvtopo/nvtopo/internal/testrig"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

const queueLabel = "kueue.x-k8s.io/queue-name"

var workloads = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"}

// lab is a cluster with Kueue and the scheduler as they are shipped.
type lab struct {
	*devcluster.Cluster
	client kubernetes.Interface
	dyn    dynamic.Interface
}

func newLab(t *testing.T, nodes ...devcluster.NodeSpec) *lab {
	t.Helper()
	binary, config := testrig.Kueue(t)
	c, err := demo.Boot(t.Context(), &demo.Options{
		Kwok: testrig.Kwok(t), Scheduler: testrig.Program(t, "nvtopo-scheduler"), Nodes: nodes,
		Kueue:    &devcluster.KueueOptions{Binary: binary, Config: config},
		Progress: testrig.Log(), Log: testrig.Log(),
	})
	if err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stop the cluster: %v", err)
		}
	})
	l := &lab{Cluster: c}
	if l.client, err = kubernetes.NewForConfig(c.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	if l.dyn, err = dynamic.NewForConfig(c.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	return l
}

// tenant makes a namespace whose jobs and pods are Kueue's business.
func (l *lab) tenant(t *testing.T, name string) {
	t.Helper()
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{poolv1alpha1.LabelTenant: name}}}
	if _, err := l.client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// queues is a flavor, and a tenant's queue with a quota of GPUs.
func queues(namespace, name string, gpus int) string {
	return fmt.Sprintf(`apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: %[2]s}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: %[2]s-%[1]s}
spec:
  namespaceSelector: {matchLabels: {%[4]s: %[1]s}}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: %[2]s, resources: [{name: nvidia.com/gpu, nominalQuota: %[3]d}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: %[2]s, namespace: %[1]s}
spec: {clusterQueue: %[2]s-%[1]s}
`, namespace, name, gpus, poolv1alpha1.LabelTenant)
}

// pods are the pods of a job.
func (l *lab) pods(t *testing.T, namespace, job string) []*v1.Pod {
	t.Helper()
	list, err := l.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
	if err != nil {
		t.Fatal(err)
	}
	var out []*v1.Pod
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

func (l *lab) pod(t *testing.T, namespace, name string) *v1.Pod {
	t.Helper()
	pod, err := l.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// apply makes the objects of some documents of YAML.
func (l *lab) apply(t *testing.T, text string) {
	t.Helper()
	for _, document := range strings.Split(text, "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		kind, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
		var objects dynamic.ResourceInterface = l.dyn.Resource(kind)
		if o.GetNamespace() != "" {
			objects = l.dyn.Resource(kind).Namespace(o.GetNamespace())
		}
		if _, err := objects.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatalf("make %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// workload is what Kueue made of a job; nil if there is none yet.
func (l *lab) workload(ctx context.Context, namespace, job string) (*unstructured.Unstructured, error) {
	list, err := l.dyn.Resource(workloads).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		owners := list.Items[i].GetOwnerReferences()
		if slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.Name == job }) {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// waits waits until Kueue has looked at a job and found no quota for it. The job is then
// still suspended.
func (l *lab) waits(t *testing.T, namespace, job string) {
	t.Helper()
	testrig.Eventually(t, patience, "job "+job+" waits for quota", func(ctx context.Context) (bool, string) {
		w, err := l.workload(ctx, namespace, job)
		if err != nil || w == nil {
			return false, fmt.Sprintf("workload %v, %v", w, err)
		}
		reserved := condition(w, "QuotaReserved")
		return reserved["status"] == "False" && strings.Contains(fmt.Sprint(reserved["message"]), "insufficient"), fmt.Sprint(reserved)
	})
	got, err := l.client.BatchV1().Jobs(namespace).Get(t.Context(), job, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.Suspend == nil || !*got.Spec.Suspend {
		t.Fatalf("job %s waits for quota and is not suspended", job)
	}
}

// condition is a condition of a workload; nil if it has none of that type.
func condition(w *unstructured.Unstructured, kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(w.Object, "status", "conditions")
	for _, entry := range all {
		if c, ok := entry.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return nil
}

// conditions says what became of the workloads, for a test that fails.
func (l *lab) conditions(ctx context.Context, namespace string) string {
	list, err := l.dyn.Resource(workloads).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var out []string
	for i := range list.Items {
		all, _, _ := unstructured.NestedSlice(list.Items[i].Object, "status", "conditions")
		out = append(out, fmt.Sprint(list.Items[i].GetName(), " ", all))
	}
	return strings.Join(out, "; ")
}
