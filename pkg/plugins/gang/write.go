// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/gangstate"
)

// Commit keeps the entries of all members, writes that the gang is not whole, and lets the
// members through. Only a gang that says so may be rolled back, so this is written for its
// first members and for nobody who comes later. It does not queue for a write: the members
// wait for it, with all that they hold.
func (d *doer) Commit(c *gangstate.Commit) {
	d.state.KeepPlanned(c.Members...)
	go func() {
		var err error
		if c.Group != nil && c.Fresh {
			err = d.annotate(c, map[string]string{gangrequest.StateKey: stateOf(c, false)})
		}
		d.gangs.Written(c, err)
	}()
}

// Whole writes that all members of an attempt are bound, and where they are.
func (d *doer) Whole(c *gangstate.Commit) {
	go func() {
		end, err := d.state.BeginWrite(d.ctx)
		if err != nil {
			return // the process ends
		}
		defer end()
		notes, err := d.wholeNotes(c)
		if err == nil {
			err = d.annotate(c, notes)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			klog.FromContext(d.ctx).Error(err, "Writing where a gang is failed", "gang", c.Key.String())
		}
	}()
}

func stateOf(c *gangstate.Commit, whole bool) string {
	before, _ := gangrequest.StateOf(c.Group)
	attempt := before.Attempt
	if c.Fresh || attempt == 0 {
		attempt++
	}
	return gangrequest.State{Attempt: attempt, Whole: whole}.Encode()
}

func (d *doer) wholeNotes(c *gangstate.Commit) (map[string]string, error) {
	placement, err := c.Answer.Placement(d.state.Node).Encode()
	if err != nil {
		return nil, fmt.Errorf("gang %s: %w", c.Key, err)
	}
	notes := map[string]string{gangrequest.PlacementKey: placement}
	if nodes := gangrequest.FormatNodes(c.Answer.Nodes()); nodes != "" {
		notes[gangrequest.NodesKey] = nodes
	}
	if c.Group != nil {
		notes[gangrequest.StateKey] = stateOf(c, true)
	}
	return notes, nil
}

// annotate writes annotations on the PodGroup, or for a gang without one on the pod of the
// first rank.
func (d *doer) annotate(c *gangstate.Commit, notes map[string]string) error {
	ctx, cancel := d.state.Bounded(d.ctx)
	defer cancel()
	if err := d.state.Leads(ctx); err != nil {
		return err
	}
	if c.Group != nil {
		body, err := notesBody(c.Group.UID, notes)
		if err != nil {
			return err
		}
		groups, err := d.groups()
		if err != nil {
			return err
		}
		_, err = groups.SchedulingV1alpha1().PodGroups(c.Group.Namespace).Patch(ctx, c.Group.Name, types.MergePatchType, body, metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("annotating %s: %w", c.Key, err)
		}
		return nil
	}
	pod := c.Answer.Ranked[0]
	body, err := notesBody(pod.UID, notes)
	if err != nil {
		return err
	}
	if _, err := d.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("annotating pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// notesBody contains the UID, so that a new object with the same name is refused.
func notesBody(uid types.UID, notes map[string]string) ([]byte, error) {
	var body struct {
		Metadata struct {
			UID         types.UID         `json:"uid"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	body.Metadata.UID, body.Metadata.Annotations = uid, notes
	return json.Marshal(body)
}
