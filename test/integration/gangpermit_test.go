// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/faults"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestGangYieldAtPermit checks that a gang at Permit yields to one of a higher priority. The write for
// which all members of a gang wait at Permit is held back. The other gang takes their places, and no pod
// is evicted.
func TestGangYieldAtPermit(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	l.priorities(t, map[string]int32{"of-5": 5, "of-10": 10, "of-20": 20})
	groups := l.definePodGroups(t)
	l.makeRacks(t, 0, &scenario{free: freeRacks{{{8, 8, 8, 8}}}})
	proxy := l.holdGroupWrites(t)
	l.startSchedulerBehind(t, proxy)

	low := groupPods("low", 4)
	for _, pod := range low {
		pod.Spec.PriorityClassName = "of-10"
	}
	makeGroup(t, groups, "low", 4, nil)
	l.create(t, low...)
	testkit.Eventually(t, waitLimit, "the write before the members are let through is held back", func(context.Context) (bool, string) {
		return proxy.Counts()[faults.Slow] > 0, fmt.Sprint(proxy.Counts())
	})
	high := gangPods(0, "high", 4, 8, nil)
	for _, pod := range high {
		pod.Spec.PriorityClassName = "of-20"
		l.create(t, pod)
	}
	owners := map[string]string{}
	for _, pod := range high {
		node := l.bound(t, pod.Name).Spec.NodeName
		if other, ok := owners[node]; ok {
			testkit.Violation(t, "%s and %s are both on %s", other, pod.Name, node)
		}
		owners[node] = pod.Name
	}
	for _, pod := range low {
		if got := l.get(t, pod.Name); got.Spec.NodeName != "" || got.DeletionTimestamp != nil {
			t.Errorf("pod %s is on %q, deleted at %v; want it to wait", got.Name, got.Spec.NodeName, got.DeletionTimestamp)
		}
	}
	// One of the four is enough: if the event of a member's next cycle overtakes this one, client-go takes
	// both for the same and keeps the text of the first.
	l.wantEventOfAny(t, []string{"low-0", "low-1", "low-2", "low-3"}, "FailedScheduling", "its places are taken by gang default/high, which has a higher priority")
	l.wantGangRefused(t, low, " of 4")

	proxy.Set(nil)
	for _, pod := range high {
		l.drop(t, pod.Name)
	}
	for _, pod := range low {
		l.bound(t, pod.Name)
	}
	testkit.Eventually(t, waitLimit, "PodGroup low is whole", func(ctx context.Context) (bool, string) {
		group, err := groups.Get(ctx, "low", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(fmt.Sprint(group.Annotations), `"whole":true`), fmt.Sprint(group.Annotations)
	})
}

// holdGroupWrites returns a proxy that lets no write of a PodGroup through.
func (e *testEnv) holdGroupWrites(t *testing.T) *faults.Proxy {
	t.Helper()
	proxy, err := e.StartProxy(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
	})
	const forEver = 1000 * time.Hour // a share of it, in fact
	proxy.Set([]faults.Rule{{
		Kind: faults.Slow, On: faults.Writes, Share: 1, AtMost: forEver,
		Without: []string{"pods", "events", "leases", "subjectaccessreviews", "tokenreviews"},
	}})
	return proxy
}

// startSchedulerBehind starts the scheduler behind a proxy. It gives up a write later than an attempt of
// a gang, so that the attempt ends first.
func (e *testEnv) startSchedulerBehind(t *testing.T, proxy *faults.Proxy) *devcluster.Scheduler {
	t.Helper()
	config := schedulerConfig(profile{name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}})
	config = bytes.ReplaceAll(config, fmt.Appendf(nil, "requestTimeout: %s", requestTimeout), []byte("requestTimeout: 15s"))
	s, err := e.StartScheduler(t.Context(), devcluster.SchedulerOptions{
		Binary: testkit.Program(t, "nvtopo-scheduler"), Config: config, ServiceAccount: e.schedulerAccount, Server: proxy.URL(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
