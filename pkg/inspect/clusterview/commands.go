// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// commandsOf are the commands that make some moves, in this order. Each ends when what it asks for is so: they
// may be run one after the other, or pasted as a whole. A pod holds its GPUs until it has ended, and its
// replacement is placed before that, so that its node looks no worse than another one and often gets it back.
// So the nodes that pods leave are cordoned until all moves are made, but for one that a pod is to come to.
// There are no commands if a name is one that no API server lets through: it is from a file, and a shell
// might read something else.
func commandsOf(moves []Move) (out []string) {
	left, ok := leftBy(moves)
	if !ok {
		return nil
	}
	cordoned := map[string]bool{}
	cordon := func(node string, want bool) {
		switch {
		case want && !cordoned[node]:
			out = append(out, "kubectl cordon "+node)
		case !want && cordoned[node]:
			out = append(out, "kubectl uncordon "+node)
		}
		cordoned[node] = want
	}
	open := func(m *Move) string { // the one of them that must be open for the move; none: empty
		if slices.Contains(left, m.To) {
			return m.To
		}
		return ""
	}
	for len(moves) > 0 {
		first, n := &moves[0], 1
		for n < len(moves) && moves[n].From == first.From && open(&moves[n]) == open(first) {
			n++
		}
		for _, node := range left {
			cordon(node, node != open(first))
		}
		out = append(out, deletes(moves[:n])...)
		moves = moves[n:]
	}
	for _, node := range left {
		cordon(node, false)
	}
	return out
}

// leftBy are the nodes that pods leave; ok is false if a name is none that an API server lets through.
func leftBy(moves []Move) (left []string, ok bool) {
	for i := range moves {
		m := &moves[i]
		for _, name := range []string{m.Namespace, m.Name, m.From} {
			if len(validation.IsDNS1123Subdomain(name)) > 0 {
				return nil, false
			}
		}
		if m.To != m.From && !slices.Contains(left, m.From) {
			left = append(left, m.From)
		}
	}
	return left, true
}

// waitLimit bounds the wait for replacements: one that has no place by then has none, and the node that was
// left for it is opened again.
const waitLimit = "--timeout=5m"

// deletes are the commands for pods of one node that all leave it, or all stay on it. kubectl delete ends when
// the pod has; what waits comes behind all of them, so that the replacements are placed at the same time.
func deletes(moves []Move) (out []string) {
	var waits []string
	for i := range moves {
		m := &moves[i]
		out = append(out, "kubectl delete pod -n "+m.Namespace+" "+m.Name)
		for _, w := range m.waits() {
			if !slices.Contains(waits, w) {
				waits = append(waits, w)
			}
		}
	}
	return append(out, waits...)
}

// waits are the commands that end when the replacement of a pod has a node.
func (m *Move) waits() []string {
	wait := func(what string) string {
		return "kubectl wait -n " + m.Namespace + " --for=" + what + " " + m.Replacement + " " + waitLimit
	}
	if strings.HasPrefix(m.Replacement, sameName) { // it is made when the pod before it has ended
		return []string{wait("create"), wait("condition=PodScheduled")}
	}
	return []string{wait("condition=PodScheduled")}
}

// sameName begins the words for a replacement that has the name of the pod.
const sameName = "pod/"

// replacementOf are the words by which kubectl finds the replacement of a pod in the pod's namespace: its
// name, which a StatefulSet gives again, or the label that its ReplicaSet or Job gives to all its pods, or
// else all pods.
func replacementOf(pod *v1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == "StatefulSet" {
		return sameName + pod.Name
	}
	for _, key := range []string{appsv1.DefaultDeploymentUniqueLabelKey, batchv1.JobNameLabel} {
		if value := pod.Labels[key]; value != "" && len(validation.IsValidLabelValue(value)) == 0 {
			return "pod -l " + key + "=" + value
		}
	}
	return "pod --all"
}
