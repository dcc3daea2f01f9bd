// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// within runs work and waits for its end no longer than limit; ok tells whether it
// ended. Work that is given up goes on: what it waits for knows no context.
func within[T any](clk clock.Clock, limit time.Duration, work func() T) (value T, ok bool) {
	done := make(chan T, 1)
	go func() { done <- work() }()
	timer := clk.NewTimer(limit)
	defer timer.Stop()
	select {
	case value = <-done:
		return value, true
	case <-timer.C():
		select { // both are ready where the process was paused
		case value = <-done:
			return value, true
		default:
			return value, false
		}
	}
}

// fallback answers from memory, and leaves out what somebody else is working on: it
// waits for nothing. Kubelet tells nobody then, so who asks, unless it had been found
// by then, is the likeliest of the pods that may, as with a kubelet that cannot be asked; in strict mode one that
// nobody finds is refused. Any other error would fail a pod for good.
func (s *Steering) fallback(logger klog.Logger, t *turn, q question) answered {
	f := &facts{q: q, now: s.clock.Now(), answers: map[types.UID]answer{}, mute: true, listed: true}
	if s.viewer.mu.TryLock() {
		f.pods = s.viewer.views(s.pods.Pods())
		s.viewer.mu.Unlock()
	}
	var sh *shelf
	if s.mu.TryLock() {
		sh = s.shelves[q.resource]
		s.mu.Unlock()
	}
	if sh != nil && !sh.mu.TryLock() {
		sh = nil
	}
	if sh != nil {
		defer sh.mu.Unlock()
		sh.recall(f)
	}
	who := t.who.Load() // read with the shelf locked: a claim on it is this one's own
	if who == nil {
		who = resolve(f).who
	}
	var p plans
	if sh != nil {
		p = sh.plans(who, f.now)
	}
	o := s.offer(f, who, p)
	if who == nil && s.cfg.Strict {
		o.unseen = status.Errorf(codes.Unavailable, "%s: cannot find out in time which pod asks for %d devices", q.resource, q.size)
	}
	logger.Info("Answering from memory: what would tell more does not answer in time", "resource", q.resource, "size", q.size)
	return s.conclude(logger, sh, &o, decide(o))
}
