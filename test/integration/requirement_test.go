// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// The pods that the product was asked to place, as they were given, but for images
// and names.
const (
	requiredPod = `
metadata:
  name: distributed
  annotations:
    scheduling.k8s.io/topology-policy: single-numa
    scheduling.k8s.io/numa-affinity: required
spec:
  schedulerName: topology-aware-scheduler
  containers:
  - name: trainer
    image: example.com/trainer:1
    resources:
      limits: {nvidia.com/gpu: 4, memory: 128Gi}
      requests: {nvidia.com/gpu: 4, memory: 128Gi}
    env:
    - name: CUDA_VISIBLE_DEVICES
      valueFrom: {fieldRef: {fieldPath: "metadata.annotations['scheduling.k8s.io/gpu-ids']"}}
  nodeSelector: {accelerator: nvidia-a100}
  tolerations:
  - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
`
	requiredNUMAPod = `
metadata:
  name: numa
  annotations:
    topology.kubernetes.io/policy: single-numa-node
spec:
  schedulerName: topology-aware-scheduler
  containers:
  - name: main
    image: example.com/main:1
    resources:
      limits: {nvidia.com/gpu: "4", cpu: "32", memory: 128Gi}
      requests: {nvidia.com/gpu: "4", cpu: "32", memory: 128Gi}
  tolerations:
  - {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
`
)

// requiredNode are the labels that the product was asked to keep on a node of eight
// A100 behind NVSwitches, four on each of two NUMA nodes.
var requiredNode = map[string]string{
	"accelerator": "nvidia-a100",
	"gpu-count":   "8",
	"topology.kubernetes.io/gpu-interconnect": "nvswitch",
	"topology.kubernetes.io/numa-nodes":       "2",
	"topology.kubernetes.io/gpus-per-numa":    "4",
	"topology.kubernetes.io/single-numa-4gpu": "true",
	"topology.kubernetes.io/single-numa-8gpu": "false",
}

// TestRequiredPods: the required pods find their nodes. It installs what is shipped and places the
// pods of the requirement on a node that the exporter has marked, with the shipped accounts,
// policies and configuration.
func TestRequiredPods(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	taint := v1.Taint{Key: "nvidia.com/gpu", Value: "present", Effect: v1.TaintEffectNoSchedule}
	specs := []devcluster.NodeSpec{
		{Name: "gpu-node-1", Machine: "hgx-a100-8", Taints: []v1.Taint{taint}, Labels: map[string]string{v1.LabelTopologyZone: "a"}},
		{Name: "hopper", Machine: "dgx-h100"},
		// Somebody's own word for the same machine stays, and keeps the pod away.
		{Name: "by-hand", Machine: "hgx-a100-8", Labels: map[string]string{"accelerator": "reserved"}},
	}
	if err := l.AddNodes(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	l.publish(t, devcluster.ExporterOptions{}, specs...)
	g, err := specs[0].Graph()
	if err != nil {
		t.Fatal(err)
	}
	checkRequiredMarks(t, l.nodeObject(t, "gpu-node-1"), g)
	for name, want := range map[string]string{"hopper": "nvidia-h100", "by-hand": "reserved"} {
		if got := l.nodeObject(t, name).Labels["accelerator"]; got != want {
			t.Errorf("accelerator of %s is %q, want %q", name, got, want)
		}
	}
	if _, err := l.StartScheduler(t.Context(), devcluster.SchedulerOptions{
		Binary: testkit.Program(t, "nvtopo-scheduler"), Config: withKubeconfig(t, manifests.SchedulerConfigPath),
		ServiceAccount: l.schedulerAccount,
	}); err != nil {
		t.Fatal(err)
	}
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ml-jobs"}}
	if _, err := l.client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	taken := map[string]string{} // NUMA node -> pod
	for _, text := range []string{requiredPod, requiredNUMAPod} {
		pod := l.place(t, ns.Name, text)
		if pod.Spec.NodeName != "gpu-node-1" {
			t.Errorf("%s is on %s", pod.Name, pod.Spec.NodeName)
		}
		numa := pod.Annotations["scheduling.k8s.io/numa-node"]
		if taken[numa] != "" {
			t.Errorf("%s is on NUMA node %s, as %s", pod.Name, numa, taken[numa])
		}
		taken[numa] = pod.Name
		set, missing := g.Positions(strings.Split(pod.Annotations["scheduling.k8s.io/gpu-ids"], ","))
		if len(missing) > 0 || set.Len() != 4 || fmt.Sprint(g.NUMAOf(set)) != "["+numa+"]" {
			t.Errorf("%s has %s of NUMA node %q", pod.Name, pod.Annotations["scheduling.k8s.io/gpu-ids"], numa)
		}
	}
}

// place creates a pod and returns it once it is bound, with everything as it was given.
func (e *testEnv) place(t *testing.T, namespace, text string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
	pods := e.client.CoreV1().Pods(namespace)
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, waitLimit, "pod "+pod.Name+" is bound", func(ctx context.Context) (bool, string) {
		got, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		pod = got
		return pod.Spec.NodeName != "", fmt.Sprintf("%+v", pod.Status.Conditions)
	})
	bound, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := errors.Join(yaml.Unmarshal([]byte(text), &want), yaml.Unmarshal(bound, &got)); err != nil {
		t.Fatal(err)
	}
	if field := missing("", want, got); field != "" {
		t.Errorf("pod %s is not as it was given: %s", pod.Name, field)
	}
	return pod
}

