// SPDX-License-Identifier: Apache-2.0

package clusterview

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

// commandsOf are the commands that make some moves, in this order; a line that begins with # says
// what to wait for. A pod holds its GPUs until it has ended, and its replacement is placed before
// that, so that its node looks no worse than another one and often gets it back. So the nodes that
// pods leave are cordoned until all moves are made, but for one that a pod is to come to. There are
// no commands if a name is one that no API server lets through: it is from a file, and a shell
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

// deletes are the commands for pods of one node that all leave it, or all stay on it.
func deletes(moves []Move) (out []string) {
	where, node := "-n "+moves[0].Namespace, moves[0].From
	for i := range moves {
		m := &moves[i]
		out = append(out, "kubectl delete pod -n "+m.Namespace+" "+m.Name)
		if m.Namespace != moves[0].Namespace {
			where = "-A"
		}
	}
	wait := "# wait until the replacements are on other nodes than "
	if moves[0].To == node {
		wait = "# wait for the replacements, which may go to another node than "
	}
	return append(out, wait+node+": kubectl get pods "+where+" -o wide")
}
