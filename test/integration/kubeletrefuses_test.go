// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// refuse fails a pod as its node's kubelet does when it does not admit it.
func (e *testEnv) refuse(t *testing.T, pod *v1.Pod, reason string) {
	t.Helper()
	body := fmt.Sprintf(`{"status":{"phase":"Failed","reason":%q,"message":"Pod was rejected"}}`, reason)
	_, err := e.client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

// TestKubeletRefusesPods checks a node whose kubelet refuses every pod with GPUs: replacements are placed
// on other nodes after a few refusals, although it looks empty and has the better links; a pod that can
// run only on it is still placed on it. Pods of other schedulers, and those that fail by themselves, do
// not make the node avoided.
func TestKubeletRefusesPods(t *testing.T) {
	e := newTestEnv(t, devcluster.Config{})
	e.install(t)
	e.node(t, "good", "l40s-8")
	e.node(t, "bad", "hgx-h200") // NVLink, where the other has PCIe
	e.startScheduler(t, profile{name: preBindProfile, write: "PreBind"})
	onBad := func(name string) *v1.Pod {
		e.create(t, gpuPod(name, preBindProfile, 2).Obj())
		pod := e.bound(t, name)
		if pod.Spec.NodeName != "bad" {
			t.Fatalf("%s is on node %s, want bad, which has the better links", name, pod.Spec.NodeName)
		}
		return pod
	}
	for i := range 4 {
		own := gpuPod("own-"+strconv.Itoa(i), preBindProfile, 0).Obj()
		own.Spec.NodeName = "bad"
		e.create(t, own)
		e.refuse(t, e.get(t, own.Name), "OutOfnvidia.com/gpu")
		e.refuse(t, onBad("fails-"+strconv.Itoa(i)), "")
	}
	for i := range 3 {
		e.refuse(t, onBad("refused-"+strconv.Itoa(i)), "UnexpectedAdmissionError")
	}
	e.wantEvent(t, "bad", "KubeletRefusesPods", "kubelet refused 3 pods with GPUs within 5 minutes, the last with UnexpectedAdmissionError")
	for i := range 4 {
		name := "replacement-" + strconv.Itoa(i)
		e.create(t, gpuPod(name, preBindProfile, 2).Obj())
		if pod := e.bound(t, name); pod.Spec.NodeName != "good" {
			t.Errorf("%s is on node %s, want good", name, pod.Spec.NodeName)
		}
	}
	e.create(t, gpuPod("only-there", preBindProfile, 2).NodeSelector(host("bad")).Obj(), gpuPod("no-room-elsewhere", preBindProfile, 2).Obj())
	for _, name := range []string{"only-there", "no-room-elsewhere"} {
		if pod := e.bound(t, name); pod.Spec.NodeName != "bad" {
			t.Errorf("%s is on node %s, want bad", name, pod.Spec.NodeName)
		}
	}
}
