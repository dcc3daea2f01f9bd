// SPDX-License-Identifier: Apache-2.0

package check

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// Check returns the violations at this moment. What becomes a violation only if it
// lasts needs a Checker.
func Check(w *World) []Violation { return Examine(w).Violations }

// Examine checks everything once.
func Examine(w *World) *Report { return examine(w, nvtopo.NewRegistry(nvtopo.DefaultWeights())) }

// examine uses tables that may be kept from one World to the next.
func examine(w *World, tables *nvtopo.Registry) *Report {
	s := &scene{
		Report: &Report{Violations: []Violation{}}, w: w, tables: tables, profiles: w.profiles(), nodes: map[string]*node{}, leases: map[string]*coordinationv1.Lease{}, live: map[types.UID]*v1.Pod{},
	}
	s.readNodes()
	s.readPods()
	for _, p := range s.bound {
		s.checkPod(p)
	}
	s.checkRefusals()
	s.checkPrograms()
	s.checkLeader()
	s.checkKeys()
	s.checkSharing()
	s.checkRecordSharing()
	(&gangs{Report: s.Report, w: w, profiles: s.profiles, nodes: s.nodes}).check()
	for i := range w.Schedulers {
		(&process{Report: s.Report, State: &w.Schedulers[i], nodes: s.nodes, live: s.live, bound: s.bound}).check()
	}
	s.sort()
	return s.Report
}

// scene is a World, indexed by name and UID, and what is found of it.
type scene struct {
	*Report

	w        *World
	tables   *nvtopo.Registry
	profiles map[string]diagnosis.Profile
	nodes    map[string]*node
	leases   map[string]*coordinationv1.Lease
	programs map[string]programPods // by prefix of Leases
	live     map[types.UID]*v1.Pod  // pods that have not ended, bound or not
	bound    []*pod                 // of them, bound and with an allocation, in order
}

// node is one node's name and everything about it.
type node struct {
	name     string
	object   *v1.Node                  // nil if there is none
	topology *v1alpha1.NodeGPUTopology // nil if there is none, or if it is about another Node with that name
	accels   map[string]*accel
	records  map[types.UID][]v1alpha1.Allocation
	// enforced: the agent's Lease is fresh, so that its records are current.
	enforced bool
	// changed is when the graph last changed, and health when the GPUs' health last
	// changed.
	changed, health time.Time
}

// accel is one resource's devices on a node.
type accel struct {
	graph             *nvtopo.Graph
	tables            *nvtopo.Tables
	healthy, degraded nvtopo.Mask // degraded GPUs are also healthy, but only for pods of one device
}

// allocated is one container's part of an allocation.
type allocated = allocation.Container

// pod is one live bound pod.
type pod struct {
	*v1.Pod
	node    *node
	profile diagnosis.Profile
	ours    bool
	asks    map[string]int // resource -> effective request
	// alloc is nil unless it is readable and is for this pod and node.
	alloc *allocation.Allocation
}

func (s *scene) node(name string) *node {
	n, ok := s.nodes[name]
	if !ok {
		n = &node{name: name}
		s.nodes[name] = n
	}
	return n
}

func (s *scene) readNodes() {
	for i := range s.w.Nodes {
		s.node(s.w.Nodes[i].Name).object = &s.w.Nodes[i]
	}
	for i := range s.w.Leases {
		s.leases[s.w.Leases[i].Name] = &s.w.Leases[i]
	}
	owners := map[string]string{} // UUID -> node that publishes it
	for i := range s.w.Topologies {
		t := &s.w.Topologies[i]
		n := s.node(t.Name)
		if n.object == nil || n.object.UID != t.Spec.NodeUID {
			continue
		}
		s.readTopology(n, t)
		n.enforced = speaksFor(s.leases[nodelease.AgentPrefix+t.Name], n.object.UID, s.w.Now)
		for j := range t.Spec.GPUs {
			id := t.Spec.GPUs[j].ID
			if other, ok := owners[id]; ok && other != t.Name {
				s.note(Violation{
					Invariant: SameUUID, Objects: []Object{topologyObject(t), {Kind: v1alpha1.Kind, Name: other}},
					Field: fmt.Sprintf("spec.gpus[%d].id", j), Message: fmt.Sprintf("node %s publishes %s too", other, id),
				})
			}
			owners[id] = t.Name
		}
	}
}

