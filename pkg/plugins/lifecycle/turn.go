// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/nodestate"
)

// turnKey is where the function is kept that ends the pod's turn. The first of our plugins
// whose Bind ran has waited for it.
const turnKey fwk.StateKey = "nvtopo.dev/turn"

// turn is ended by a call of it.
type turn context.CancelFunc

// Clone returns the same turn.
func (t turn) Clone() fwk.StateData { return t }

// beginBinding waits until one more Binding may be under way, whoever sends it. The turn
// ends with the answer, of which PostBind and Unreserve hear, and in any case when the
// API server has given the request up: clients of kube-scheduler wait for ever.
func (p *Plugin) beginBinding(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) error {
	if c := nodestate.ReadCycle(state); c == nil || c.FilteredBy == "" {
		return nil // of no concern to any of our plugins, and no choice's
	}
	if _, err := state.Read(turnKey); err == nil {
		return nil
	}
	end, err := p.state.BeginWrite(ctx, pod.UID, nodeName)
	if err != nil {
		return err
	}
	ctx, cancel := p.state.Bounded(ctx)
	context.AfterFunc(ctx, end)
	state.Write(turnKey, turn(cancel))
	return nil
}

// endBinding ends the pod's turn, if it has one.
func endBinding(state fwk.CycleState) {
	d, err := state.Read(turnKey)
	if err != nil {
		return
	}
	if end, ok := d.(turn); ok {
		end()
	}
	state.Delete(turnKey)
}
