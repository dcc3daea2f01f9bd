// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// beside is something other than devices that members of a gang ask of their nodes, and of which a node
// may have too little for several of them.
type beside struct {
	cause    Cause
	resource v1.ResourceName // empty if it is no amount
	// of says that members like this one ask for it; empty if they do not.
	of   func(*question) string
	drop func(*v1.Pod)
}

// besides are what the members of a gang ask, in the order in which it is looked at.
func besides(a *ask) []beside {
	all := []beside{}
	for _, name := range resourcesOf(a) {
		all = append(all, beside{
			cause: CauseOf(name), resource: name,
			of: func(q *question) string {
				if asks(q, name) == 0 {
					return ""
				}
				return "less " + string(name) + " than the members ask together"
			},
			drop: func(p *v1.Pod) { dropResource(p, name) },
		})
	}
	all = append(all,
		beside{cause: HostPort, of: portsOf, drop: func(p *v1.Pod) {
			for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
				for i := range containers {
					containers[i].Ports = nil
				}
			}
		}},
		beside{cause: KeptApart, of: apartOf, drop: func(p *v1.Pod) {
			if p.Spec.Affinity != nil {
				p.Spec.Affinity.PodAntiAffinity = nil
			}
		}})
	return slices.DeleteFunc(all, func(b beside) bool {
		return !slices.ContainsFunc(a.shapes, func(q *question) bool { return b.of(q) != "" })
	})
}

// resourcesOf are the amounts that members may ask beside devices that have a graph.
func resourcesOf(a *ask) []v1.ResourceName {
	var others []v1.ResourceName
	for _, q := range a.shapes {
		for name := range q.demand.Scalars {
			device := slices.ContainsFunc(q.demand.Resources, func(r podrequest.ResourceRequest) bool { return r.Name == string(name) })
			if !device && !slices.Contains(others, name) {
				others = append(others, name)
			}
		}
	}
	slices.Sort(others)
	return append([]v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}, others...)
}

// asks is how much of a resource a member asks.
func asks(q *question, name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return q.demand.MilliCPU
	case v1.ResourceMemory:
		return q.demand.Memory
	case v1.ResourceEphemeralStorage:
		return q.demand.EphemeralStorage
	default:
		return q.demand.Scalars[name]
	}
}

func dropResource(p *v1.Pod, name v1.ResourceName) {
	lists := []v1.ResourceList{p.Spec.Overhead}
	for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range containers {
			lists = append(lists, containers[i].Resources.Requests, containers[i].Resources.Limits)
		}
	}
	if r := p.Spec.Resources; r != nil {
		lists = append(lists, r.Requests, r.Limits)
	}
	for _, list := range lists {
		delete(list, name)
	}
}

func portsOf(q *question) string {
	var ports []string
	for _, port := range placement.HostPorts(q.pod) {
		if text := strconv.Itoa(int(port.HostPort)); !slices.Contains(ports, text) {
			ports = append(ports, text)
		}
	}
	switch len(ports) {
	case 0:
		return ""
	case 1:
		return "one member on each node, for they want the host port " + ports[0]
	}
	return "one member on each node, for they want the host ports " + strings.Join(ports, ", ")
}

func apartOf(q *question) string {
	if !placement.KeepsApart(q.pod) {
		return ""
	}
	return "one member on each node, by their anti-affinity"
}

// crowded finds what the members have too little of beside each other, where devices would do: the one
// thing that they would have to do without to be placed, or the fewest. It reports whether there is such
// a thing.
func (s *scene) crowded(e *Explanation, a *ask, fits string) bool {
	found := fewest(besides(a), func(dropped []beside) bool { return s.fitsWithout(a, dropped...) })
	if found == nil {
		return false
	}
	s.blame(e, a, found, fits)
	return true
}

// blame makes some things the reason, the first of them the cause. What nodes have left is said for the
// members that ask most.
func (s *scene) blame(e *Explanation, a *ask, found []beside, fits string) {
	var texts []string
	for _, b := range found {
		shapes := slices.Clone(a.shapes)
		slices.SortStableFunc(shapes, func(x, y *question) int { return cmp.Compare(asks(y, b.resource), asks(x, b.resource)) })
		for _, q := range shapes {
			text := b.of(q)
			if text == "" {
				continue
			}
			if !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
			left := s.leftBeside(q, b.resource)
			if e.Evidence = append(e.Evidence, left...); len(left) > 0 {
				break
			}
		}
	}
	e.Cause, e.Reason = found[0].cause, strings.Join(texts, "; ")+": "+fits
}

// fitsWithout reports whether the gang would be placed if its members did without some things.
func (s *scene) fitsWithout(a *ask, what ...beside) bool {
	var dropped []wish
	for _, b := range what {
		dropped = append(dropped, wish{drop: b.drop})
	}
	return s.fitsAsking(a, dropped)
}

// leftBeside says what nodes have left of a resource beside as many members as they take.
func (s *scene) leftBeside(q *question, resource v1.ResourceName) (out []string) {
	for _, n := range s.nodes {
		if resource == "" || len(out) == maxNamed || len(n.obstacles(q, s.Now)) > 0 {
			continue
		}
		room := n.room()
		held := room.Holds(q.demand.Request)
		room.Take(q.demand.Request, int64(held))
		for _, l := range room.Lacks(q.demand.Request) {
			if l.Resource == resource {
				out = append(out, fmt.Sprintf("%s: asks %s, %s left beside %s", n.object.Name, amount(l.Resource, l.Asks), amount(l.Resource, max(0, l.Left)), counted(held, "member")))
			}
		}
	}
	return out
}
