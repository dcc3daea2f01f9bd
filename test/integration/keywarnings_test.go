// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// warned keeps the warnings of an API server, as kubectl prints them.
type warned struct {
	mu    sync.Mutex
	texts []string // guarded by mu
}

func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// take returns the warnings since its last call, a line each.
func (w *warned) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := strings.Join(w.texts, "\n")
	w.texts = nil
	return out
}

// testKeyWarnings writes pods and templates with unknown keys: the API server accepts them, and warns.
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
		"a pod of a gang without one": {pod, notes{"nvtopo.dev/gang": "g"}, "metadata.annotations: nvtopo.dev/gang-size is missing beside nvtopo.dev/gang"},
		"a Job of a gang without one": {job, notes{"nvtopo.dev/gang": "g"}, "spec.template.metadata.annotations: nvtopo.dev/gang-size is missing"},
		"a good Job of a gang":        {job, notes{"nvtopo.dev/gang": "g", "nvtopo.dev/gang-size": "2"}, ""},
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

// setKinds are the kinds of other projects with several pod templates. Their modules are no part of this
// one, so their definitions accept any field.
var setKinds = map[string]schema.GroupVersionResource{
	"JobSet":          {Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"},
	"LeaderWorkerSet": {Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"},
	"RayJob":          {Group: "ray.io", Version: "v1", Resource: "rayjobs"},
}

// defineSetKinds makes the API server serve setKinds.
func defineSetKinds(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	files := fstest.MapFS{}
	for kind, gvr := range setKinds {
		files[kind+".yaml"] = &fstest.MapFile{Data: fmt.Appendf(nil, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: %[1]s
  names: {kind: %[3]s, listKind: %[3]sList, plural: %[2]s, singular: %[4]s}
  scope: Namespaced
  versions:
  - {name: %[5]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`, gvr.Group, gvr.Resource, kind, strings.ToLower(kind), gvr.Version)}
	}
	if err := c.ApplyManifests(t.Context(), files); err != nil {
		t.Fatal(err)
	}
}

// testSetKeyWarnings writes JobSets, LeaderWorkerSets and RayJobs whose templates have unknown keys: each
// is accepted, with one warning that names the first of them.
func testSetKeyWarnings(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	defineSetKinds(t, c)
	var heard warned
	config := c.RESTConfig()
	config.WarningHandler = &heard
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	type object = map[string]any
	template := func(pairs ...string) object {
		notes := object{}
		for i := 0; i < len(pairs); i += 2 {
			notes[pairs[i]] = pairs[i+1]
		}
		return object{"metadata": object{"annotations": notes}, "spec": object{"containers": []any{object{"name": "main", "image": "x"}}}}
	}
	jobSet := func(templates ...object) object {
		var jobs []any
		for i, t := range templates {
			jobs = append(jobs, object{"name": fmt.Sprint("job-", i), "replicas": int64(1), "template": object{"spec": object{"template": t}}})
		}
		return object{"replicatedJobs": jobs}
	}
	workerSet := func(leader, worker object) object {
		return object{"replicas": int64(1), "leaderWorkerTemplate": object{"size": int64(2), "leaderTemplate": leader, "workerTemplate": worker}}
	}
	rayJob := func(head, worker object) object {
		workers := []any{object{"groupName": "gpus", "replicas": int64(1), "template": worker}}
		return object{"rayClusterSpec": object{"headGroupSpec": object{"template": head}, "workerGroupSpecs": workers}}
	}
	good := func() object { return template("nvtopo.dev/topology-policy", "restricted") }
	wrong := func() object { return template("nvtopo.dev/topology-polcy", "restricted") }
	sizeOfNone := func() object { return template("nvtopo.dev/gang-size", "2") }
	noSize := func() object { return template("nvtopo.dev/gang", "g") }
	const (
		prefix   = "Validation failed for ValidatingAdmissionPolicy 'nvtopo-keys-of-sets' with binding 'nvtopo-keys-of-sets': "
		unknown  = ".annotations: nvtopo.dev/topology-polcy (near: nvtopo.dev/topology-policy) is not known and without effect; docs/configuration.md lists the annotations of pods"
		noGang   = ".annotations: nvtopo.dev/gang-size: without effect on a pod that is in no gang: nvtopo.dev/gang is missing"
		sizeless = ".annotations: nvtopo.dev/gang-size is missing beside nvtopo.dev/gang: it says how many pods of the gang start together, and without it they wait"
	)
	tests := map[string]struct {
		kind string
		spec object
		want string // the only warning; empty: none
	}{
		"a JobSet": {"JobSet", jobSet(good(), wrong()), prefix + "spec.replicatedJobs[job-1].template.spec.template.metadata" + unknown},
		"a JobSet of two misspelled templates": {
			"JobSet", jobSet(wrong(), wrong()), prefix + "spec.replicatedJobs[job-0].template.spec.template.metadata" + unknown,
		},
		"a JobSet with the size of no gang":      {"JobSet", jobSet(sizeOfNone()), prefix + "spec.replicatedJobs[job-0].template.spec.template.metadata" + noGang},
		"a JobSet with a gang of no size":        {"JobSet", jobSet(good(), noSize()), prefix + "spec.replicatedJobs[job-1].template.spec.template.metadata" + sizeless},
		"a gang of no size of a LeaderWorkerSet": {"LeaderWorkerSet", workerSet(good(), noSize()), prefix + "spec.leaderWorkerTemplate.workerTemplate.metadata" + sizeless},
		"a gang of no size of a RayJob":          {"RayJob", rayJob(noSize(), good()), prefix + "spec.rayClusterSpec.headGroupSpec.template.metadata" + sizeless},
		"a good JobSet":                          {"JobSet", jobSet(good(), good()), ""},
		"the leader of a LeaderWorkerSet":        {"LeaderWorkerSet", workerSet(wrong(), good()), prefix + "spec.leaderWorkerTemplate.leaderTemplate.metadata" + unknown},
		"the workers of a LeaderWorkerSet":       {"LeaderWorkerSet", workerSet(good(), wrong()), prefix + "spec.leaderWorkerTemplate.workerTemplate.metadata" + unknown},
		"both of a LeaderWorkerSet":              {"LeaderWorkerSet", workerSet(wrong(), wrong()), prefix + "spec.leaderWorkerTemplate.leaderTemplate.metadata" + unknown},
		"a good LeaderWorkerSet":                 {"LeaderWorkerSet", workerSet(good(), good()), ""},
		"the head of a RayJob":                   {"RayJob", rayJob(wrong(), good()), prefix + "spec.rayClusterSpec.headGroupSpec.template.metadata" + unknown},
		"the workers of a RayJob":                {"RayJob", rayJob(good(), wrong()), prefix + "spec.rayClusterSpec.workerGroupSpecs[gpus].template.metadata" + unknown},
		"head and workers of a RayJob":           {"RayJob", rayJob(wrong(), wrong()), prefix + "spec.rayClusterSpec.headGroupSpec.template.metadata" + unknown},
		"a good RayJob":                          {"RayJob", rayJob(good(), good()), ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			gvr := setKinds[tc.kind]
			set := &unstructured.Unstructured{Object: object{"metadata": object{"name": "x"}, "spec": tc.spec}}
			set.SetGroupVersionKind(gvr.GroupVersion().WithKind(tc.kind))
			if _, err := dyn.Resource(gvr).Namespace(metav1.NamespaceDefault).Create(t.Context(), set, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("refused: %v", err)
			}
			if diff := cmp.Diff(tc.want, heard.take()); diff != "" {
				t.Errorf("warnings (-want +got)\n%s", diff)
			}
		})
	}
}

// testIgnoredKeys checks that a pod with a misspelled key is placed, and that an event reports that the
// key had no effect.
func (e *testEnv) testIgnoredKeys(t *testing.T) {
	node := e.freshName("keys")
	e.node(t, node, "dgx1-v100")
	name := e.freshName("misspelled")
	e.create(t, gpuPod(name, preBindProfile, 1).Annotation("nvtopo.dev/topology-polcy", "restricted").NodeSelector(host(node)).Obj())
	e.bound(t, name)
	e.wantEvent(t, name, "KeyIgnored", "Annotation nvtopo.dev/topology-polcy is not known; nearest is nvtopo.dev/topology-policy; the pod is scheduled without it")
}
