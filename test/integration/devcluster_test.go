// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// plainNode creates a simulated node without GPUs.
func plainNode(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("32Gi"), v1.ResourcePods: resource.MustParse("110")}
	_, err := client.CoreV1().Nodes().Create(t.Context(), &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{devcluster.AnnotationKwokNode: "fake"}},
		Status: v1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func podSpec() v1.PodSpec {
	return v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "example.com/app:1"}}}
}

func bind(t *testing.T, client kubernetes.Interface, pod, node string) {
	t.Helper()
	err := client.CoreV1().Pods("default").Bind(t.Context(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod}, Target: v1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// workloadsMakePods creates one workload of each kind and waits for its pod. New users try a Deployment
// first.
func workloadsMakePods(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	template := func(app string) (*metav1.LabelSelector, v1.PodTemplateSpec) {
		labels := map[string]string{"app": app}
		return &metav1.LabelSelector{MatchLabels: labels}, v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()}
	}
	apps := client.AppsV1()
	for name, create := range map[string]func(app string) error{
		"deployment": func(app string) error {
			selector, pod := template(app)
			_, err := apps.Deployments("default").Create(t.Context(), &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: pod},
			}, metav1.CreateOptions{})
			return err
		},
		"statefulset": func(app string) error {
			selector, pod := template(app)
			_, err := apps.StatefulSets("default").Create(t.Context(), &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: pod, ServiceName: app},
			}, metav1.CreateOptions{})
			return err
		},
		"daemonset": func(app string) error {
			selector, pod := template(app)
			_, err := apps.DaemonSets("default").Create(t.Context(), &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Name: app}, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pod},
			}, metav1.CreateOptions{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := create("w-" + name); err != nil {
				t.Fatal(err)
			}
			onlyPod(t, client, "app=w-"+name)
		})
	}
}

