// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	// tellAfter is how long a gang may be stuck before its members say why, and tellEvery the
	// least time until they say something else.
	tellAfter = 5 * time.Second
	tellEvery = 10 * time.Second
)

// told is what the members of a gang were told of why it waits.
type told struct {
	stuck time.Time          // since when the gang does not go on
	at    time.Time          // when they were told something last
	pods  map[types.UID]bool // who was told
	short bool               // that members are missing
}

// Says reports whether a pod's condition has the reason already.
func Says(pod *v1.Pod, why string) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && strings.Contains(c.Message, why)
	})
}

// tell says why a gang does not go on, to its members that wait, once for each reason, and to those of
// which only kube-scheduler said it. Members that say that others are missing say the new reason at once when
// none is. It needs s.mu.
func (s *stepper) tell(x *gang) (e effects) {
	now := s.clock.Now()
	missing, pods := s.queue.incomplete(x), x.unbound()
	why := missing
	if why == "" && x.waits != nil {
		why = x.waits.Why
	}
	if why == "" || len(pods) == 0 || x.attempt != nil {
		x.told.stuck = time.Time{}
		return e
	}
	if x.told.stuck.IsZero() {
		x.told.stuck = now
	}
	outdated := x.told.short && missing == ""
	if !outdated && (now.Sub(x.told.stuck) < tellAfter || now.Sub(x.told.at) < tellEvery) {
		return e
	}
	pods = slices.DeleteFunc(pods, func(pod *v1.Pod) bool { return x.told.pods[pod.UID] && Says(pod, why) })
	if len(pods) > 0 {
		x.told.at, x.told.short = now, missing != ""
		e.say, e.why = pods, why
	}
	for _, pod := range pods {
		x.told.pods[pod.UID] = true
	}
	return e
}

// Stuck reports whether a gang does not go on, so that its members are to be told why.
func (d Diagnosis) Stuck(key gangrequest.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.queue.gangs[key]
	return x != nil && x.attempt == nil && !x.told.stuck.IsZero()
}
