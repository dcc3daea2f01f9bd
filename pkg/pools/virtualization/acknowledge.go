// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	// settleTime is the least time that a node takes no new pods before its devices are divided: a
	// scheduler may be binding a pod to it that it placed before. It is for schedulers that acknowledge
	// no cordon.
	settleTime = 10 * time.Second
	// silence is the time without an acknowledgement by nvtopo-scheduler after which a node is divided
	// nevertheless: no scheduler leads, or its release acknowledges nothing. It is longer than
	// kube-scheduler waits for volumes.
	silence = 15 * time.Minute
)

// cordonWord returns the scheduler's acknowledgement of the node's present cordon. published reports
// that the node has a NodeGPUTopology, which is where the acknowledgement would be. Call it before the
// node's pods are listed: a pod whose Binding has ended is in that list, and no longer in flight.
//
// The settle time alone is not enough: an attempt to bind a pod may last for minutes after the choice of
// the node. The acknowledgement alone is not either: it comes from one scheduler, and the pods on a node
// do not show whether another one is binding a pod to it.
func (r *reconciler) cordonWord(ctx context.Context, n *v1.Node) (word topologyv1alpha1.CordonWord, published bool, err error) {
	var graph topologyv1alpha1.NodeGPUTopology
	err = r.api.Get(ctx, client.ObjectKey{Name: n.Name}, &graph)
	if client.IgnoreNotFound(err) != nil {
		return word, false, fmt.Errorf("read the NodeGPUTopology of node %s: %w", n.Name, err)
	}
	return topologyv1alpha1.CordonWordOf(graph.Status.Conditions, n.Annotations[AnnotationDraining]), err == nil, nil
}

// unsettled returns why a node without pods is not divided yet; empty if it can be. cordoned is how long
// it has taken no pods.
func (r *reconciler) unsettled(pool *v1alpha1.ComputePool, n *v1.Node, cordoned time.Duration, word topologyv1alpha1.CordonWord, published bool) string {
	since := n.Annotations[AnnotationDraining]
	switch {
	case cordoned < settleTime:
		return "it takes no pods since " + since + ", and has to for " + settleTime.String()
	case word.Acknowledged || !published:
		return ""
	case word.Heard:
		return "the scheduler waits before it acknowledges the cordon: " + word.Waits + "; if no scheduler runs any more: kubectl uncordon " + n.Name
	case cordoned < silence:
		return fmt.Sprintf("the scheduler has not acknowledged the cordon of %s (condition %s of NodeGPUTopology %s); without a word of it the devices are divided after %v",
			since, topologyv1alpha1.ConditionCordonAcknowledged, n.Name, silence)
	}
	r.events.Eventf(pool, v1.EventTypeWarning, eventUnacknowledged,
		"node %s: no scheduler acknowledged the cordon within %v, and its devices are divided: does nvtopo-scheduler run, of this release?", n.Name, silence)
	return ""
}
