// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

// drain begins or continues a node hold for a gang that has had no room for as long as the argument
// allows, or has it tried again at that time. The hold stays on the same nodes as long as the gang would
// fit on them. The gang's reason states it, or why nothing is kept.
func (p *Plugin) drain(q *gangstate.Question, w *gangstate.Wait) {
	say := func(text string) {
		if text != "" {
			w.Why += "; " + text
		}
	}
	s := p.gangs.Starving(q.Turn)
	if s.From.IsZero() || p.shared.Clock().Now().Before(s.From) {
		w.Until = s.From
		say(s.Why)
		return
	}
	if len(s.Own) > 0 && p.planner.RefusedThere(q, s.Own) {
		p.gangs.DrainInVain(q.Turn)
		return
	}
	choice := *q
	choice.Closed = s.Closed
	need, err := p.planner.Need(&choice, s.Own)
	if err != nil {
		p.gangs.NoDrain(q.Turn)
		return
	}
	say(p.gangs.Drain(q.Turn, need))
}
