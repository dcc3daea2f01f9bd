// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// turnKey is the key of the function that ends the pod's turn. The first of these plugins whose Bind ran
// has waited for the turn.
const turnKey fwk.StateKey = "nvtopo.dev/turn"

// turn ends the turn when it is called.
type turn context.CancelFunc

// Clone returns the same turn.
func (t turn) Clone() fwk.StateData { return t }

// beginBinding waits until one more Binding may be in flight, whichever plugin sends it. The turn ends
// when PostBind or Unreserve is called after the answer. It ends in any case after the time in which the
// API server gives up the request: clients of kube-scheduler have no time limit.
func (p *Plugin) beginBinding(ctx context.Context, state fwk.CycleState, attempt nodestate.Attempt) error {
	if c := ReadCycle(state); c == nil || !c.served() {
		return nil // there is no choice
	}
	if _, err := state.Read(turnKey); err == nil {
		return nil
	}
	end, err := attempt.BeginWrite(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := p.binder.Bounded(ctx)
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
