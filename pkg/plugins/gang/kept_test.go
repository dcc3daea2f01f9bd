// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// TestKeptDevices: the devices of a member that died are kept. It has a member with four GPUs of a
// node die. Others may use the four beside them, and all once the replacement has a place.
func TestKeptDevices(t *testing.T) {
	t.Parallel()
	r := newTestEnvWith(t, `{"keepFreed": "10m"}`, 2)
	for i, gpus := range []int{1, 4} {
		r.place(r.create(member("runs", 2, i, gpus).Node(fmt.Sprintf("node-0-%d", i)).Obj()))
	}
	younger := func(name string, gpus int) *schedtest.PodWrapper {
		return gpuPod(name, gpus).Created(time.Now().Add(time.Hour))
	}
	if err := r.client.CoreV1().Pods("default").Delete(t.Context(), "runs-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.leave()
	testkit.Soon(t, "the place is kept", func() bool { return len(r.state.Closed().Kept()["node-0-1"]) == 1 })

	both := []string{"node-0-0", "node-0-1"}
	r.wantNodes("a pod that fits beside it", younger("beside", 4).Obj(), both, "")
	r.wantNodes("one with more GPUs", younger("more", 5).Obj(), both[:1], "nvidia.com/gpu of the node is kept for gang default/runs")
	r.wantNodes("one of higher priority", younger("important", 5).Priority(1).Obj(), both, "")
	r.wantNodes("an older one", gpuPod("older", 5).Obj(), both, "")
	r.wantNodes("one with more GPUs that wants to be near", younger("near", 5).Annotation(gangrequest.NearKey, "runs").Obj(), both[:1],
		"kept for gang default/runs")

	other := r.create(member("other", 1, 0, 8).Created(time.Now()).Obj())
	r.known(other)
	if c := r.cycle(other); c.node != "" {
		t.Errorf("another gang is planned on %s", c.node)
	}
	r.place(r.create(member("runs", 2, 1, 4).UID("runs-1-again").Node("node-0-0").Obj()))
	testkit.Soon(t, "nothing is kept", func() bool { return !r.state.Closed().Any() })
	testkit.Soon(t, "the other gang is planned there", func() bool { return r.cycle(other).node == "node-0-1" })
}
