// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// No timer wakes the gang: it waited for a second and a tick, however soon the lists had been received.
func TestGangBeforeFirstLists(t *testing.T) {
	t.Parallel()
	var served atomic.Bool
	r := startTestEnv(t, clock.RealClock{}, `{}`, `{}`, func(client *fake.Clientset) {
		client.PrependReactor("list", "leases", func(kubetesting.Action) (bool, runtime.Object, error) {
			if served.Load() {
				return false, nil, nil
			}
			return true, nil, apierrors.NewServiceUnavailable("not yet")
		})
	}, 3)
	pods := r.gang("g", 3, 8, nil)
	r.known(pods[0])
	c := r.cycle(pods[0])
	if c.status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(c.status.Message(), "not read yet") {
		t.Fatalf("before the lists: %v, want to wait for them", c.status)
	}
	key, _ := gangrequest.KeyOf(pods[0])
	before := r.awake.of(key)
	served.Store(true)
	r.ready()
	testkit.Soon(t, "the gang is tried again", func() bool { return r.awake.of(key) > before })
	if c := r.cycle(pods[0]); !c.status.IsWait() {
		t.Errorf("after the lists: %v, want to wait for the others", c.status)
	}
}
