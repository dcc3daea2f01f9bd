// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"strings"
	"testing"
	"time"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/lifecycle"
)

// TestProfileConfig: profiles have one config.
func TestProfileConfig(t *testing.T) {
	p := &Process{}
	for _, c := range []struct {
		config gangstate.Config
		want   bool
	}{{gangstate.Config{DrainAfter: time.Minute}, true}, {gangstate.Config{DrainAfter: time.Minute}, true}, {gangstate.Config{}, false}} {
		if err := p.configure(&c.config); (err == nil) != c.want {
			t.Errorf("configure(%+v) gave error %v, want one: %t", c.config, err, !c.want)
		}
	}
}

// named is a profile's handle of which only the name is used.
type named struct{ fwk.Handle }

func (named) ProfileName() string { return "alone" }

// TestProfileWithoutDevices: the scheduler does not start if no profile with gangs has a plugin that knows
// the nodes' devices.
func TestProfileWithoutDevices(t *testing.T) {
	p := &Plugin{Process: NewProcess(lifecycle.NewShared(clock.RealClock{})), handle: named{}}
	_, err := p.EventsToRegister(t.Context())
	if err == nil || !strings.Contains(err.Error(), "profile alone: GangPlacement places pods by what TopologyAware or NUMAAffinity knows") {
		t.Errorf("got %v", err)
	}
}
