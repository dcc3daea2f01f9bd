// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// inputsPolicy refuses input annotations that no scheduler can parse.
const inputsPolicy = "nvtopo-inputs"

// unjudged runs f while the policy of input annotations is not in force, as in a cluster with the
// manifests of an earlier release.
func (e *testEnv) unjudged(t *testing.T, f func()) {
	t.Helper()
	bindings := e.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	old, err := bindings.Get(t.Context(), inputsPolicy, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := bindings.Delete(t.Context(), inputsPolicy, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	e.awaitInputs(t, false)
	defer func() {
		old.ResourceVersion, old.UID = "", ""
		if _, err := bindings.Create(t.Context(), old, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		e.awaitInputs(t, true)
	}()
	f()
}

// awaitInputs waits until the policy is in force, or is not.
func (e *testEnv) awaitInputs(t *testing.T, inForce bool) {
	t.Helper()
	bad := gpuPod("probe", preBindProfile, 1).Annotation(podrequest.MinLinkKey, "none").Obj()
	testkit.Eventually(t, waitLimit, "the policy "+inputsPolicy+" comes or goes", func(ctx context.Context) (bool, string) {
		_, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, bad, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !apierrors.IsInvalid(err) {
			return false, err.Error()
		}
		return (err != nil) == inForce, "not yet"
	})
}

// testMalformed writes invalid values: the API server refuses the pod. Without its policy, and for other
// systems' keys, the pod waits. In both cases the message names the annotation to correct.
func (e *testEnv) testMalformed(t *testing.T) {
	node := e.freshName("malformed")
	e.node(t, node, "dgx1-v100")
	const own = "nvtopo.dev/"
	values := map[string]string{
		podrequest.TopologyPolicyKey:        "strict",
		"scheduling.k8s.io/topology-policy": "strict",
		"topology.kubernetes.io/policy":     "",
		podrequest.NUMAAffinityKey:          "must",
		"scheduling.k8s.io/numa-affinity":   "true",
		podrequest.MinLinkKey:               "NV0",
		podrequest.MinBandwidthKey:          "fast",
		podrequest.GPUModelKey:              "V100,,A100",
		podrequest.MinGPUMemoryKey:          "-1Gi",
		podrequest.AllowMixedModelsKey:      "maybe",
	}
	for key, value := range values {
		if !strings.HasPrefix(key, own) {
			continue
		}
		pod := gpuPod(e.freshName("malformed-pod"), preBindProfile, 1).Annotation(key, value).NodeSelector(host(node)).Obj()
		_, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if want := "metadata.annotations: " + key + ": want "; !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("the API server's answer to %s=%q is %v, want %q in it", key, value, err, want)
		}
	}
	e.unjudged(t, func() {
		for key, value := range values {
			t.Run(key, func(t *testing.T) {
				name := e.freshName("malformed-pod")
				e.wantRefused(t, gpuPod(name, preBindProfile, 1).Annotation(key, value).NodeSelector(host(node)).Obj(),
					"annotation "+key+": ")
			})
		}
	})
}
