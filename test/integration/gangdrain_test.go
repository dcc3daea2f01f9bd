// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// TestNodeKeeping: nodes are kept for a gang that waits. It has a gang wait for a rack of which
// half is free, beside pods that fit there.
func TestNodeKeeping(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	s := scenario{free: freeRacks{{{0, 4}, {0, 0}}}}
	l.makeRacks(t, 0, &s)
	l.startScheduler(t, profile{
		name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin},
		args: map[string]string{gangPlugin: "drainAfter: 1s"},
	})
	l.fill(t, 0, &s)
	required := notes{gangrequest.RequiredKey: "rack"}

	gone := gangPods(0, "gone", 2, 8, required)
	l.create(t, gone...)
	l.wantGangRefused(t, gone, "drains rack-0 since ")
	// It is on the first member whose own cycle has not said so.
	testkit.Eventually(t, waitLimit, "an event says that a rack is drained", func(ctx context.Context) (bool, string) {
		var said []string
		for _, pod := range gone {
			notes, err := l.events(ctx, l.get(t, pod.Name), "GangWaiting")
			if err != nil {
				t.Fatal(err)
			}
			said = append(said, notes...)
		}
		return strings.Contains(strings.Join(said, "\n"), "drains rack-0 since "), fmt.Sprint(said)
	})
	younger := gpuPod("younger", gangProfile, 4).Obj()
	l.create(t, younger)
	if why, want := l.refused(t, "younger"), "the node is kept for gang default/gone"; !strings.Contains(why, want) {
		t.Errorf("the younger pod says %q, want %q", why, want)
	}
	for _, pod := range gone {
		l.remove(t, pod.Name)
	}
	if node := l.bound(t, "younger").Spec.NodeName; node != "s0-node-0-1" {
		t.Errorf("the younger pod is on %s, want the node that is open again", node)
	}

	waits := gangPods(0, "waits", 2, 8, required)
	l.create(t, waits...)
	l.wantGangRefused(t, waits, "drains rack-")
	var passing []*v1.Pod
	for i := range 8 {
		passing = append(passing, gpuPod(fmt.Sprint("passing-", i), gangProfile, 1).Obj())
	}
	l.create(t, passing...)
	rack := "rack-0"
	if strings.Contains(l.refused(t, waits[0].Name), "rack-1") {
		rack = "rack-1"
	}
	for _, node := range []string{"0", "1"} { // one after the other, so that passing pods have their chance
		l.remove(t, "taker-s0-node-"+strings.TrimPrefix(rack, "rack-")+"-"+node)
	}
	if rack == "rack-0" {
		l.remove(t, "younger")
	}
	for _, pod := range waits {
		if node := l.bound(t, pod.Name).Spec.NodeName; !strings.Contains(node, "-node-"+strings.TrimPrefix(rack, "rack-")) {
			t.Errorf("%s is on %s, want the rack that was drained", pod.Name, node)
		}
	}
}
