// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// warned keeps the warnings that an API server sends, as kubectl prints them.
type warned struct {
	mu    sync.Mutex
	texts []string // guarded by mu
}

func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// take returns the warnings since it was called last.
func (w *warned) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := strings.Join(w.texts, "\n")
	w.texts = nil
	return out
}

// testKeyWarnings writes pods and templates with keys that nothing reads: the API server takes them, and
// warns.
func testKeyWarnings(t *testing.T, config *rest.Config) {
	t.Helper()
	var heard warned
	config = rest.CopyConfig(config)
	config.WarningHandler = &heard
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	try := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	pod := func(notes notes) error {
		_, err := kube.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: notes}, Spec: podSpec()}, try)
		return err
	}
	template := func(notes notes) v1.PodTemplateSpec {
		return v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: notes, Labels: map[string]string{"app": "x"}}, Spec: podSpec()}
	}
	deployment := func(notes notes) error {
		_, err := kube.AppsV1().Deployments(metav1.NamespaceDefault).Create(t.Context(), &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "x"},
			Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}, Template: template(notes)},
		}, try)
		return err
	}
	job := func(notes notes) error {
		spec := template(notes)
		spec.Spec.RestartPolicy = v1.RestartPolicyNever
		_, err := kube.BatchV1().Jobs(metav1.NamespaceDefault).Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: batchv1.JobSpec{Template: spec}}, try)
		return err
	}
	tests := map[string]struct {
		write func(notes) error
		notes notes
		want  string // part of the warning; empty: none
	}{
		"a pod with known keys":       {pod, notes{"nvtopo.dev/min-link": "NV4", "nvtopo.dev/gang": "g", "nvtopo.dev/gang-size": "2"}, ""},
		"a pod with a misspelled one": {pod, notes{"nvtopo.dev/topology-polcy": "restricted"}, "metadata.annotations: nvtopo.dev/topology-polcy (near: nvtopo.dev/topology-policy) is not known and without effect"},
		"a pod with another domain's": {pod, notes{"nvtopo.io/topology-policy": "restricted"}, "nvtopo.io/topology-policy (near: nvtopo.dev/topology-policy) is not known"},
		"a pod with the size of none": {pod, notes{"nvtopo.dev/gang-size": "2"}, "nvtopo.dev/gang-size: without effect on a pod that is in no gang: nvtopo.dev/gang is missing"},
		"a Deployment":                {deployment, notes{"nvtopo.dev/required-topolgy": "rack"}, "spec.template.metadata.annotations: nvtopo.dev/required-topolgy (near: nvtopo.dev/required-topology)"},
		"a good Deployment":           {deployment, notes{"nvtopo.dev/min-link": "NV4"}, ""},
		"a Job":                       {job, notes{"nvtopo.dev/gang-size": "2"}, "spec.template.metadata.annotations: nvtopo.dev/gang-size: without effect"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tc.write(tc.notes); err != nil {
				t.Errorf("refused: %v", err)
			}
			got := heard.take()
			if tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("the warning is %q, want %q", got, tc.want)
			}
			t.Log(got)
		})
	}
}

// testIgnoredKeys has a pod with a misspelled key placed: an event says that the key had no effect.
func (e *testEnv) testIgnoredKeys(t *testing.T) {
	node := e.freshName("keys")
	e.node(t, node, "dgx1-v100")
	name := e.freshName("misspelled")
	e.create(t, gpuPod(name, preBindProfile, 1).Annotation("nvtopo.dev/topology-polcy", "restricted").NodeSelector(host(node)).Obj())
	e.bound(t, name)
	e.wantEvent(t, name, "KeyIgnored", "Annotation nvtopo.dev/topology-polcy is not known; nearest is nvtopo.dev/topology-policy; the pod is scheduled without it")
}
