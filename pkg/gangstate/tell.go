// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

const (
	// tellAfter is how long a gang may be stuck before its members say why, and tellEvery the
	// least time until they say something else.
	tellAfter = 5 * time.Second
	tellEvery = 10 * time.Second
)

// tell says why a gang does not go on, to its members that wait, once for each reason, and to those of
// which only kube-scheduler said it. It needs g.mu.
func (g *Gangs) tell(x *gang) (e effects) {
	now := g.clock.Now()
	why, pods := g.incomplete(x), x.unbound()
	if why == "" && x.waits != nil {
		why = x.waits.Why
	}
	if why == "" || len(pods) == 0 || x.attempt != nil {
		x.stuck = time.Time{}
		return e
	}
	if x.stuck.IsZero() {
		x.stuck = now
	}
	if now.Sub(x.stuck) < tellAfter || now.Sub(x.saidAt) < tellEvery {
		return e
	}
	pods = slices.DeleteFunc(pods, func(pod *v1.Pod) bool { return x.told[pod.UID] && Says(pod, why) })
	if len(pods) > 0 {
		x.saidAt = now
		e.say, e.why = pods, why
	}
	for _, pod := range pods {
		x.told[pod.UID] = true
	}
	return e
}

// Stuck reports whether a gang does not go on, so that its members are to be told why.
func (g *Gangs) Stuck(key gangrequest.Key) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	x := g.gangs[key]
	return x != nil && x.attempt == nil && !x.stuck.IsZero()
}

// Says reports whether a pod's condition has the reason already.
func Says(pod *v1.Pod, why string) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && strings.Contains(c.Message, why)
	})
}

// unbound returns the live members without a node, by name.
func (x *gang) unbound() (pods []*v1.Pod) {
	for _, pod := range x.pods {
		if pod.Spec.NodeName == "" && gangrequest.StandingOf(pod) == gangrequest.Live {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}
