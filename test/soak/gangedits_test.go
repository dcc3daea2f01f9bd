// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"encoding/json"
	"maps"
	"math/rand/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/faults"
)

// editGang edits the PodGroup of an existing gang, whether its members wait or run.
func (e *testEnv) editGang(ctx context.Context, g *gang, edit *gangEdit) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.want.Group || g.over {
		return false, nil
	}
	return true, e.editGroup(ctx, g, edit)
}

// editGroup changes the minimum, the wishes and the timeout of a PodGroup. Members placed by the old ones
// may stay, possibly only some of a gang that was being bound. It needs g.mu.
func (e *testEnv) editGroup(ctx context.Context, g *gang, edit *gangEdit) error {
	notes := map[string]any{}
	for i := range gangWishes {
		for key := range gangWishes[i].notes {
			notes[key] = nil
		}
	}
	for key, value := range gangWishes[edit.Wish].notes {
		notes[key] = value
	}
	spec := map[string]any{"minMember": edit.Minimum, "scheduleTimeoutSeconds": nil}
	if edit.Timeout > 0 {
		spec["scheduleTimeoutSeconds"] = edit.Timeout
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": notes}, "spec": spec})
	if err != nil {
		return err
	}
	// The edit may succeed even if the response is lost.
	g.cut = "an edit of its PodGroup"
	e.past.asks(g.owner.UID, edit.Minimum)
	err = e.try(ctx, "edit PodGroup "+g.name, func(ctx context.Context) error {
		_, err := e.dyn.Resource(groupResource).Namespace(namespace).Patch(ctx, g.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "soak-edit"})
		return gone(err)
	})
	if err == nil {
		g.want.Minimum, g.want.Wish = edit.Minimum, edit.Wish
	}
	return err
}

// recreateGang deletes a gang and creates another one under its name: after the pods of the old one are
// deleted, or by force with names of pods reused, or, if both are gangs of annotations, pod by pod, so
// that there is always one.
func (e *testEnv) recreateGang(ctx context.Context, old *gang, o *op) error {
	next := &gang{name: old.name, want: o.Gang, lives: map[int]int{}, cut: "an earlier gang of its name"}
	defer e.count("gangs made again under their name", 1)
	old.mu.Lock()
	mixed := !old.want.Group && !next.want.Group && o.Draw%2 == 0
	forced := o.Draw/2%2 == 0
	if mixed || !forced {
		maps.Copy(next.lives, old.lives)
	}
	old.mu.Unlock()
	if mixed {
		return e.replaceGang(ctx, old, next, o.Draw)
	}
	grace := int64(graceSeconds)
	if forced {
		grace = 0
	}
	if err := e.deleteGang(ctx, old, grace); err != nil {
		return err
	}
	e.gangs.set(next)
	return e.createGang(ctx, next, o)
}

// replaceGang creates the pods of a gang while those of the gang of its name are deleted.
func (e *testEnv) replaceGang(ctx context.Context, old, next *gang, draw uint64) error {
	old.mu.Lock()
	defer old.mu.Unlock()
	next.mu.Lock()
	defer next.mu.Unlock()
	old.over = true
	e.gangs.set(next)
	pods, err := e.members(ctx, old)
	if err != nil {
		return err
	}
	if err := e.deleteObjects(ctx, old); err != nil {
		return err
	}
	if err := e.makeOwner(ctx, next); err != nil {
		return err
	}
	// The scheduler may take the pods of both for one gang.
	e.past.mix(next.owner.UID)
	e.count("gangs that took a name over pod by pod", 1)
	for i, index := range rand.New(rand.NewPCG(draw, 0)).Perm(next.want.Members) {
		if err := e.makeMember(ctx, next, index); err != nil {
			return err
		}
		if i < len(pods) {
			if err := e.remove(ctx, &pods[i], graceSeconds); err != nil {
				return err
			}
		}
	}
	for i := min(next.want.Members, len(pods)); i < len(pods); i++ {
		if err := e.remove(ctx, &pods[i], graceSeconds); err != nil {
			return err
		}
	}
	return nil
}

// groupFaults are the faults in which every write of a PodGroup appears to fail to the scheduler.
var groupFaults = []faults.Kind{
	faults.Conflict, faults.Internal, faults.Refused, faults.ConflictAfter, faults.InternalAfter, faults.Lost,
}

// failGroups makes all of the schedulers' writes of PodGroups fail for a while.
func (e *testEnv) failGroups(ctx context.Context, o *op) {
	kind := groupFaults[o.Draw%uint64(len(groupFaults))]
	e.mark("all writes of PodGroups fail: %s", kind)
	e.setGroupFaults([]faults.Rule{{Kind: kind, On: faults.Writes, Share: 1, Only: []string{groupResource.Resource}}})
	e.lapse(ctx, o.Lag)
	e.setGroupFaults(nil)
	e.mark("writes of PodGroups succeed again")
}

func (e *testEnv) setGroupFaults(rules []faults.Rule) {
	e.mu.Lock()
	e.groupFaults = rules
	e.mu.Unlock()
	e.setFaults()
}
