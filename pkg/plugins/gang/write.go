// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"encoding/json"
	"fmt"
	"maps"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

// Commit keeps the assumed allocations of all members, writes that the gang is not whole, and lets the
// members through. Only a gang with that state may be rolled back, so it is written for its first members
// and not for later ones. It does not queue for a write: the members wait for it, with all that they hold.
func (d *doer) Commit(c *gangstate.Commit) {
	d.plans.KeepPlanned(c.Members...)
	d.nominees.take(c.Members...) // they are about to be bound, so they are no longer nominated
	go func() {
		var err error
		if c.Group != nil && c.Fresh {
			err = d.annotateGroup(c.Group, func(now *schedulingv1alpha1.PodGroup) (map[string]string, error) {
				before, _ := gangrequest.StateOf(now)
				c.Attempt = before.Attempt + 1
				return stateNotes(gangrequest.State{Attempt: c.Attempt}), nil
			})
		}
		d.gangs.Written(c, err)
	}()
}

// Whole writes that all members of an attempt are bound, and their placement. On a PodGroup that keeps the
// members from a roll-back, so it does not wait for its turn among others.
func (d *doer) Whole(c *gangstate.Commit) {
	if c.Group == nil {
		d.placements.put(c)
		return
	}
	go d.writeWhole(c)
}

func (d *doer) whole(c *gangstate.Commit) error {
	placement, err := c.Answer.Placement(d.nodes.Node).Encode()
	if err != nil {
		return fmt.Errorf("gang %s: %w", c.Key, err)
	}
	notes := map[string]string{gangrequest.PlacementKey: placement}
	if nodes := gangrequest.FormatNodes(c.Answer.Nodes()); nodes != "" {
		notes[gangrequest.NodesKey] = nodes
	}
	if c.Group == nil {
		return d.annotatePod(c.Answer.Ranked[0], notes)
	}
	return d.annotateGroup(c.Group, func(now *schedulingv1alpha1.PodGroup) (map[string]string, error) {
		if overtaken(c, now) {
			return nil, nil
		}
		maps.Copy(notes, wholeNotes(now))
		return notes, nil
	})
}

// overtaken reports whether another attempt of the gang has begun since. The write was queued, and must
// not mark that attempt whole.
func overtaken(c *gangstate.Commit, now *schedulingv1alpha1.PodGroup) bool {
	state, known := gangrequest.StateOf(now)
	return c.Attempt != 0 && known && state.Attempt != c.Attempt
}

// wholeNotes returns the annotation by which the present attempt of a PodGroup is whole.
func wholeNotes(now *schedulingv1alpha1.PodGroup) map[string]string {
	before, _ := gangrequest.StateOf(now)
	return stateNotes(gangrequest.State{Attempt: max(1, before.Attempt), Whole: true})
}

func stateNotes(s gangrequest.State) map[string]string {
	return map[string]string{gangrequest.StateKey: s.Encode()}
}

// annotatePod writes annotations on a pod: that of the first rank of a gang without a PodGroup.
func (d *doer) annotatePod(pod *v1.Pod, notes map[string]string) error {
	ctx, cancel := d.binder.Bounded(d.ctx)
	defer cancel()
	if err := d.leader.Check(ctx); err != nil {
		return err
	}
	body, err := notesBody(pod.UID, "", notes)
	if err != nil {
		return err
	}
	if _, err := d.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("annotating pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// annotateGroup writes annotations on the present version of a PodGroup. The write contains the version
// that was read: one that got no answer and arrives late must not undo a later one, since members are
// evicted by the state on the group.
func (d *doer) annotateGroup(group *schedulingv1alpha1.PodGroup, notes func(now *schedulingv1alpha1.PodGroup) (map[string]string, error)) error {
	ctx, cancel := d.binder.Bounded(d.ctx)
	defer cancel()
	client, err := d.groups()
	if err != nil {
		return err
	}
	groups := client.SchedulingV1alpha1().PodGroups(group.Namespace)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := groups.Get(ctx, group.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.UID != group.UID {
			return fmt.Errorf("it was made anew: %w", apierrors.NewNotFound(schedulingv1alpha1.Resource(groupResource), group.Name))
		}
		write, err := notes(now)
		if err != nil || len(write) == 0 {
			return err
		}
		body, err := notesBody(now.UID, now.ResourceVersion, write)
		if err != nil {
			return err
		}
		if err := d.leader.Check(ctx); err != nil {
			return err
		}
		_, err = groups.Patch(ctx, group.Name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("annotating PodGroup %s/%s: %w", group.Namespace, group.Name, err)
	}
	return nil
}

// notesBody returns a patch with the UID, so that a new object with the same name is refused, and the
// version for which the write is meant; any if empty.
func notesBody(uid types.UID, version string, notes map[string]string) ([]byte, error) {
	var body struct {
		Metadata struct {
			UID             types.UID         `json:"uid"`
			ResourceVersion string            `json:"resourceVersion,omitempty"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	body.Metadata.UID, body.Metadata.ResourceVersion, body.Metadata.Annotations = uid, version, notes
	return json.Marshal(body)
}
