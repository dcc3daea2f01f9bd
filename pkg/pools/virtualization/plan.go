// SPDX-License-Identifier: Apache-2.0

package virtualization

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	// AnnotationCordon marks a node that is cordoned for its devices to be divided; its value is the
	// pool. A cordoned node without it was cordoned by others.
	AnnotationCordon = names.AnnotationCordon
	// AnnotationStrategy is the strategy that was applied to a node, so that it is undone when the pool
	// no longer requests it. A node without it was divided by others, or not at all.
	AnnotationStrategy = v1alpha1.GroupName + "/virtualization"
	// AnnotationDraining is the time since which a node that is being divided takes no new pods; see
	// v1alpha1.
	AnnotationDraining = v1alpha1.AnnotationDraining
	// AnnotationRetry on a node whose manager has failed makes it retry once. A person writes it.
	AnnotationRetry = v1alpha1.GroupName + "/retry-virtualization"
)

// step is the next action on a node.
type step int

const (
	stepNone     step = iota
	stepCordon        // make the node unschedulable
	stepDrain         // evict the pods that hold devices, and then label the node for its manager
	stepMark          // only record the strategy: the node is as wanted
	stepForget        // only remove that record: the strategy has been undone
	stepWait          // wait for the manager
	stepFailed        // the manager has failed
	stepRetry         // remove the label, to write it again: the manager reacts to a change
	stepUpgrade       // leave the node to the GPU Operator, which upgrades its driver
	stepTidy          // only remove our annotation from a node that others have cordoned
	stepUncordon      // uncordon the node
)

// node is a node of the pool with its next step.
type node struct {
	*v1.Node

	step    step
	target  setting // its manager's next or present setting
	settled bool    // its devices are as wanted
}

// plan returns each node's next step towards its wanted setting. Only one node is taken out of service:
// one that is already, else the first ready node by name.
func plan(nodes []*v1.Node, want func(*v1.Node) setting) []node {
	out := make([]node, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, next(n, want(n)))
	}
	slices.SortStableFunc(out, func(a, b node) int {
		return cmp.Or(cmp.Compare(turn(&a), turn(&b)), cmp.Compare(a.Name, b.Name))
	})
	taken := false
	for i := range out {
		if !out[i].outOfService() {
			continue
		}
		if taken {
			out[i].step = stepNone
		}
		taken = true
	}
	return out
}

// outOfService reports whether the node's step keeps pods away from it.
func (n *node) outOfService() bool {
	switch n.step {
	case stepCordon, stepDrain, stepWait, stepFailed, stepRetry:
		return true
	case stepUpgrade:
		return cordonedByUs(n.Node)
	case stepNone, stepMark, stepForget, stepUncordon, stepTidy:
	}
	return false
}

// turn orders nodes: those that are being changed, those that are ready, those that are not.
func turn(n *node) int {
	switch {
	case cordonedByUs(n.Node) || n.step == stepWait || n.step == stepFailed:
		return 0
	case ready(n.Node):
		return 1
	}
	return 2
}

// next returns the step of a node by itself. An applied strategy is undone before another is applied.
func next(n *v1.Node, want setting) node {
	have := v1alpha1.VirtualizationStrategy(n.Annotations[AnnotationStrategy])
	target := want
	if have != "" && have != want.strategy {
		target = undone(have)
	}
	out := node{Node: n, target: target}
	out.step = stepNone
	if target.strategy != "" {
		out.step = towards(n, target, have, want)
	}
	out.settled = out.step == stepNone
	switch {
	case !out.settled:
	case cordonedByUs(n):
		out.step = stepUncordon
	case n.Annotations[AnnotationDraining] != "":
		out.step = stepTidy
	}
	if out.step != stepNone && upgrading(n) {
		out.step = stepUpgrade
	}
	return out
}

// towards returns the step that brings a node nearer to a target.
func towards(n *v1.Node, target setting, have v1alpha1.VirtualizationStrategy, want setting) step {
	if !target.on(n) {
		switch {
		case busy(n, have):
			return stepWait
		case !n.Spec.Unschedulable:
			return stepCordon
		}
		return stepDrain
	}
	progress := target.progress(n)
	switch {
	case progress == failed && n.Annotations[AnnotationRetry] != "":
		return stepRetry
	case progress == failed:
		return stepFailed
	case progress == working:
		return stepWait
	case have == "":
		return stepMark
	case target.strategy != want.strategy:
		return stepForget
	}
	return stepNone
}

// current returns the setting that this package has applied to a node, so that a change that has begun
// is completed.
func current(n *v1.Node) setting {
	strategy := v1alpha1.VirtualizationStrategy(n.Annotations[AnnotationStrategy])
	if strategy == "" {
		return setting{}
	}
	label, _ := labelOf(strategy)
	s := setting{strategy: strategy, value: n.Labels[label]}
	if turns, ok := strings.CutPrefix(s.value, prefixPlugin); ok && strategy == v1alpha1.StrategyTimeSlicing {
		// An invalid number leaves 0: such a value is not ours.
		replicas, _ := strconv.ParseInt(turns, 10, 32)
		s.replicas = int32(replicas)
	}
	return s
}

// busy reports whether a manager is still working on an earlier setting. Its next state is about that
// one, and would be taken for the state of the new setting.
func busy(n *v1.Node, have v1alpha1.VirtualizationStrategy) bool {
	if have == "" {
		return false
	}
	_, label := labelOf(have)
	state := n.Labels[label]
	return state == "pending" || state == "rebooting"
}

// upgrading reports whether the GPU Operator upgrades the node's driver, for which it cordons and drains
// the node itself.
func upgrading(n *v1.Node) bool {
	switch n.Labels[LabelUpgrade] {
	case "", "upgrade-required", "upgrade-done":
		return false
	}
	return true
}

// cordonedByUs reports whether the cordon is this package's to lift.
func cordonedByUs(n *v1.Node) bool { return n.Annotations[AnnotationCordon] != "" }

func ready(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue
	})
}
