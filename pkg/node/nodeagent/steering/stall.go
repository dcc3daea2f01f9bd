// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/answer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/question"
)

// within runs work and waits for it at most limit; ok reports whether it ended in time. Otherwise it
// continues in the background: its blocking calls take no context.
func within[T any](clk clock.Clock, limit time.Duration, work func() T) (value T, ok bool) {
	done := make(chan T, 1)
	go func() { done <- work() }()
	timer := clk.NewTimer(limit)
	defer timer.Stop()
	select {
	case value = <-done:
		return value, true
	case <-timer.C():
		select { // both can be ready if the process was paused
		case value = <-done:
			return value, true
		default:
			return value, false
		}
	}
}

// fallback answers from memory. It never blocks: it skips state that another goroutine has locked. It
// uses the requesting container if that was found already. Otherwise it takes the likeliest one, as if
// kubelet did not respond; in strict mode it rejects the pod if none is found. Any other error would fail
// a pod permanently.
func (s *Steering) fallback(logger klog.Logger, t *turn, q question.Question) answered {
	f := &podfinder.Facts{Question: q, Now: s.clock.Now(), Answers: map[types.UID]podfinder.Answer{}, Mute: true, Listed: true}
	if s.viewer.mu.TryLock() {
		f.Pods = s.viewer.views(s.pods.Pods())
		s.viewer.mu.Unlock()
	}
	var sh *shelf
	if s.mu.TryLock() {
		sh = s.shelves[q.Resource]
		s.mu.Unlock()
	}
	if sh != nil && !sh.mu.TryLock() {
		sh = nil
	}
	if sh != nil {
		defer sh.mu.Unlock()
		sh.recall(f)
	}
	who := t.who.Load() // read with the shelf locked: any claim on it is this question's own
	if who == nil {
		who = podfinder.Resolve(f).Who
	}
	var p plans
	if sh != nil {
		p = sh.plans(who, f.Now)
	}
	o := s.offer(f, who, p)
	if who == nil && s.cfg.Strict {
		o.Unseen = status.Errorf(codes.Unavailable, "%s: cannot find out in time which pod asks for %d devices", q.Resource, q.Size)
	}
	logger.Info("Answering from memory: a full answer takes too long", "resource", q.Resource, "size", q.Size)
	return s.conclude(logger, sh, &o, answer.Decide(o))
}
