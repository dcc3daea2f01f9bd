// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/allocation"
)

// misplaced returns the choice that a pod was bound with and does not carry, or nil.
// In mode PreBind annotation and node name are two writes: a Binding believed lost
// may be carried out after the PATCH of the next attempt, for another node. The reservation
// of the first attempt then says what the pod has.
func (s *State) misplaced(c *reservation, pod *v1.Pod) *allocation.Allocation {
	if pod.UID != c.uid || pod.Spec.NodeName != c.node || s.allocationOf(pod, c.node) != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.phase != doubtful {
		return nil
	}
	for _, o := range s.reservations[c.uid] {
		if o != c && o.node == c.node && !o.alloc.Equal(c.alloc) {
			return nil // nobody knows which of them was carried out
		}
	}
	return c.alloc
}

// correct writes a pod's annotations anew, with the choice that it was bound with.
// The reservation stays until the informer shows that.
func (s *State) correct(ctx context.Context, client clientset.Interface, pod *v1.Pod, a *allocation.Allocation) error {
	wanted, err := s.Annotations(a, allocation.HasAliases(pod))
	if err != nil {
		return err
	}
	body, err := allocation.CorrectionBody(pod, wanted)
	if err != nil {
		return err
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{})
	return err
}
