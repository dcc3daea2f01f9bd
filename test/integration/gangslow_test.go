// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/faults"
	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestGangBesideLargeGang creates the last member of a gang of 200 while one of 2,000 is being bound,
// through an API server that takes 20 ms for each write. Neither ends late: both are bound by their first
// attempts.
func TestGangBesideLargeGang(t *testing.T) {
	const (
		large, small           = 2000, 200
		spines, racks, perRack = 5, 11, 5 // 275 nodes of eight GPUs
		perWrite               = 20 * time.Millisecond
	)
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	free := make(freeRacks, spines)
	for spine := range free {
		for range racks {
			free[spine] = append(free[spine], []int{8, 8, 8, 8, 8}[:perRack])
		}
	}
	l.makeRacks(t, 0, &scenario{free: free})
	proxy, err := l.StartProxy(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Errorf("close the proxy: %v", err)
		}
	})
	proxy.Set([]faults.Rule{{Kind: faults.Slow, On: faults.Writes, Share: 1, AtLeast: perWrite, AtMost: perWrite}})
	scheduler := l.startSchedulerBehind(t, proxy)
	first, second := gangPods(0, "large", large, 1, nil), gangPods(0, "small", small, 1, nil)
	l.createAll(t, first[:large-1])
	l.createAll(t, second[:small-1])
	begins := l.awaitFirstBound(t)
	began := time.Now()
	l.create(t, first[large-1])
	<-begins
	firstBound := time.Since(began)
	came := time.Now()
	l.create(t, second[small-1])
	if n := l.countBound(t, first); n == large {
		t.Errorf("all %d members of the large gang were bound before the last of the small one came: the test shows nothing", n)
	}
	bound := func(pods []*v1.Pod) {
		t.Helper()
		for _, pod := range pods {
			l.bound(t, pod.Name)
		}
	}
	bound(second)
	tookSmall, beside := time.Since(came), l.countBound(t, first)
	bound(first)
	tookLarge := time.Since(began)
	t.Logf("expected: both are bound; got: of the gang of %d the first member after %d ms and the last after %d ms; the gang of %d in %d ms after its last member came, when %d of the other were bound; %d writes took %v longer",
		large, firstBound.Milliseconds(), tookLarge.Milliseconds(), small, tookSmall.Milliseconds(), beside, proxy.Counts()[faults.Slow], perWrite)
	testkit.Soon(t, "both attempts are over", func() bool {
		return l.scrape(t, scheduler).sum("scheduler_nvtopo_gang_attempts_total", `result="placed"`) == 2
	})
	got := l.scrape(t, scheduler)
	for _, result := range []string{"late", "failed", "partial", "ended", "added"} {
		if n := got.sum("scheduler_nvtopo_gang_attempts_total", `result="`+result+`"`); n != 0 {
			t.Errorf("%.0f attempts ended as %q, want none", n, result)
		}
	}
	if n := got.sum("scheduler_nvtopo_gang_rollbacks_total"); n != 0 {
		t.Errorf("%.0f gangs were rolled back", n)
	}
}

// awaitFirstBound returns a channel that is closed once some pod is bound.
func (e *testEnv) awaitFirstBound(t *testing.T) <-chan struct{} {
	t.Helper()
	w, err := e.client.CoreV1().Pods(metav1.NamespaceDefault).Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermNotEqualSelector("spec.nodeName", "").String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		<-w.ResultChan()
	}()
	return seen
}
