// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
)

// checkPrograms notes nodes whose exporter or node agent is silent, and nodes with GPUs that have none.
func (s *scene) checkPrograms() {
	resources := map[string]bool{v1alpha1.DefaultResource: true}
	for _, p := range s.profiles {
		for _, name := range p.Resources {
			resources[name] = true
		}
	}
	s.programs = map[string]programPods{nodelease.ExporterPrefix: s.podsOf(nodelease.ExporterPrefix), nodelease.AgentPrefix: s.podsOf(nodelease.AgentPrefix)}
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[name]
		if n.object == nil {
			continue
		}
		s.checkExporter(n, offered(n.object, resources))
		s.checkAgent(n)
	}
}

// checkExporter notes that a node with a graph has a silent exporter, or one that offers a resource no graph.
func (s *scene) checkExporter(n *node, resource string) {
	lease := s.leases[nodelease.ExporterPrefix+n.name]
	switch {
	case n.topology == nil && resource != "":
		s.note(Violation{
			Invariant: MissingExporter, Objects: []Object{n.ref()},
			Message: "the node has " + resource + " and no NodeGPUTopology that is its own; " + s.look(n, nodelease.ExporterPrefix, nil),
		})
	case n.topology != nil && !speaksFor(lease, n.object.UID, s.w.Now):
		s.note(Violation{
			Invariant: StaleExporter, Objects: []Object{n.ref(), topologyObject(n.topology)},
			Message: "the graph does not count, since " + silence(n, nodelease.ExporterPrefix, lease) + "; " + s.look(n, nodelease.ExporterPrefix, lease),
		})
	}
}

// checkAgent notes a silent agent, and a node with a graph and no agent where other nodes have one.
func (s *scene) checkAgent(n *node) {
	lease, invariant := s.leases[nodelease.AgentPrefix+n.name], StaleAgent
	if lease == nil || lease.Spec.RenewTime == nil || !belongsTo(lease, n.object.UID) {
		lease, invariant = nil, MissingAgent
	}
	if fresh(lease, s.w.Now) || lease == nil && (n.topology == nil || s.programs[nodelease.AgentPrefix].one == nil) {
		return
	}
	s.note(Violation{
		Invariant: invariant, Objects: []Object{n.ref()},
		Message: "choices of GPUs are not enforced there, since " + silence(n, nodelease.AgentPrefix, lease) + "; " + s.look(n, nodelease.AgentPrefix, lease),
	})
}

func (n *node) ref() Object { return Object{Kind: "Node", Name: n.name, UID: n.object.UID} }

// silence says since when the Lease of a node's program has not counted.
func silence(n *node, prefix string, l *coordinationv1.Lease) string {
	switch {
	case l == nil || l.Spec.RenewTime == nil:
		return "there is no Lease " + prefix + n.name + " of this node"
	case !belongsTo(l, n.object.UID):
		return "the Lease " + l.Namespace + "/" + l.Name + " is of an earlier node of the name"
	}
	return "the Lease " + l.Namespace + "/" + l.Name + " was last renewed at " + nodelease.Renewed(l).UTC().Format(time.RFC3339)
}

// look says why a program has no pod on a node while it has some on others, or else how to see why it is silent.
func (s *scene) look(n *node, prefix string, l *coordinationv1.Lease) string {
	namespace, program, pods := release.Namespace, nodelease.Program(prefix), s.programs[prefix]
	if l != nil {
		namespace = l.Namespace
	}
	if pods.one != nil && !pods.on[n.name] {
		return fmt.Sprintf("no pod of %[2]s runs there%[3]s: kubectl -n %[1]s get pods -o wide -l %[4]s=%[2]s; kubectl -n %[1]s describe daemonset %[2]s",
			namespace, program, keptOff(pods.one, n.object), nodelease.ProgramLabel)
	}
	of := "exporter"
	if prefix == nodelease.AgentPrefix {
		of = "node agent"
	}
	return "see why its " + of + " is silent: " + nodelease.Commands(namespace, prefix, n.name)
}

// programPods are the nodes on which a program has a pod, and one of its pods.
type programPods struct {
	on  map[string]bool
	one *v1.Pod
}

// podsOf are the live pods of the program that renews the Leases with a prefix.
func (s *scene) podsOf(prefix string) programPods {
	out := programPods{on: map[string]bool{}}
	for i := range s.w.Pods {
		p := &s.w.Pods[i]
		if p.Labels[nodelease.ProgramLabel] != nodelease.Program(prefix) || p.Spec.NodeName == "" || s.live[p.UID] != p {
			continue
		}
		out.on[p.Spec.NodeName] = true
		if out.one == nil {
			out.one = p
		}
	}
	return out
}

// keptOff says what of a node keeps pods like this one off it, by their node selector and tolerations.
func keptOff(pod *v1.Pod, n *v1.Node) string {
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		if value := pod.Spec.NodeSelector[key]; n.Labels[key] != value {
			return ", since the node lacks the label " + key + "=" + value
		}
	}
	if why, taint := placement.Repels(n, pod.Spec.Tolerations); why == placement.Tainted {
		return ", since its pods do not tolerate the taint " + taint.ToString() + " of the node"
	}
	return ""
}

// offered names one of the resources that the node has for pods; it is empty if there is none.
func offered(n *v1.Node, resources map[string]bool) string {
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		if q := n.Status.Allocatable[v1.ResourceName(name)]; q.Sign() > 0 {
			return name
		}
	}
	return ""
}
