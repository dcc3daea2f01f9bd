// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// recordGPUs writes, in the agent's stead, that kubelet has given pods the GPUs that were
// chosen for them.
func (e *testEnv) recordGPUs(t *testing.T, node string, names ...string) {
	t.Helper()
	list := []v1alpha1.Allocation{}
	for _, name := range names {
		pod := e.get(t, name)
		a := v1alpha1.Allocation{
			PodUID: pod.UID, Namespace: pod.Namespace, Pod: name, Container: "main", Resource: string(gpuResource), State: v1alpha1.StateConfirmed,
		}
		chosen, err := allocation.Parse(pod.Annotations[allocation.Key])
		if err != nil {
			t.Fatal(err)
		}
		a.GPUs = chosen.GPUs(string(gpuResource))
		list = append(list, a)
	}
	e.patchTopology(t, node, map[string]any{"status": map[string]any{"allocations": list}}, "status")
}

// releasesOneByOne has kubelet release two of the four GPUs that a pod waits for, has a
// pod of less priority come for them, and then releases the others.
func releasesOneByOne(t *testing.T, l *testEnv, nodes []string) {
	t.Helper()
	prefix := strings.TrimSuffix(nodes[0], "-n0")
	if got := l.refused(t, prefix+"-p0"); !strings.Contains(got, "waiting for a kubelet to release") || !strings.Contains(got, prefix+"-second") {
		t.Errorf("the pod shows %q, want whose devices it waits for", got)
	}
	var obj v1alpha1.NodeGPUTopology
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(l.topology(t.Context(), t, nodes[0]).Object, &obj); err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(obj.Status.Allocations, func(a v1alpha1.Allocation) bool { return a.Pod == prefix+"-first" })
	l.patchTopology(t, nodes[0], map[string]any{"status": map[string]any{"allocations": left}}, "status")
	testkit.Naps(2 * settleTime)
	thief := gpuPod(prefix+"-thief", preBindProfile, 1).PriorityClass("low").NodeSelector(host(nodes[0])).Obj()
	l.create(t, thief)
	l.refused(t, thief.Name)
	if pod := l.get(t, thief.Name); pod.Spec.NodeName != "" {
		t.Errorf("a pod of less priority took what the other waits for")
	}
	l.patchTopology(t, nodes[0], map[string]any{"status": map[string]any{"allocations": []v1alpha1.Allocation{}}}, "status")
}

// failedEviction leaves behind what a pod does whose victim the API server does not let
// go: it is nominated for the node, and waits. Only then may the victim be deleted.
func failedEviction(t *testing.T, l *testEnv, nodes []string, profile string) {
	t.Helper()
	prefix := strings.TrimSuffix(nodes[0], "-n0")
	victim := prefix + "-whole"
	keep := l.keep(t, victim)
	first := gpuPod(prefix+"-first", profile, 2).Annotation(podrequest.MinLinkKey, "NVLINK").PriorityClass("high").Obj()
	first.Spec.NodeSelector = map[string]string{"case": prefix}
	first.Finalizers = []string{"nvtopo.dev/test"} // it stays nominated, and is tried no more
	l.create(t, first)
	pods := l.client.CoreV1().Pods(metav1.NamespaceDefault)
	t.Cleanup(func() {
		if _, err := pods.Patch(context.Background(), first.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	})
	testkit.Eventually(t, waitLimit, "pod "+first.Name+" is nominated", func(context.Context) (bool, string) {
		pod := l.get(t, first.Name)
		return pod.Status.NominatedNodeName == nodes[0], refusal(pod)
	})
	l.remove(t, first.Name)
	keep()
}

// keep has the API server refuse to delete a pod until end is called.
func (e *testEnv) keep(t *testing.T, name string) (end func()) {
	t.Helper()
	policies, bindings := e.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(), e.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Delete},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("oldObject.metadata.name != %q", name)}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait := func(refused bool) {
		t.Helper()
		testkit.Eventually(t, waitLimit, fmt.Sprintf("the deletion of pod %s is refused: %t", name, refused), func(ctx context.Context) (bool, string) {
			err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			return (err != nil) == refused, fmt.Sprint(err)
		})
	}
	wait(true)
	return func() {
		t.Helper()
		if err := bindings.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := policies.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		wait(false)
	}
}
