// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	"errors"
	"fmt"

	"github.com/nvtopo/nvtopo/pkg/placement/clustertopology"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/fabricview"
)

// wishesIn returns the topology request of a gang with the fabric's level names. If the fabric lacks one
// of the levels, the error describes the remedy.
func wishesIn(g *gangrequest.Gang, view *fabricview.View) (gangrequest.Wishes, error) {
	var levels []gangrequest.Level
	for _, wish := range []string{g.Wishes.Required, g.Wishes.Preferred, g.Wishes.SegmentLevel, g.Wishes.SpreadOver} {
		if depth, ok := view.DepthOf(wish); ok {
			levels = append(levels, gangrequest.Level{Name: view.Tree.LevelName(depth), NodeLabel: wish})
		}
	}
	w, err := g.WishesIn(levels)
	var unknown *gangrequest.UnknownLevelError
	if errors.As(err, &unknown) {
		return w, fmt.Errorf("%w; %s", err, clustertopology.MissingLevel(view.Tree, unknown.Level))
	}
	return w, err
}

// LacksLabels returns a message if nodes lack the labels of the levels that a gang requires, with the
// program that writes them; empty if none is lacking.
func LacksLabels(g *gangrequest.Gang, view *fabricview.View) string {
	required := []string{g.Wishes.Required}
	if g.Wishes.SegmentRequired {
		required = append(required, g.Wishes.SegmentLevel)
	}
	for _, wish := range required {
		depth, ok := view.DepthOf(wish)
		if !ok {
			continue
		}
		if why := clustertopology.MissingLabels(view.Tree, depth, view.LabelOf(depth)); why != "" {
			return why
		}
	}
	return ""
}

// levelFault returns the fault in the levels that a gang requests; empty if there is none, or if the
// fabric is not read yet.
func levelFault(read *gangrequest.Gang, view *fabricview.View) string {
	if view == nil || view.Tree.Len() == 0 {
		return ""
	}
	if _, err := wishesIn(read, view); err != nil {
		return err.Error()
	}
	return LacksLabels(read, view)
}

// levelCheck is the result of levelFault for a gang as read, in one fabric.
type levelCheck struct {
	read *gangrequest.Gang
	view *fabricview.View
	why  string
}
