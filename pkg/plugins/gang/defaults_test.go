// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"testing"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestScheduleTimeoutDefault: nvtopo check, which reads no arguments of the scheduler, uses the
// scheduler's default for gangs. It used half of that.
func TestScheduleTimeoutDefault(t *testing.T) {
	t.Parallel()
	var args config.GangPlacementArgs
	config.SetDefaults_GangPlacementArgs(&args)
	if got := args.ScheduleTimeout.Duration; got != gangrequest.DefaultScheduleTimeout {
		t.Errorf("the scheduler's default of scheduleTimeout is %v, that of others %v", got, gangrequest.DefaultScheduleTimeout)
	}
}
