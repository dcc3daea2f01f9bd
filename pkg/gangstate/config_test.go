// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// TestProfileConfig: profiles have one config.
func TestProfileConfig(t *testing.T) {
	g := New(clocktesting.NewFakePassiveClock(time.Now()))
	for _, c := range []struct {
		config Config
		want   bool
	}{{Config{KeepFreed: time.Minute}, true}, {Config{KeepFreed: time.Minute}, true}, {Config{}, false}} {
		if err := g.Configure(c.config); (err == nil) != c.want {
			t.Errorf("Configure(%+v) gave error %v, want one: %t", c.config, err, !c.want)
		}
	}
}
