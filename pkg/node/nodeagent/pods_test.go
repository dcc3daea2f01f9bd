// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/testobj"
)

// TestPodIndexOrder: pods are there, and counted, when their change is told: who waits for a pod waits once.
func TestPodIndexOrder(t *testing.T) {
	kube := fake.NewClientset()
	pods, err := newNodePods(kube, "n", prometheus.NewRegistry(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	pods.start(t.Context())
	testkit.Watched(t, kube.Actions, "pods")
	pod := testobj.Pod("p").Namespace("ns").Node("n").Obj()
	if _, err := kube.CoreV1().Pods("ns").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for {
		changed := pods.Changed()
		if len(pods.Pods()) == 1 && testutil.ToFloat64(pods.known) == 1 {
			return
		}
		select {
		case <-changed:
		case <-time.After(time.Minute):
			t.Fatal("the pod was created, and nothing is told")
		}
	}
}
