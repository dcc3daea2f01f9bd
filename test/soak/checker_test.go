// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checkEvery is the time between two runs of the checker.
const checkEvery = time.Second

// check runs the invariant checker until the context ends.
func (w *world) check(ctx context.Context) error {
	for pause(ctx, checkEvery) {
		if err := w.checkOnce(ctx); err != nil {
			w.count("checker could not read", 1) // the API server is away
			continue
		}
		w.count("checker runs", 1)
	}
	return nil
}

func (w *world) checkOnce(ctx context.Context) error {
	list, err := w.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	owner := map[string]*v1.Pod{}
	for i := range list.Items {
		p := &list.Items[i]
		a := choiceOf(p)
		if p.Spec.NodeName == "" || ended(p) || a == nil {
			continue
		}
		for _, id := range a.GPUs(string(gpuResource)) {
			if other := owner[id]; other != nil && !w.unsettled(p) && !w.unsettled(other) && !w.pausedLately() {
				w.fail("GPU %s of %s is annotated on %s (%s) and %s (%s)", id, a.Node, p.Name, p.UID, other.Name, other.UID)
			}
			owner[id] = p
		}
	}
	return nil
}

// unsettled reports whether kubelet gave a pod something else than was chosen a
// moment ago, so that its annotation is about to change.
func (w *world) unsettled(p *v1.Pod) bool {
	b := w.boxOf(p.Spec.NodeName)
	if b == nil {
		return false
	}
	b.kubelet.mu.Lock()
	defer b.kubelet.mu.Unlock()
	h := b.kubelet.record[p.UID]
	return h != nil && h.other && !h.repaired
}
