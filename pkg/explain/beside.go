// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
)

// besides is something other than devices that each member of a gang asks of its node.
type besides struct {
	cause    Cause
	resource v1.ResourceName // empty if it is no amount
	of       func(*v1.Pod) string
	drop     func(*v1.Pod)
}

// allBesides are what may keep members off one node, in the order in which they are tried.
func allBesides(a *ask) (out []besides) {
	for _, name := range resourcesOf(a) {
		out = append(out, besides{
			cause: CauseOf(name), resource: name,
			of:   func(*v1.Pod) string { return "less " + string(name) + " than the members ask together" },
			drop: func(p *v1.Pod) { dropResource(p, name) },
		})
	}
	return append(out,
		besides{cause: HostPort, of: portsOf, drop: func(p *v1.Pod) {
			for i := range p.Spec.Containers {
				p.Spec.Containers[i].Ports = nil
			}
		}},
		besides{cause: KeptApart, of: apartOf, drop: func(p *v1.Pod) {
			if p.Spec.Affinity != nil {
				p.Spec.Affinity.PodAntiAffinity = nil
			}
		}})
}

// resourcesOf are the amounts that the members ask, without the devices of their graphs.
func resourcesOf(a *ask) []v1.ResourceName {
	out := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage}
	for _, q := range a.shapes {
		for name := range q.demand.Request.Scalars {
			if string(name) != q.resource() && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out[3:])
	return out
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

// portsOf names the host ports of a pod, empty if it has none.
func portsOf(p *v1.Pod) string {
	var ports []string
	for i := range p.Spec.Containers {
		for _, port := range p.Spec.Containers[i].Ports {
			if port.HostPort > 0 {
				ports = append(ports, fmt.Sprint(port.HostPort))
			}
		}
	}
	if len(ports) == 0 {
		return ""
	}
	return "one member on each node, for they want the host port " + strings.Join(ports, ", ")
}

func apartOf(p *v1.Pod) string {
	if !placement.KeepsApart(p) {
		return ""
	}
	return "one member on each node, by their anti-affinity"
}

// crowded finds what the members have too little of beside each other, where devices would do: what
// alone they would have to do without to be placed, or else all of it. It reports whether there is
// such a thing.
func (s *scene) crowded(e *Explanation, a *ask, fits string, all []judged) bool {
	var asked []besides
	for _, b := range allBesides(a) {
		less, at := s.dropped(a, b)
		if at < 0 {
			continue
		}
		if _, err := s.plan(less); err == nil {
			s.blame(e, a, []besides{b}, fits, all)
			return true
		}
		asked = append(asked, b)
	}
	if len(asked) < 2 {
		return false
	}
	less, _ := s.dropped(a, asked...)
	if _, err := s.plan(less); err != nil {
		return false
	}
	s.blame(e, a, asked, fits, all)
	return true
}

// blame makes some besides the reason, the first of them the cause.
func (s *scene) blame(e *Explanation, a *ask, found []besides, fits string, all []judged) {
	var texts []string
	for _, b := range found {
		for _, q := range a.shapes {
			if text := b.of(q.pod); text != "" && !slices.Contains(texts, text) {
				texts = append(texts, text)
			}
			left := s.leftBeside(q, b.resource, all)
			e.Evidence = append(e.Evidence, left...)
			if len(left) > 0 {
				break
			}
		}
	}
	e.Cause, e.Reason = found[0].cause, strings.Join(texts, "; ")+": "+fits
}

// dropped is the same gang, all of whose members do without some things. at is the first shape that
// asks for any, -1 if none does.
func (s *scene) dropped(a *ask, what ...besides) (less *ask, at int) {
	out := *a
	out.shapes, out.asks, at = nil, nil, -1
	for i, q := range a.shapes {
		pod := q.pod.DeepCopy()
		for _, b := range what {
			b.drop(pod)
		}
		relaxed, err := s.question(pod)
		if err != nil {
			return nil, -1
		}
		if at < 0 && relaxed.differs(q) {
			at = i
		}
		out.shapes = append(out.shapes, relaxed)
	}
	for _, shape := range out.of {
		if shape >= 0 {
			out.asks = append(out.asks, out.shapes[shape].demand)
		}
	}
	return &out, at
}

// differs reports whether a node may answer the two differently.
func (q *question) differs(o *question) bool {
	mine, err := shapeOf(q)
	theirs, otherErr := shapeOf(o)
	return err != nil || otherErr != nil || mine != theirs || q.demand.MilliCPU != o.demand.MilliCPU || q.demand.Memory != o.demand.Memory ||
		q.demand.EphemeralStorage != o.demand.EphemeralStorage
}

// leftBeside says what nodes have left of a resource beside as many members as they take.
func (s *scene) leftBeside(q *question, resource v1.ResourceName, all []judged) (out []string) {
	for i := range all {
		n := &all[i]
		if len(n.obstacles) > 0 || len(out) == maxNamed || resource == "" {
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