// TestDevclusterWorkloads checks that a devcluster runs pods and controllers.
func TestDevclusterWorkloads(t *testing.T) { //nolint:tparallel // its steps share one cluster
	c := startCluster(t, devcluster.Config{Controllers: true, KwokBinary: testkit.Kwok(t), AuditLog: true})
	client := clientFor(t, c)
	plainNode(t, client, "n1")

	node, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(node.Spec.Taints) != 0 {
		t.Errorf("the node has taints %v, want none", node.Spec.Taints)
	}

	t.Run("a bound pod runs, finishes when told to, and goes when deleted", func(t *testing.T) {
		pods := client.CoreV1().Pods("default")
		if _, err := pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: podSpec()}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		bind(t, client, "p", "n1")
		pod := waitPhase(t, client, "default", "p", v1.PodRunning)
		if len(pod.Status.ContainerStatuses) != 1 || !pod.Status.ContainerStatuses[0].Ready {
			t.Errorf("container statuses are %v, want one ready", pod.Status.ContainerStatuses)
		}
		patch := []byte(`{"metadata":{"annotations":{"` + devcluster.AnnotationRunsFor + `":"0s"}}}`)
		if _, err := pods.Patch(t.Context(), "p", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		waitPhase(t, client, "default", "p", v1.PodSucceeded)
		if err := pods.Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitGone(t, client, "p")
	})

	t.Run("a deleted running pod goes", func(t *testing.T) {
		pods := client.CoreV1().Pods("default")
		if _, err := pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: podSpec()}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		bind(t, client, "q", "n1")
		waitPhase(t, client, "default", "q", v1.PodRunning)
		if err := pods.Delete(t.Context(), "q", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitGone(t, client, "q")
	})

	t.Run("the end of a pod is written once, whatever else changes", func(t *testing.T) { endsOnce(t, c, client) })

	t.Run("a job makes a pod, completes with it, and takes it along when deleted", func(t *testing.T) {
		template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{devcluster.AnnotationRunsFor: "100ms"}}, Spec: podSpec()}
		template.Spec.RestartPolicy = v1.RestartPolicyNever
		_, err := client.BatchV1().Jobs("default").Create(t.Context(),
			&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "j"}, Spec: batchv1.JobSpec{Template: template}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod := onlyPod(t, client, "job-name=j")
		bind(t, client, pod, "n1")
		testkit.Eventually(t, waitLimit, "the job completes", func(ctx context.Context) (bool, string) {
			j, err := client.BatchV1().Jobs("default").Get(ctx, "j", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			return j.Status.Succeeded == 1 && j.Status.CompletionTime != nil, j.Status.String()
		})
		err = client.BatchV1().Jobs("default").Delete(t.Context(), "j", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
		if err != nil {
			t.Fatal(err)
		}
		waitGone(t, client, pod)
	})

	t.Run("a job that waits until its pod has failed replaces a deleted one", func(t *testing.T) {
		template := v1.PodTemplateSpec{Spec: podSpec()}
		template.Spec.RestartPolicy = v1.RestartPolicyNever
		_, err := client.BatchV1().Jobs("default").Create(t.Context(), &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Name: "f"},
			Spec:       batchv1.JobSpec{Template: template, PodReplacementPolicy: new(batchv1.Failed)},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		first := onlyPod(t, client, "job-name=f")
		bind(t, client, first, "n1")
		waitPhase(t, client, "default", first, v1.PodRunning)
		if err := client.CoreV1().Pods("default").Delete(t.Context(), first, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		waitGone(t, client, first)
		if second := onlyPod(t, client, "job-name=f"); second == first {
			t.Errorf("pod %s is still there", first)
		}
	})

	t.Run("a replica set makes its pod and a budget guards it", func(t *testing.T) {
		labels := map[string]string{"app": "r"}
		_, err := client.AppsV1().ReplicaSets("default").Create(t.Context(), &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: "r"},
			Spec: appsv1.ReplicaSetSpec{
				Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.PolicyV1().PodDisruptionBudgets("default").Create(t.Context(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: "r"},
			Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod := onlyPod(t, client, "app=r")
		bind(t, client, pod, "n1")
		testkit.Eventually(t, waitLimit, "the budget counts the pod", func(ctx context.Context) (bool, string) {
			b, err := client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "r", metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			return b.Status.CurrentHealthy == 1 && b.Status.ExpectedPods == 1, b.Status.String()
		})
	})

	t.Run("each kind of workload makes its pod", func(t *testing.T) { workloadsMakePods(t, client) })

	t.Run("a NoExecute taint evicts", func(t *testing.T) {
		plainNode(t, client, "n2")
		pods := client.CoreV1().Pods("default")
		if _, err := pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Spec: podSpec()}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		bind(t, client, "e", "n2")
		waitPhase(t, client, "default", "e", v1.PodRunning)
		patch := []byte(`{"spec":{"taints":[{"key":"gpu-fault","effect":"NoExecute"}]}}`)
		if _, err := client.CoreV1().Nodes().Patch(t.Context(), "n2", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		waitGone(t, client, "e")
	})

	t.Run("requests are in the audit log", func(t *testing.T) {
		testkit.Eventually(t, waitLimit, "the audit log names the binding", func(context.Context) (bool, string) {
			b, err := os.ReadFile(c.AuditLog())
			if err != nil {
				return false, err.Error()
			}
			return strings.Contains(string(b), `"/api/v1/namespaces/default/pods/p/binding"`), "no such request"
		})
	})
}

func waitGone(t *testing.T, client kubernetes.Interface, pod string) {
	t.Helper()
	testkit.Eventually(t, waitLimit, "pod "+pod+" goes", func(ctx context.Context) (bool, string) {
		_, err := client.CoreV1().Pods("default").Get(ctx, pod, metav1.GetOptions{})
		if err == nil {
			return false, "still there"
		}
		return apierrors.IsNotFound(err), err.Error()
	})
}

func onlyPod(t *testing.T, client kubernetes.Interface, selector string) string {
	t.Helper()
	var name string
	testkit.Eventually(t, waitLimit, "a pod with "+selector, func(ctx context.Context) (bool, string) {
		l, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil || len(l.Items) == 0 {
			return false, "none"
		}
		name = l.Items[0].Name
		return true, name
	})
	return name
}

// TestFreePorts checks that a free port is not given to another process while connections and listeners
// without a fixed port come and go.
func TestFreePorts(t *testing.T) {
	for range 50 {
		port, err := devcluster.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if port >= 30000 {
			t.Fatalf("port %d: the system gives it to whoever names none", port)
		}
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
