// SPDX-License-Identifier: Apache-2.0

package nodestate

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// doubtInterval is how often doubtful reservations are looked at, and each is read.
	doubtInterval = 2 * time.Second
	// maxResolving bounds how many are read at a time: an API server that comes back
	// after a minute finds the doubts of all attempts of that minute.
	maxResolving = 16
)

// resolveDoubts decides doubtful reservations by live reads that are later than any
// write the API server may still carry out. A read may take requestTimeout; the others
// do not wait for it.
// It returns when ctx has ended and so have its reads.
func (s *State) resolveDoubts(ctx context.Context, client clientset.Interface) {
	ticker := s.clock.NewTicker(doubtInterval)
	defer ticker.Stop()
	var reads sync.WaitGroup
	defer reads.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if s.waitedInVain() {
			s.onFreed()
		}
		for _, c := range s.toResolve() {
			reads.Go(func() {
				freed := s.resolve(ctx, client, c)
				s.resolved(c)
				if freed {
					s.onFreed()
				}
			})
		}
	}
}

// resolve decides one doubtful reservation and reports whether its devices came free.
func (s *State) resolve(ctx context.Context, client clientset.Interface, c *reservation) bool {
	ctx, cancel := s.Bounded(ctx)
	defer cancel()
	pod, err := client.CoreV1().Pods(c.namespace).Get(ctx, c.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return s.decide(c, nil)
	case err != nil:
		klog.FromContext(ctx).V(2).Info("Reading a pod whose binding is in doubt failed", "pod", klog.KRef(c.namespace, c.name), "err", err)
		return false
	}
	freed := s.decide(c, pod)
	if a := s.misplaced(c, pod); a != nil {
		if err := s.correct(ctx, client, pod, a); err != nil {
			klog.FromContext(ctx).V(2).Info("Writing the choice a pod was bound with failed", "pod", klog.KObj(pod), "err", err)
		}
	}
	return freed
}

// doubts returns the doubtful reservations that are old enough to be decided.
func (s *State) doubts() []*reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oldDoubts()
}

// oldDoubts needs s.mu.
func (s *State) oldDoubts() []*reservation {
	var out []*reservation
	for _, cs := range s.reservations {
		for _, c := range cs {
			if c.phase == doubtful && s.clock.Since(c.since) > s.config.RequestTimeout {
				out = append(out, c)
			}
		}
	}
	return out
}

// toResolve returns those to be read now, which nobody reads, and counts them as being
// read. Those that were read longest ago come first: some may never be answered.
func (s *State) toResolve() []*reservation {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.DeleteFunc(s.oldDoubts(), func(c *reservation) bool { return c.reading })
	slices.SortFunc(out, func(a, b *reservation) int { return a.read.Compare(b.read) })
	out = out[:min(len(out), maxResolving-s.resolving)]
	for _, c := range out {
		c.reading, c.read = true, s.clock.Now()
	}
	s.resolving += len(out)
	return out
}

func (s *State) resolved(c *reservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.reading = false
	s.resolving--
}
