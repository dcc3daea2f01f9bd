// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"github.com/nvtopo/nvtopo/pkg/gangstate"
)

// drain closes nodes for a gang that has had no room for as long as the argument says, or has it
// tried again when that time is over. The nodes stay the same as long as the gang would fit
// there. The gang's reason says so.
func (p *Plugin) drain(q *gangstate.Question, w *gangstate.Wait) {
	from, own, taken := p.gangs.Starving(q.Turn)
	switch {
	case from.IsZero():
		return
	case p.shared.Clock().Now().Before(from):
		w.Until = from
		return
	}
	if len(own) > 0 && p.planner.RefusedThere(q, own) {
		p.gangs.DrainInVain(q.Turn)
		return
	}
	if len(own) == 0 || !p.planner.StillFits(q, own) {
		choice := *q
		choice.Closed = taken
		nodes, where, err := p.planner.Drained(&choice)
		if err != nil {
			p.gangs.NoDrain(q.Turn)
			return
		}
		p.gangs.Drain(q.Turn, nodes, where)
	}
	if text := p.gangs.Draining(q.Turn); text != "" {
		w.Why += "; " + text
	}
}
