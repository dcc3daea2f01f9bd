// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// leakFactor times the request timeout is the age from which a claim counts as
// forgotten: open doubts are resolved after one timeout.
const leakFactor = 3

// leakFloor is a minimum for that age: with a short timeout, claims of a slow machine
// would count as leaks.
const leakFloor = 30 * time.Second

func schedulerObject(d *diagnosis.State) Object { return Object{Kind: "Scheduler", Name: d.Name} }

// process compares what a scheduler process believes with the World. Its state is a little
// older or newer than the World, so differences between both are pending first.
type process struct {
	*Report
	*diagnosis.State

	nodes map[string]*node
	live  map[types.UID]*v1.Pod // as of scene
	bound []*pod
}

func (p *process) check() {
	p.Checked.Schedulers++
	p.Checked.Claims += len(p.Claims)
	if !p.Synced {
		p.note(Violation{Invariant: NotSynced, Objects: []Object{schedulerObject(p.State)}, Field: "synced", Message: "it has not read all graphs yet, and GPU pods wait"})
	}
	attempted := inAttempts(p.State)
	for i := range p.Claims {
		p.checkClaim(&p.Claims[i], attempted)
	}
	p.checkClaimSharing()
	if p.Synced {
		p.checkDerivation()
	}
}

func claimObjects(d *diagnosis.State, c *diagnosis.Reservation) []Object {
	namespace, name, _ := strings.Cut(c.Pod, "/")
	return []Object{{Kind: "Pod", Namespace: namespace, Name: name, UID: c.UID}, {Kind: "Node", Name: c.Node}, schedulerObject(d)}
}

// inAttempts are the pods whose gangs are being placed.
func inAttempts(d *diagnosis.State) map[types.UID]bool {
	out := map[types.UID]bool{}
	for i := range d.Gangs {
		members := d.Gangs[i].Awaiting
		if a := d.Gangs[i].Attempt; a != nil {
			members = slices.Concat(a.Held, a.Reserved, a.Waiting)
		}
		for _, uid := range members {
			out[uid] = true
		}
	}
	return out
}

// checkClaim finds claims that hold GPUs for no pod, or for a gang that nobody tries to place.
// The next scheduling cycle drops settled claims, so their age means nothing without a cycle. A
// process that was paused has old claims until it has heard what it missed, so only a lasting
// one is a violation.
func (p *process) checkClaim(c *diagnosis.Reservation, attempted map[types.UID]bool) {
	bound := max(leakFactor*p.RequestTimeout.Duration, leakFloor)
	settled := c.Phase == "confirmed" || c.Phase == "void"
	seen := p.At
	if settled {
		if seen = c.Since; p.LastSweep != nil {
			seen = *p.LastSweep
		}
	}
	if seen.Sub(c.Since) < bound {
		return
	}
	v := Violation{Invariant: LeakedClaim, Objects: claimObjects(p.State, c), Field: "claims", Message: fmt.Sprintf(
		"%s are %s for it since %s", strings.Join(c.GPUs, ", "), c.Phase, stamp(c.Since))}
	pod := p.live[c.UID]
	switch {
	case pod == nil:
		v.Message += ", and the pod is gone"
		p.pend(v)
	case pod.Spec.NodeName != "" && pod.Spec.NodeName != c.Node:
		v.Message += ", and the pod is on node " + pod.Spec.NodeName
		p.pend(v)
	case (c.Phase == "planned" || c.Phase == diagnosis.Awaiting) && !attempted[c.UID]:
		v.Message += ", and no attempt to place its gang goes on"
		p.pend(v)
	default:
		v.Invariant = LateClaim
		p.note(v)
	}
}

// checkClaimSharing finds GPUs that one process has promised to two pods. One lock
// guards all claims, so this must not happen at any moment.
//
// What awaits the end of others is theirs, too, until then. Two pods never await one GPU.
func (p *process) checkClaimSharing() {
	for _, awaiting := range []bool{false, true} {
		p.checkClaimsOf(func(c *diagnosis.Reservation) bool { return (c.Phase == diagnosis.Awaiting) == awaiting })
	}
}

func (p *process) checkClaimsOf(counts func(*diagnosis.Reservation) bool) {
	holders := map[device][]types.UID{}
	of := map[types.UID]*diagnosis.Reservation{}
	for i := range p.Claims {
		c := &p.Claims[i]
		if !counts(c) {
			continue
		}
		of[c.UID] = c
		for _, id := range c.GPUs {
			dev := device{c.Node, id}
			holders[dev] = append(holders[dev], c.UID)
		}
	}
	for _, g := range groups(holders) {
		var objects []Object
		for _, uid := range g.uids {
			objects = append(objects, claimObjects(p.State, of[uid])[0])
		}
		p.violate(Violation{
			Invariant: SharedByClaim, Objects: append(objects, Object{Kind: "Node", Name: g.node}, schedulerObject(p.State)), Field: "claims",
			Message: fmt.Sprintf("it has promised %s of node %s to %d pods", strings.Join(g.gpus, ", "), g.node, len(g.uids)),
		})
	}
}

// checkDerivation compares the GPUs that the process counts as used, from its own
// copies, with those of the World. A GPU that a pod holds and the process does not
// count could be given out again. A GPU that it counts and no pod holds is lost.
func (p *process) checkDerivation() {
	held := map[device]Object{} // held by annotation or record
	for _, b := range p.bound {
		for _, c := range b.alloc.Containers {
			for _, id := range c.GPUs {
				held[device{b.node.name, id}] = podObject(b.Pod)
			}
		}
	}
	for i := range p.Claims {
		for _, id := range p.Claims[i].GPUs {
			held[device{p.Claims[i].Node, id}] = claimObjects(p.State, &p.Claims[i])[0]
		}
	}
	for i := range p.Nodes {
		if x := &p.Nodes[i]; x.Derived != nil && x.Counts {
			p.compareDerived(x, held)
		}
	}
}

// addRecorded adds what kubelet recorded to what is held. While the agent publishes the
// record of a pod that is gone, that counts too.
func (p *process) addRecorded(n *node, held map[device]Object) {
	for uid, records := range n.records {
		if !n.enforced && p.live[uid] == nil {
			continue
		}
		for _, r := range records {
			for _, id := range r.GPUs {
				if _, ok := held[device{n.name, id}]; !ok {
					held[device{n.name, id}] = Object{Kind: "Pod", Namespace: r.Namespace, Name: r.Pod, UID: uid}
				}
			}
		}
	}
}

func (p *process) compareDerived(x *diagnosis.Node, held map[device]Object) {
	n := p.nodes[x.Name]
	if n == nil || n.accels == nil || n.topology.Spec.NodeUID != x.NodeUID {
		return
	}
	p.addRecorded(n, held)
	differs := func(id, message string, objects ...Object) {
		p.pend(Violation{
			Invariant: DerivationDiffers, Objects: append(objects, schedulerObject(p.State)),
			Field: fmt.Sprintf("nodes[%s].derived.used[%s]", x.Name, id), Message: id + message,
		})
	}
	self := Object{Kind: "Node", Name: x.Name}
	for res, accel := range n.accels {
		for i := range accel.graph.GPUs {
			id := accel.graph.GPUs[i].UUID
			holder, isHeld := held[device{x.Name, id}]
			switch used := slices.Contains(x.Derived.Used[res], id); {
			case isHeld && !used:
				differs(id, " is held and does not count as used", self, holder)
			case used && !isHeld:
				differs(id, " counts as used, and nobody holds it", self)
			}
		}
	}
}