// missing is the first field of want that got lacks or has otherwise; empty when there
// is none. Numbers and their text are the same, as in quantities.
func missing(path string, want, got any) string {
	switch w := want.(type) {
	case map[string]any:
		g, _ := got.(map[string]any)
		for k, v := range w {
			if field := missing(path+"."+k, v, g[k]); field != "" {
				return field
			}
		}
	case []any:
		g, _ := got.([]any)
		for i, v := range w {
			if len(g) <= i {
				return fmt.Sprintf("%s[%d] is gone", path, i)
			}
			if field := missing(fmt.Sprintf("%s[%d]", path, i), v, g[i]); field != "" {
				return field
			}
		}
	default:
		if fmt.Sprint(want) != fmt.Sprint(got) {
			return fmt.Sprintf("%s is %v, given was %v", path, got, want)
		}
	}
	return ""
}

func (e *testEnv) nodeObject(t *testing.T, name string) *v1.Node {
	t.Helper()
	node, err := e.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// checkRequiredMarks compares labels and annotation of the node with the requirement.
func checkRequiredMarks(t *testing.T, node *v1.Node, g *nvtopo.Graph) {
	t.Helper()
	got := map[string]string{}
	for k := range requiredNode {
		got[k] = node.Labels[k]
	}
	if diff := cmp.Diff(requiredNode, got); diff != "" {
		t.Errorf("labels (-required,+got):\n%s", diff)
	}
	type object = map[string]any
	want := object{"gpus": []any{}, "nvlinks": []any{}}
	for i := range g.GPUs {
		want["gpus"] = append(want["gpus"].([]any), object{"id": float64(i), "numa": float64(i / 4), "pcie": g.GPUs[i].PCIBusID})
		for j := i + 1; j < g.Len(); j++ {
			want["nvlinks"] = append(want["nvlinks"].([]any), object{"from": float64(i), "to": float64(j), "bandwidth_gbps": 600.0})
		}
	}
	var topology object
	if err := json.Unmarshal([]byte(node.Annotations["topology.kubernetes.io/gpu-topology"]), &topology); err != nil {
		t.Errorf("the annotation: %v", err)
	}
	if diff := cmp.Diff(want, topology); diff != "" {
		t.Errorf("annotation (-required,+got):\n%s", diff)
	}
}
