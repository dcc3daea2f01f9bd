// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestDeadMemberPlace: the place of a member that died is kept. It has a member of a gang die, on a
// full cluster on which a pod waits that fits where it was.
func TestDeadMemberPlace(t *testing.T) {
	// The place is kept for the most that may be configured, which is longer than any machine needs
	// to make the replacement, and then, by another scheduler, for what the test can wait for.
	const long, keep = 10 * time.Minute, 20 * time.Second
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	s := scenario{free: freeRacks{{{8, 8}}}}
	l.makeRacks(t, 0, &s)
	keeping := func(d time.Duration) *devcluster.Scheduler {
		return l.startScheduler(t, profile{
			name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin},
			args: map[string]string{gangPlugin: "keepFreed: " + d.String()},
		})
	}
	first := keeping(long)
	pods := gangPods(0, "runs", 2, 8, nil)
	l.create(t, pods...)
	place := ""
	for _, pod := range pods {
		place = l.bound(t, pod.Name).Spec.NodeName
	}
	waits := func() {
		testkit.Naps(1100 * time.Millisecond) // creation has seconds: who comes now is younger
		l.create(t, gpuPod("waits", gangProfile, 8).Obj())
		l.refused(t, "waits")
	}
	// dies removes a member while the other pod waits, and returns when. The place is kept once the
	// scheduler's gangs have heard of the end. On a busy machine a cycle can begin before
	// (docs/design/gangs.md): then all is done again.
	dies := func() time.Time {
		for try := 1; ; try++ {
			died := time.Now() // before: nobody can keep the place from an earlier moment on
			l.remove(t, pods[1].Name)
			testkit.Naps(2 * time.Second) // a pod that might take the place has its chance
			if try == 5 || l.get(t, "waits").Spec.NodeName == "" {
				return died
			}
			t.Log("the pod that waits was faster than the news of the end")
			l.remove(t, "waits")
			l.create(t, gangPods(0, "runs", 2, 8, nil)[1])
			l.bound(t, pods[1].Name)
			waits()
		}
	}

	waits()
	dies()
	if why, want := l.refused(t, "waits"), "kept for gang default/runs"; !strings.Contains(why, want) {
		t.Errorf("the pod that waits says %q, want %q", why, want)
	}
	l.create(t, gangPods(0, "runs", 2, 8, nil)[1])
	if node := l.bound(t, pods[1].Name).Spec.NodeName; node != place {
		t.Errorf("the replacement is on %s, want %s", node, place)
	}

	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	keeping(keep)
	l.create(t, gpuPod("turn", gangProfile, 0).Obj()) // when it is bound, the scheduler knows the others
	l.bound(t, "turn")
	freed := dies()
	if node := l.bound(t, "waits").Spec.NodeName; node != place {
		t.Errorf("the pod that waited is on %s, want %s", node, place)
	}
	if took := time.Since(freed); took < keep-5*time.Second { // a slow machine only exceeds it
		t.Errorf("the place was another pod's after %v, want %v", took, keep)
	} else {
		t.Logf("without a replacement the place was another pod's after %v", took)
	}
}
