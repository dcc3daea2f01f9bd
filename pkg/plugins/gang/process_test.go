// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"testing"
	"time"

	"github.com/nvtopo/nvtopo/pkg/gangstate"
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
