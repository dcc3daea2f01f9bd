// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"context"

	fwk "k8s.io/kube-scheduler/framework"
)

// EventsToRegister lists the events that can make a waiting pod fit.
func (p *Plugin) EventsToRegister(ctx context.Context) ([]fwk.ClusterEventWithHint, error) {
	if err := p.CheckPostFilterOrder(p.narrowing.Limit > 0); err != nil {
		return nil, err
	}
	if err := p.CheckScoreWeight(); err != nil {
		return nil, err
	}
	return p.Plugin.EventsToRegister(ctx)
}
