// SPDX-License-Identifier: Apache-2.0

package placementcheck

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// Verdict is the check's result for a Workload with quota.
type Verdict string

// The verdicts.
const (
	Ready Verdict = "Ready" // it may start
	Wait  Verdict = "Wait"  // its place will be free soon: it keeps its quota until then
	Retry Verdict = "Retry" // it has no place: its quota is released
)

// Decision is a verdict with its reason.
type Decision struct {
	Verdict Verdict
	Message string
	// PodSetUpdates of Ready restrict the pods to the found domain and its GPU model.
	PodSetUpdates []kueue.PodSetUpdate
	// Until is the end of Wait, or the time at which Retry may change without an event; zero: never.
	Until time.Time

	after *Snapshot // including the promise of Ready
}

// Decide decides whether the pods of a Workload with quota have a place. The Snapshot must include all
// earlier promises, and is not modified.
func Decide(s *Snapshot, w *kueue.Workload) Decision {
	if !s.known {
		return unchecked(s, w)
	}
	a, err := s.read(w, s.flavorsOf(w), nil)
	if err != nil {
		return Decision{Verdict: Retry, Message: err.Error()}
	}
	return s.decide(a)
}

// unchecked lets a Workload start where no topology is known: a cluster without exporters must not stop.
func unchecked(s *Snapshot, w *kueue.Workload) Decision {
	return Decision{Verdict: Ready, Message: "not checked: no node publishes a topology that counts", PodSetUpdates: updates(w, promise{}), after: s}
}

// decide decides an ask.
func (s *Snapshot) decide(a *ask) Decision {
	found, err := s.fit(a, nil)
	if err == nil {
		return s.found(a, found)
	}
	if !isRoom(err) {
		return Decision{Verdict: Retry, Message: err.Error()}
	}
	why := err.Error()
	if d, ok := s.afterThoseThatEnd(a, why); ok {
		return d
	}
	// The scheduler preempts no pod for a gang that fits on several models. Admitted for a preemption
	// that does not happen, the gang would be evicted by Kueue and admitted again without end.
	if !mixedFits(err) {
		if d, ok := s.afterPreemption(a); ok {
			return d
		}
	}
	return Decision{Verdict: Retry, Message: why}
}

// everFits reports whether a Workload would have a place on the empty cluster. One without any must not
// keep quota from others.
func (s *Snapshot) everFits(w *kueue.Workload, flavors map[string]*kueue.ResourceFlavor) bool {
	a, err := s.read(w, flavors, nil)
	if err != nil {
		return false
	}
	_, err = s.empty().fit(a, nil)
	return err == nil
}

// found returns the decision on an ask that has a place now. A gang whose topology wait timeout has not
// passed waits for a better level without its quota.
func (s *Snapshot) found(a *ask, found *fitted) Decision {
	for i, g := range a.gangs {
		if why, until := s.patience(a, g, found.plans[i]); why != "" {
			return Decision{Verdict: Retry, Message: why, Until: until}
		}
	}
	return Decision{Verdict: Ready, Message: s.describe(a, found), PodSetUpdates: updates(a.workload, s.promise(a, found)), after: found.after}
}

// afterPreemption lets a Workload start for which the scheduler can make room by preempting pods of a
// lower priority, such as those of an ElasticJob's extras. The scheduler chooses its victims by the room
// that they leave.
func (s *Snapshot) afterPreemption(a *ask) (Decision, bool) {
	victims := 0
	later, _ := s.without(func(p *v1.Pod) bool {
		_, ends := s.endOf(p)
		victim := p.DeletionTimestamp == nil && p.Spec.Priority != nil && *p.Spec.Priority < a.priority
		if victim {
			victims++
		}
		return ends || victim
	})
	if victims == 0 || a.preemptsNever() {
		return Decision{}, false
	}
	found, err := later.fit(a, nil)
	if err != nil {
		return Decision{}, false
	}
	// The promise covers the nodes that the pods may get: running pods still occupy their devices.
	after := s.copy()
	for at := range after.nodes {
		if more := found.after.nodes[at].given; len(more) > len(s.nodes[at].given) {
			n := after.own(at)
			n.given, n.used = more, nil
		}
	}
	return Decision{Verdict: Ready, Message: "there is room once pods of a lower priority are evicted", PodSetUpdates: updates(a.workload, promise{}), after: after}, true
}

// preemptsNever reports whether some pods must not preempt others.
func (a *ask) preemptsNever() bool {
	never := func(k *kind) bool {
		return k.pod.Spec.PreemptionPolicy != nil && *k.pod.Spec.PreemptionPolicy == v1.PreemptNever
	}
	return slices.ContainsFunc(a.singles, never) || slices.ContainsFunc(a.gangs, func(g *gang) bool { return slices.ContainsFunc(g.kinds, never) })
}

// patience returns why a gang waits although it has a place, and until when: a better level is possible
// on the empty cluster. The time runs from the Workload's creation, so that no state is needed.
func (s *Snapshot) patience(a *ask, g *gang, plan *fabric.Plan) (why string, until time.Time) {
	until = a.workload.CreationTimestamp.Add(g.Wishes.Patience)
	if g.Wishes.Patience == 0 || !s.now.Before(until) || g.Wishes.Preferred != "" && plan.Preferred {
		return "", until
	}
	best, err := s.empty().plan(g, nil)
	if err != nil {
		return "", until
	}
	if !s.tree.Better(best, plan) {
		return "", until
	}
	return gangrequest.PatienceReason(until, plan, best), until
}

// describe returns the quality of the gangs' places, in the scheduler's terms.
func (s *Snapshot) describe(a *ask, found *fitted) string {
	if len(a.gangs) == 0 {
		return "there is room"
	}
	texts := make([]string, len(found.plans))
	for i, plan := range found.plans {
		texts[i] = s.describePlan(plan, &a.gangs[i].Wishes)
	}
	return strings.Join(texts, "; ")
}

func (s *Snapshot) describePlan(plan *fabric.Plan, w *gangrequest.Wishes) string {
	text := s.tree.Quality(plan.Nodes) + ": " + plural(len(plan.Nodes), "pod") + " on " + plural(len(distinct(plan.Nodes)), "node")
	if domain := s.domainOf(plan); domain != "" {
		text += " of " + domain
	}
	if c, ok := s.tree.Compat(plan.Nodes, w.Message()/1e6, fabric.BinaryUnits); ok {
		text += fmt.Sprintf(", all-reduce of %s in %s ms", w.MessageText(), strconv.FormatFloat(c.Ring, 'f', -1, 64))
	}
	return text
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func distinct(nodes []int) []int { return slices.Compact(slices.Sorted(slices.Values(nodes))) }

// domainOf names the smallest domain that contains a plan; empty if that is the cluster.
func (s *Snapshot) domainOf(plan *fabric.Plan) string {
	depth := s.commonDepth(plan)
	if depth == 0 {
		return ""
	}
	return s.tree.LevelName(depth) + " " + s.tree.DomainName(depth, plan.Domains[depth][0])
}

// commonDepth returns the depth of the smallest named domain that contains a plan, 0 for the cluster.
func (s *Snapshot) commonDepth(plan *fabric.Plan) int {
	for depth := s.tree.Depth(); depth > 0; depth-- {
		if d := plan.Domains[depth]; len(d) == 1 && s.tree.Domains(depth)[d[0]].Name != "" {
			return depth
		}
	}
	return 0
}
