// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestNaps checks the total duration of naps.
func TestNaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, d := range []time.Duration{0, time.Millisecond, 200 * time.Millisecond, 205 * time.Millisecond} {
			begin := time.Now()
			Naps(d)
			if took := time.Since(begin); took != d {
				t.Errorf("naps of %v take %v", d, took)
			}
		}
	})
}
