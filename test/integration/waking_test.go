// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// testWaking makes pods wait for something and brings it. Whoever waits is tried again now and
// then also without a reason, so a pod that is bound here may not have been woken: the tests of
// the waker, where nobody is tried so, show that.
func (e *testEnv) testWaking(t *testing.T) {
	for _, p := range bothWrites {
		t.Run("by a graph "+p, func(t *testing.T) {
			spec := e.addNode(t, e.freshName("wake"), "dgx1-v100")
			e.wantRefused(t, gpuPod(spec.Name, p, 2).NodeSelector(host(spec.Name)).Obj(), placement.NoGraph.String())
			e.publish(t, devcluster.ExporterOptions{}, spec)
			choiceOf(t, e.bound(t, spec.Name), e.graphs[spec.Name])
		})
		t.Run("by the end of a pod with GPUs "+p, func(t *testing.T) {
			s := e.slot(t, e.freshName("wake"), "dgx1-v100")
			// One NUMA node full, the other nearly: only its own pod's end helps.
			e.create(t, gpuPod(s.node+"-four", p, 4).NodeSelector(host(s.node)).Obj())
			four := s.take(t, e.bound(t, s.node+"-four"))
			e.create(t, gpuPod(s.node+"-one", p, 1).NodeSelector(host(s.node)).Obj())
			s.take(t, e.bound(t, s.node+"-one"))
			waiting := gpuPod(s.node+"-waiting", p,
				4).Annotation(podrequest.TopologyPolicyKey, "single-numa-node").NodeSelector(host(s.node)).Obj()
			e.wantRefused(t, waiting, "Insufficient")
			e.remove(t, s.node+"-four")
			s.giveBack(four)
			s.take(t, e.bound(t, waiting.Name))
		})
		t.Run("by its own correction "+p, func(t *testing.T) {
			s := e.slot(t, e.freshName("wake"), "dgx1-v100")
			e.wantRefused(t, gpuPod(s.node, p, 2).Annotation(podrequest.MinBandwidthKey, "1e309").NodeSelector(host(s.node)).Obj(),
				"annotation "+podrequest.MinBandwidthKey)
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"1"}}}`, podrequest.MinBandwidthKey)
			if _, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Patch(t.Context(), s.node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			s.take(t, e.bound(t, s.node))
		})
	}
	t.Run("by an exporter that renews its Lease again", func(t *testing.T) {
		// The pod waits since "graphs that do not count".
		pod := e.get(t, agedNode+"-pod")
		if pod.Spec.NodeName != "" {
			t.Fatalf("pod %s is bound already", pod.Name)
		}
		_, err := e.client.CoordinationV1().Leases(systemNamespace).Create(t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: nodelease.ExporterPrefix + agedNode},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new(agedNode), LeaseDurationSeconds: new(int32(90)), RenewTime: new(metav1.NowMicro()),
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		e.bound(t, pod.Name)
	})
}
