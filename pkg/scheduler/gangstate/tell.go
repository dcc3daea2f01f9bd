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
	// tellAfter is how long a gang may be stuck before its members report why, and tellEvery the least time
	// until they report another reason.
	tellAfter = 5 * time.Second
	tellEvery = 10 * time.Second
)

// told is the last report to the members of a gang of why it waits.
type told struct {
	stuck time.Time          // since when the gang does not go on
	at    time.Time          // time of the last report
	pods  map[types.UID]bool // members that were told
	short bool               // the report was that the gang is not complete, or not readable
}

// Says reports whether a pod's condition has the reason already.
func Says(pod *v1.Pod, why string) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && strings.Contains(c.Message, why)
	})
}

// tell reports why a gang does not go on, on its waiting members: once for each reason, and on those
// whose condition has been replaced by kube-scheduler's. Members that report missing ones report the new
// reason at once when none is missing. The caller holds s.mu.
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

// Stuck reports whether a gang does not go on, so that its members must report why.
func (d Diagnosis) Stuck(key gangrequest.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	x := d.queue.gangs[key]
	return x != nil && x.attempt == nil && !x.told.stuck.IsZero()
}
