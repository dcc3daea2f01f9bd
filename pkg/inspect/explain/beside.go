// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// besides are what members of a gang ask of their nodes other than devices, and of which a node may have
// too little for several of them, in the order in which it is looked at.
func besides(a *ask) []wish {
	var all []wish
	for _, name := range resourcesOf(a.shapes) {
		all = append(all, wish{
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
		wish{cause: HostPort, of: portsOf, drop: func(p *v1.Pod) {
			for _, containers := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
				for i := range containers {
					containers[i].Ports = nil
				}
			}
		}},
		wish{cause: KeptApart, of: apartOf, drop: func(p *v1.Pod) {
			if p.Spec.Affinity != nil {
				p.Spec.Affinity.PodAntiAffinity = nil
			}
		}})
	return slices.DeleteFunc(all, func(w wish) bool {
		return !slices.ContainsFunc(a.shapes, func(q *question) bool { return w.of(q) != "" })
	})
}

// resourcesOf are the amounts that members may ask beside devices that have a graph.
func resourcesOf(shapes []*question) []v1.ResourceName {
	var others []v1.ResourceName
	for _, q := range shapes {
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
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		lists = append(lists, c.Resources.Requests, c.Resources.Limits)
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

// amounts are what a pod asks beside devices, as wishes.
func amounts(q *question) (out []wish) {
	for _, name := range resourcesOf([]*question{q}) {
		if n := asks(q, name); n > 0 {
			out = append(out, wish{name: amount(name, n) + " of " + string(name), value: amount(name, n), resource: name, cause: CauseOf(name), drop: func(p *v1.Pod) { dropResource(p, name) }})
		}
	}
	return out
}

// amountsLeft says of how much of the amounts among the wishes the node has that has most.
func (x *podAsk) amountsLeft(wishes []wish) (out []string) {
	for _, name := range resourcesOf([]*question{x.q}) {
		if !slices.ContainsFunc(wishes, func(w wish) bool { return w.cause == CauseOf(name) }) || asks(x.q, name) == 0 {
			continue
		}
		var most int64 = -1
		var best string
		for _, n := range x.nodes {
			if !x.q.shape.Eligible.Allows(n.object) || n.offers(x.q.resource()) == 0 && x.q.demand.HasGPUs() {
				continue
			}
			room := n.room()
			lacks := room.Lacks(x.q.demand.Request)
			at := slices.IndexFunc(lacks, func(l placement.Shortage) bool { return l.Resource == name })
			if at < 0 {
				continue // it has enough of this
			}
			if value := max(0, lacks[at].Left); value > most {
				most, best = value, n.object.Name
			}
		}
		if most >= 0 {
			out = append(out, fmt.Sprintf("%s asks %s of %s, and the most that a node has is %s (%s)", x.q.pod.Name, amount(name, asks(x.q, name)), name, amount(name, most), best))
		}
	}
	return out
}

// leftBeside says what nodes have left of a resource beside as many members as they take.
func (x *podAsk) leftBeside(resource v1.ResourceName) (out []string) {
	for _, n := range x.nodes {
		if resource == "" || len(out) == maxNamed || len(n.obstacles(x.q, x.now)) > 0 {
			continue
		}
		room := n.room()
		held := room.Holds(x.q.demand.Request)
		room.Take(x.q.demand.Request, int64(held))
		for _, l := range room.Lacks(x.q.demand.Request) {
			if l.Resource == resource {
				out = append(out, fmt.Sprintf("%s: asks %s, %s left beside %s", n.object.Name, amount(l.Resource, l.Asks), amount(l.Resource, max(0, l.Left)), counted(held, "member")))
			}
		}
	}
	return out
}
