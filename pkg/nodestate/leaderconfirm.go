// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/nodestate/reservations"
)

// confirmFor is how long a new leader asks before it carries a choice out. Its watch of
// pods may be broken when it is elected, and then it knows nothing of the last choices
// of its predecessor: client-go waits up to a minute before it watches again what
// broke several times.
const confirmFor = 90 * time.Second

// ErrUnheard says that another pod has a GPU of a choice, which the informers have not
// brought yet.
var ErrUnheard = errors.New("a GPU of this choice is another pod's, which this process has not heard of yet")

// livePods lists the pods of a node that the API server has now.
type livePods func(ctx context.Context, node string) ([]v1.Pod, error)

func listPods(client clientset.Interface) livePods {
	return func(ctx context.Context, node string) ([]v1.Pod, error) {
		list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
		})
		if err != nil {
			return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
		}
		return list.Items, nil
	}
}

// TakingOver reports whether this process was elected so lately that it may not have
// heard of all that its predecessor did.
func (s *State) TakingOver() bool {
	return s.live != nil && s.clock.Since(s.leader.elected()) <= confirmFor
}

// confirm fails if, in the time after this process was elected, the API server knows of
// a pod on the node that has a GPU of the reservation.
func (s *State) confirm(ctx context.Context, r *reservations.Reservation) error {
	if !s.TakingOver() {
		return nil
	}
	ctx, cancel := s.Bounded(ctx)
	defer cancel()
	pods, err := s.live(ctx, r.Node.Name())
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		if pod.UID == r.UID || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		// Not through State.parsed, which is of pods that the informer has.
		a, err := allocation.Of(pod, r.Node.Name())
		if err != nil {
			continue
		}
		for _, theirs := range a.Containers {
			mine := r.Allocation.GPUs(theirs.Resource)
			if j := slices.IndexFunc(theirs.GPUs, func(id string) bool { return slices.Contains(mine, id) }); j >= 0 {
				return fmt.Errorf("%w: pod %s/%s has %s", ErrUnheard, pod.Namespace, pod.Name, theirs.GPUs[j])
			}
		}
	}
	return nil
}
