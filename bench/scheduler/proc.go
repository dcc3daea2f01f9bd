// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// tick is the unit of times in /proc/PID/stat, USER_HZ, which is 100 on
	// every architecture that Go runs on.
	tick = 10 * time.Millisecond
	// sampleInterval is a few ticks: finer would show nothing more.
	sampleInterval = 50 * time.Millisecond
)

// cpuTime is the CPU time a process used so far, ended children excluded.
func cpuTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("read a process's CPU time: %w", err)
	}
	return parseCPUTime(data)
}

func parseCPUTime(stat []byte) (time.Duration, error) {
	// The second field is the program's name in brackets, which may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("process state has %d fields after the name", len(fields))
	}
	var sum time.Duration
	for _, f := range fields[11:13] { // utime and stime, fields 14 and 15 of proc(5)
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process state: %w", err)
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}

// peakMemory is the most memory a process ever had resident, in bytes.
func peakMemory(pid int) (int64, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, fmt.Errorf("read a process's memory: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		value, ok := strings.CutPrefix(line, "VmHWM:")
		if !ok {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process memory: %w", err)
		}
		return kib << 10, nil
	}
	return 0, fmt.Errorf("process %d has no VmHWM", pid)
}

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
	a, err := cpuTime(scheduler)
	if err != nil {
		s.err = err
		return
	}
	b, err := cpuTime(controlPlane)
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
