// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestAnyModelFrom: members wait for a required model for a time from when they were complete.
func TestAnyModelFrom(t *testing.T) {
	noon := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	made := func(model string) *v1.Pod {
		p := member("g", 2, "pod").Obj()
		if model != "" {
			p.Annotations[podrequest.PromisedModelKey] = model
		}
		return p
	}
	tests := map[string]struct {
		after time.Duration
		fresh bool
		pods  []*v1.Pod
		want  time.Time
	}{
		"replacements":                   {after: time.Minute, pods: []*v1.Pod{made(""), made("")}, want: noon.Add(time.Minute)},
		"replacements, for ever":         {pods: []*v1.Pod{made("")}},
		"a gang that begins":             {after: time.Minute, fresh: true, pods: []*v1.Pod{made("")}},
		"and was promised a model":       {after: time.Hour, fresh: true, pods: []*v1.Pod{made("a"), made("a")}, want: noon.Add(time.Minute)},
		"promised a model":               {fresh: true, pods: []*v1.Pod{made("a")}, want: noon.Add(time.Minute)},
		"nobody is to be placed":         {after: time.Minute},
		"a promise that nobody can read": {after: time.Minute, fresh: true, pods: []*v1.Pod{made(strings.Repeat("a", 2000))}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := New(clocktesting.NewFakePassiveClock(noon), Config{AnyModelAfter: tc.after}, idle{})
			if got := g.AnyModelFrom(&Turn{Pods: tc.pods, Fresh: tc.fresh, Complete: noon}); !got.Equal(tc.want) {
				t.Errorf("from %s on, want %s", got, tc.want)
			}
		})
	}
}

// TestPromiseAfterGates: the time of a promise begins when the pods of a job may be scheduled. Kueue
// makes them long before if it treats them as one group.
func TestPromiseAfterGates(t *testing.T) {
	noon := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	clk := clocktesting.NewFakePassiveClock(noon)
	g := New(clk, Config{}, idle{})
	g.Serve(testProfile)
	pods := []*v1.Pod{member("g", 2, "a").Obj(), member("g", 2, "b").Obj()}
	for _, gated := range []bool{true, false} {
		for _, pod := range pods {
			pod := pod.DeepCopy()
			pod.CreationTimestamp.Time = noon
			if gated {
				pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
			} else {
				pod.Annotations[podrequest.PromisedModelKey] = "a"
			}
			g.SetPod(pod)
		}
		clk.SetTime(noon.Add(time.Hour))
	}
	turn, ok := g.Begin(pods[0])
	if !ok || turn.Why != "" {
		t.Fatalf("turn of a member: %t, %q", ok, turn.Why)
	}
	if got, want := g.AnyModelFrom(&turn), noon.Add(time.Hour+promiseKept); !got.Equal(want) {
		t.Errorf("any model from %s on, want %s", got, want)
	}
}
