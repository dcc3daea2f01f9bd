// SPDX-License-Identifier: Apache-2.0

package numa

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/apis/config"
	"github.com/nvtopo/nvtopo/pkg/nodestate"
	"github.com/nvtopo/nvtopo/pkg/plugins/lifecycle"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = config.NUMAAffinityName

// Plugin is NUMAAffinity.
type Plugin struct {
	*lifecycle.Plugin
	sameNUMABonus, crossNUMAPenalty int64
}

var (
	_ fwk.PreFilterPlugin   = &Plugin{}
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.PreScorePlugin    = &Plugin{}
	_ fwk.ScorePlugin       = &Plugin{}
	_ fwk.ReservePlugin     = &Plugin{}
	_ fwk.PreBindPlugin     = &Plugin{}
	_ fwk.BindPlugin        = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// cares takes pods with GPUs and pods without that ask for NUMA alignment.
func cares(r *nodestate.Request) bool { return r.HasGPUs() || r.HasNUMAPolicy() }
