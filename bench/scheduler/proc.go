// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"time"

	"github.com/nvtopo/nvtopo/bench/internal/proc"
)

// sampleInterval is a few ticks of proc(5): finer would show nothing more.
const sampleInterval = 50 * time.Millisecond

// sample is the CPU time of both processes at one moment.
type sample struct {
	at                      time.Time
	scheduler, controlPlane time.Duration
}

// samples are in order of time.
type samples []sample

// sampler records both processes' CPU time until stopped.
type sampler struct {
	cancel context.CancelFunc
	done   chan struct{}
	out    samples // read after done
	err    error   // read after done
}

func startSampler(ctx context.Context, scheduler, controlPlane int) *sampler {
	ctx, cancel := context.WithCancel(ctx)
	s := &sampler{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(sampleInterval)
		defer ticker.Stop()
		for s.err == nil {
			s.take(scheduler, controlPlane)
			select {
			case <-ctx.Done():
				s.take(scheduler, controlPlane) // so that the last binding lies between two samples
				return
			case <-ticker.C:
			}
		}
	}()
	return s
}

func (s *sampler) take(scheduler, controlPlane int) {
	a, err := proc.CPUTime(scheduler)
	if err != nil {
		s.err = err
		return
	}
	b, err := proc.CPUTime(controlPlane)
	if err != nil {
		s.err = err
		return
	}
	s.out = append(s.out, sample{at: time.Now(), scheduler: a, controlPlane: b})
}

// stop ends the sampling and returns what was recorded.
func (s *sampler) stop() (samples, error) {
	s.cancel()
	<-s.done
	return s.out, s.err
}

// at is the state at a moment, on the straight line between two samples.
func (s samples) at(t time.Time) sample {
	i, _ := slices.BinarySearchFunc(s, t, func(x sample, t time.Time) int { return x.at.Compare(t) })
	switch {
	case i == 0:
		return s[0]
	case i == len(s):
		return s[len(s)-1]
	}
	a, b := s[i-1], s[i]
	part := float64(t.Sub(a.at)) / float64(b.at.Sub(a.at))
	between := func(x, y time.Duration) time.Duration { return x + time.Duration(part*float64(y-x)) }
	return sample{at: t, scheduler: between(a.scheduler, b.scheduler), controlPlane: between(a.controlPlane, b.controlPlane)}
}
