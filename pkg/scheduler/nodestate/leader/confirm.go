// SPDX-License-Identifier: Apache-2.0

package leader

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

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// ConfirmFor is how long a new leader reads the API server before it writes an allocation. Its watch of
// pods may be broken when it is elected, and then it lacks the last allocations of its predecessor:
// client-go waits up to a minute before it restarts a watch that broke several times.
const ConfirmFor = 90 * time.Second

// ErrUnheard is the error if another pod has a GPU of an allocation, and the informers do not show that
// pod so yet.
var ErrUnheard = errors.New("a GPU of this choice is another pod's, which this process has not heard of yet")

// ListPods lists the API server's present pods of a node.
type ListPods func(ctx context.Context, node string) ([]v1.Pod, error)

// ListFrom returns the ListPods of a client.
func ListFrom(client clientset.Interface) ListPods {
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

// TakingOver reports whether this process was elected so recently that its informers may not show all
// writes of its predecessor.
func (l *Leader) TakingOver() bool {
	return l.pods != nil && l.clock.Since(l.elected()) <= ConfirmFor
}

// Settled reports whether all writes of a predecessor of this process are decided, and shown by the
// informers.
func (l *Leader) Settled() bool {
	since, wait := l.started, l.config.RequestTimeout
	if elected := l.elected(); elected.After(since) {
		since = elected
	}
	if l.config.Lease != "" {
		wait = max(wait, ConfirmFor)
	}
	return l.clock.Since(since) > wait
}

// Confirm fails if, in the time after this process was elected, the API server has a pod on the node of
// the allocation a, other than its own, with one of its GPUs.
func (l *Leader) Confirm(ctx context.Context, a *allocation.Allocation) error {
	if !l.TakingOver() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.config.RequestTimeout)
	defer cancel()
	pods, err := l.pods(ctx, a.Node)
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		if pod.UID == a.PodUID || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
			continue
		}
		// Not through a memo, which is for pods that the informer has.
		theirs, err := allocation.Of(pod, a.Node)
		if err != nil {
			continue
		}
		for _, c := range theirs.Containers {
			mine := a.GPUs(c.Resource)
			if j := slices.IndexFunc(c.GPUs, func(id string) bool { return slices.Contains(mine, id) }); j >= 0 {
				return fmt.Errorf("%w: pod %s/%s has %s", ErrUnheard, pod.Namespace, pod.Name, c.GPUs[j])
			}
		}
	}
	return nil
}
