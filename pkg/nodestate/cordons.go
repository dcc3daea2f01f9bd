// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nodestate/cordons"
)

// ErrCordoned says that a node takes no pods with devices.
var ErrCordoned = errors.New("the node's devices are being divided, and it takes no pods with devices (annotation " + poolv1alpha1.AnnotationDraining + ")")

// nodeReader reads a node from the API server.
type nodeReader func(ctx context.Context, name string) (*v1.Node, error)

func readNodesFrom(client clientset.Interface) nodeReader {
	return func(ctx context.Context, name string) (*v1.Node, error) {
		return client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	}
}

// Assume puts a pod with devices in flight to a node until Bound or Forget, and returns false if the
// node takes none; see package cordons.
func (s *State) Assume(pod *v1.Pod, node string) bool { return s.cordons.Assume(pod, node) }

// Cordoned reports whether a node takes no pods with devices.
func (s *State) Cordoned(node string) bool { return s.cordons.Cordoned(node) }

// Bound ends the flight of a pod whose Binding was carried out.
func (s *State) Bound(uid types.UID, node string) { s.cordons.Bound(uid, node) }

// Forget ends the flight of a pod whose attempt to be bound failed.
func (s *State) Forget(uid types.UID, node string) { s.cordons.Forget(uid, node) }

// MayBind fails if this process may not send the Binding of a pod with devices to a node: it may lead
// no longer, or the node is cordoned. In the time after its election it asks the API server for the node.
func (s *State) MayBind(ctx context.Context, node string) error {
	if err := s.leader.Check(ctx); err != nil {
		return err
	}
	if s.cordons.Cordoned(node) {
		return fmt.Errorf("node %s: %w", node, ErrCordoned)
	}
	if s.readNode == nil || !s.leader.TakingOver() {
		return nil
	}
	ctx, cancel := s.Bounded(ctx)
	defer cancel()
	n, err := s.readNode(ctx, node)
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

// Cordons returns what this process can say of each cordon, if CordonsSettled.
func (s *State) Cordons() []cordons.Word { return s.cordons.Words() }

// CordonsSettled reports whether all that this process's predecessor sent is decided. Ask after Leads: until then
// the Lease of the predecessor may be the last that is known.
func (s *State) CordonsSettled() bool { return s.leader.Settled() }

// KnowsItself reports whether Leads is about this process: a standby beside a leader on its host would
// take that for itself.
func (s *State) KnowsItself() bool { return s.leader.Known() }
