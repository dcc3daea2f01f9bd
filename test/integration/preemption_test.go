// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// testPreemption fills a node whose GPUs are bridged in pairs with single-GPU
// pods. A pod that needs a bridged pair must evict the two pods of one bridge
// and nobody else.
func (e *testEnv) testPreemption(t *testing.T) {
	e.priorities(t, map[string]int32{"low": 10, "middle": 100, "high": 1000})
	for _, p := range bothWrites {
		// Which bridge is to be freed is up to the priorities of the pods on it.
		for _, spared := range []int{-1, 0, 2} {
			t.Run(fmt.Sprintf("%s, sparing GPU %d", p, spared), func(t *testing.T) {
				node := e.freshName("full")
				g := e.node(t, node, "a100-pcie-4-bridged")
				holder := map[int]string{} // GPU -> pod
				for i := range g.Len() {
					// The n-th single pod's GPU is not known beforehand: learn it, then
					// make the pod that has the spared GPU anew, with more priority.
					name := fmt.Sprintf("%s-%d", node, i)
					e.create(t, gpuPod(name, p, 1).PriorityClass("low").NodeSelector(host(node)).Obj())
					gpu := choiceOf(t, e.bound(t, name), g).set.First()
					holder[gpu] = name
				}
				if spared >= 0 {
					e.remove(t, holder[spared])
					holder[spared] = node + "-spared"
					e.create(t, gpuPod(holder[spared], p, 1).PriorityClass("middle").NodeSelector(host(node)).Obj())
					if c := choiceOf(t, e.bound(t, holder[spared]), g); !c.set.Has(spared) {
						t.Fatalf("the only free GPU is %d, the pod has %v", spared, c.set.Positions())
					}
				}
				pair := gpuPod(node+"-pair", p, 2).PriorityClass("high").NodeSelector(host(node)).
					Annotations(notes{podrequest.MinLinkKey: "NVLINK"}).Obj()
				e.create(t, pair)
				c := choiceOf(t, e.bound(t, pair.Name), g)
				if c.set != nvtopo.MaskOf(0, 1) && c.set != nvtopo.MaskOf(2, 3) {
					t.Errorf("the pod has GPUs %v, which no bridge joins", c.set.Positions())
				}
				if spared >= 0 && c.set.Has(spared) {
					t.Errorf("the pod has GPUs %v: of two bridges it took the one whose pods matter more", c.set.Positions())
				}
				for gpu, name := range holder {
					_, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
					if gone := apierrors.IsNotFound(err); gone != c.set.Has(gpu) {
						t.Errorf("pod %s on GPU %d is gone: %t; the new pod has GPUs %v", name, gpu, gone, c.set.Positions())
					}
				}
			})
		}
	}
	t.Run("nobody is evicted in vain", func(t *testing.T) {
		node := e.freshName("full")
		e.node(t, node, "l40s-8")
		e.create(t, gpuPod(node+"-low", preBindProfile, 8).PriorityClass("low").NodeSelector(host(node)).Obj())
		e.bound(t, node+"-low")
		high := gpuPod(node+"-high", preBindProfile, 2).Annotation(podrequest.MinLinkKey, "NVLINK").PriorityClass("high")
		e.wantRefused(t, high.NodeSelector(host(node)).Obj(), "Insufficient")
		e.get(t, node+"-low")
	})
}

// testRestart stops the scheduler while its pods run, and kills it: what the
// pods hold is all that the next one knows.
func (e *testEnv) testRestart(t *testing.T, s *devcluster.Scheduler) {
	t.Helper()
	for _, p := range bothWrites {
		t.Run(p, func(t *testing.T) {
			n := e.slot(t, e.freshName("restart"), "dgx1-v100")
			// Two, two and three of eight GPUs, with a restart before each.
			for i, gpus := range []int{2, 2, 3} {
				stop := func(ctx context.Context) error { return s.Stop(ctx) }
				if i == 1 {
					stop = func(context.Context) error { return s.Kill() }
				}
				if err := stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				pod := gpuPod(fmt.Sprintf("%s-%d", n.node, i), p, gpus).NodeSelector(host(n.node)).Obj()
				e.create(t, pod)
				if err := s.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
				n.take(t, e.bound(t, pod.Name))
			}
			e.wantRefused(t, gpuPod(n.node+"-more", p, 2).NodeSelector(host(n.node)).Obj(), "Insufficient")
			one := gpuPod(n.node+"-last", p, 1).NodeSelector(host(n.node)).Obj()
			e.create(t, one)
			n.take(t, e.bound(t, one.Name))
		})
	}
}
