// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/cordons"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/reservations"
)

// ErrCordoned is the error for a node that takes no pods with devices.
var ErrCordoned = errors.New("the node's devices are being divided, and it takes no pods with devices (annotation " + poolv1alpha1.AnnotationDraining + ")")

// nodeReader reads a node from the API server.
type nodeReader func(ctx context.Context, name string) (*v1.Node, error)

func readNodesFrom(client clientset.Interface) nodeReader {
	return func(ctx context.Context, name string) (*v1.Node, error) {
		return client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	}
}

// Binder guards the writes that bind pods: it checks whether this process may write, and limits the
// writes in flight.
type Binder struct {
	clock          clock.Clock
	requestTimeout time.Duration
	leader         *leader.Leader
	cordons        *cordons.Table
	refusals       *refusals.Table
	reservations   *reservations.Table
	writes         *writes
	readNode       nodeReader // nil until Connect
}

// MayBind fails if this process may not send the Binding of a pod with devices to a node: it may no
// longer lead, or the node is cordoned. In the time after its election it reads the node from the API
// server.
func (b *Binder) MayBind(ctx context.Context, node string) error {
	if err := b.leader.Check(ctx); err != nil {
		return err
	}
	if b.cordons.Cordoned(node) {
		return fmt.Errorf("node %s: %w", node, ErrCordoned)
	}
	if b.readNode == nil || !b.leader.TakingOver() {
		return nil
	}
	ctx, cancel := b.Bounded(ctx)
	defer cancel()
	n, err := b.readNode(ctx, node)
	switch {
	case apierrors.IsNotFound(err):
		return nil // the API server has nothing to bind it to
	case err != nil:
		return fmt.Errorf("reading node %s: %w", node, err)
	}
	if _, cordoned := n.Annotations[poolv1alpha1.AnnotationDraining]; cordoned {
		return fmt.Errorf("node %s: %w", node, ErrCordoned)
	}
	return nil
}

// Bounded returns a context that ends when the API server, too, has given up the request
// (requestTimeout). Without it a reservation could last as long as its request, and an unknown outcome as
// long as the read that decides it.
func (b *Binder) Bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, b.requestTimeout)
}
