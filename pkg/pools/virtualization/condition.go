// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// Reasons of ConditionVirtualizationApplied.
const (
	// ReasonApplied: all nodes are divided according to the spec.
	ReasonApplied = "Applied"
	// ReasonProfileMissing: the spec names a strategy and no profile.
	ReasonProfileMissing = "ProfileMissing"
	// ReasonReplicasMissing: the spec requests time slicing without the number of replicas.
	ReasonReplicasMissing = "ReplicasMissing"
	// ReasonNoNodes: the pool has no nodes yet.
	ReasonNoNodes = "NoNodes"
	// ReasonNodeShared: a node that the pool selects belongs to another pool.
	ReasonNodeShared = "NodeShared"
	// ReasonDraining: a node waits for pods to end.
	ReasonDraining = "Draining"
	// ReasonChanging: a node's manager is working, or has not begun.
	ReasonChanging = "Changing"
	// ReasonManagerFailed: the manager of a node has failed. The node stays cordoned, and no other node
	// is changed.
	ReasonManagerFailed = "ManagerFailed"
	// ReasonDriverUpgrade: the GPU Operator is upgrading the driver of a node, which is not changed
	// until that is done.
	ReasonDriverUpgrade = "DriverUpgrade"
)

// maxMessage is the length of the longest condition message that the API server admits.
const maxMessage = 2048

// outcome is the input of the condition.
type outcome struct {
	reason, message string // why the nodes are left as they are
	shared          []string
	nodes           []node
	blocked         map[string][]string // why pods stay, by node
}

// condition returns the pool's progress; nil if virtualization is neither requested nor to be undone.
func (o *outcome) condition(pool *v1alpha1.ComputePool) *metav1.Condition {
	c := &metav1.Condition{
		Type: v1alpha1.ConditionVirtualizationApplied, Status: metav1.ConditionFalse, ObservedGeneration: pool.Generation,
	}
	c.Reason, c.Message = o.words(pool)
	if c.Reason == "" {
		return nil
	}
	if c.Reason == ReasonApplied {
		c.Status = metav1.ConditionTrue
	}
	c.Message = c.Message[:min(len(c.Message), maxMessage)]
	return c
}

func (o *outcome) words(pool *v1alpha1.ComputePool) (reason, message string) {
	if o.reason != "" {
		return o.reason, o.message
	}
	enabled := pool.Spec.Virtualization != nil && pool.Spec.Virtualization.Enabled
	if i := slices.IndexFunc(o.nodes, func(n node) bool { return n.step != stepNone && n.step != stepTidy && n.step != stepUpgrade }); i >= 0 {
		return o.unfinished(&o.nodes[i])
	}
	if i := slices.IndexFunc(o.nodes, func(n node) bool { return n.step == stepUpgrade }); i >= 0 {
		return o.unfinished(&o.nodes[i])
	}
	switch {
	case len(o.shared) > 0 && enabled:
		return ReasonNodeShared, "nodes that are another pool's: " + strings.Join(o.shared, ", ")
	case !enabled:
		return "", ""
	case len(o.nodes) == 0:
		return ReasonNoNodes, "the pool has no nodes"
	}
	label, _ := labelOf(o.nodes[0].target.strategy)
	return ReasonApplied, fmt.Sprintf("all %d nodes have %s=%s", len(o.nodes), label, o.nodes[0].target.value)
}

// unfinished returns reason and message for the node that is being changed.
func (o *outcome) unfinished(n *node) (reason, message string) {
	left := 0
	for i := range o.nodes {
		if !o.nodes[i].settled {
			left++
		}
	}
	count := fmt.Sprintf("%d of %d nodes are left", left, len(o.nodes))
	label, state := labelOf(n.target.strategy)
	switch n.step {
	case stepFailed, stepRetry:
		return ReasonManagerFailed, fmt.Sprintf("node %s: %s is failed for %s=%s; its manager's log says why; once that is mended: kubectl annotate node %s %s=true; %s",
			n.Name, state, label, n.target.value, n.Name, AnnotationRetry, count)
	case stepUpgrade:
		return ReasonDriverUpgrade, fmt.Sprintf("node %s: the GPU Operator upgrades its driver, %s=%s; %s", n.Name, LabelUpgrade, n.Labels[LabelUpgrade], count)
	case stepCordon, stepDrain:
		if blocked := o.blocked[n.Name]; len(blocked) > 0 {
			return ReasonDraining, fmt.Sprintf("node %s: %s; %s", n.Name, strings.Join(blocked, "; "), count)
		}
		return ReasonDraining, fmt.Sprintf("node %s: pods with devices have to go first; %s", n.Name, count)
	case stepUncordon:
		return ReasonChanging, fmt.Sprintf("node %s is let in again; %s", n.Name, count)
	default:
		if blocked := o.blocked[n.Name]; len(blocked) > 0 {
			count = strings.Join(blocked, "; ") + "; " + count
		}
		return ReasonChanging, fmt.Sprintf("node %s: waits for the manager of %s=%s%s; %s", n.Name, label, n.target.value, n.target.missing(n.Node), count)
	}
}