func topologyObject(t *v1alpha1.NodeGPUTopology) Object {
	return Object{Kind: v1alpha1.Kind, Name: t.Name, UID: t.UID}
}

func (s *scene) readTopology(n *node, t *v1alpha1.NodeGPUTopology) {
	n.records = map[types.UID][]v1alpha1.Allocation{}
	for _, a := range t.Status.Allocations {
		n.records[a.PodUID] = append(n.records[a.PodUID], a)
	}
	n.topology = t
	graphs, err := t.Graphs()
	if err != nil {
		s.note(Violation{Invariant: MalformedTopology, Objects: []Object{topologyObject(t)}, Message: err.Error()})
		return
	}
	n.accels = map[string]*accel{}
	for res, g := range graphs {
		n.accels[res] = &accel{graph: g, tables: s.tables.Tables(g), healthy: g.Healthy(), degraded: g.Degraded()}
	}
	n.changed, n.health = changes(t)
	s.Checked.Nodes++
}

func (s *scene) readPods() {
	for i := range s.w.Pods {
		p := &s.w.Pods[i]
		if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
			continue // its devices are free again
		}
		s.live[p.UID] = p
		if p.Spec.NodeName == "" {
			continue // without a node the annotation means nothing
		}
		s.readPod(p)
	}
	slices.SortFunc(s.bound, func(a, b *pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+string(a.UID), b.Namespace+"/"+b.Name+"/"+string(b.UID))
	})
}

func (s *scene) readPod(obj *v1.Pod) {
	p := &pod{Pod: obj, node: s.node(obj.Spec.NodeName)}
	p.profile, p.ours = s.profiles[obj.Spec.SchedulerName]
	text, annotated := obj.Annotations[allocation.Key]
	if annotated {
		s.readAllocation(p, text)
	}
	p.asks = requests(obj, p.resources())
	if len(p.asks) > 0 {
		s.Checked.Pods++
	}
	switch {
	case p.alloc != nil:
		s.bound = append(s.bound, p)
	case annotated || len(p.asks) == 0: // already reported, or nothing to report
	case !p.ours:
		s.Checked.Foreign++ // known by kubelet's record, or by count
	default:
		s.checkMissing(p)
	}
}

// resources are those for which the pod's allocation must be complete: the resources of
// its profile, and those that were chosen for it, perhaps when the profile had others.
// If the profile's resources are not known, because no scheduler was asked, those of
// the node's graph are taken instead, and the default one, because nodes may have no
// graph.
func (p *pod) resources() []string {
	out := slices.Clone(p.profile.Resources)
	if len(out) == 0 {
		out = append(slices.Collect(maps.Keys(p.node.accels)), v1alpha1.DefaultResource)
	}
	if p.alloc != nil {
		for i := range p.alloc.Containers {
			out = append(out, p.alloc.Containers[i].Resource)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *scene) readAllocation(p *pod, text string) {
	a, err := allocation.Parse(text)
	if errors.Is(err, allocation.ErrNewerVersion) {
		s.note(Violation{Invariant: Unverified, Objects: []Object{podObject(p.Pod)}, Field: allocationField, Message: err.Error()})
		return
	}
	if err != nil {
		s.violate(Violation{Invariant: MalformedAllocation, Objects: []Object{podObject(p.Pod)}, Field: allocationField, Message: err.Error()})
		return
	}
	switch {
	case a.Node != p.Spec.NodeName:
		// A Binding was carried out late; the scheduler and the controller correct
		// this.
		s.pend(Violation{
			Invariant: MisplacedAllocation, Objects: []Object{podObject(p.Pod), {Kind: "Node", Name: p.Spec.NodeName}}, Field: allocationField + ".node",
			Message: fmt.Sprintf("it is for node %s, and the pod is on node %s", a.Node, p.Spec.NodeName),
		})
	case a.PodUID != p.UID:
		s.violate(Violation{
			Invariant: MisplacedAllocation, Objects: []Object{podObject(p.Pod)}, Field: allocationField + ".podUID",
			Message: fmt.Sprintf("it is for the pod with UID %s", a.PodUID),
		})
	default:
		p.alloc = a
	}
}
