// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/gangstate"
)

// Commit keeps the entries of all members, writes that the gang is not whole, and lets the
// members through. Only a gang that says so may be rolled back, so this is written for its
// first members and for nobody who comes later.
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
		groups, err := groupsClient(d.handle.KubeConfig())
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

// reasonWaiting is the reason of the event on a gang that does not go on.
const reasonWaiting = "GangWaiting"

// Say writes the reason to every member: autoscalers count pods that say that they are
// unschedulable. One event is enough for people.
func (d *doer) Say(key gangrequest.Key, pods []*v1.Pod, why string) {
	go func() {
		if d.state.Leads(d.ctx) != nil {
			return // the leader says it
		}
		d.handle.EventRecorder().Eventf(pods[0], nil, v1.EventTypeWarning, reasonWaiting, "Scheduling", "%s", why)
		for _, pod := range pods {
			err := d.say(d.ctx, pod, why)
			if apierrors.IsConflict(err) {
				continue // the pod has changed: it may be bound
			}
			if err != nil && !apierrors.IsNotFound(err) {
				klog.FromContext(d.ctx).Error(err, "Telling a gang why it waits failed", "gang", key.String(), "pod", klog.KObj(pod))
				return
			}
		}
	}()
}

func (d *doer) say(ctx context.Context, pod *v1.Pod, why string) error {
	ctx, cancel := d.state.Bounded(ctx)
	defer cancel()
	var body struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"` // nothing is said of a pod that was bound meanwhile
		} `json:"metadata"`
		Status struct {
			Conditions []v1.PodCondition `json:"conditions"`
		} `json:"status"`
	}
	body.Metadata.UID, body.Metadata.ResourceVersion = pod.UID, pod.ResourceVersion
	body.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: why,
		LastTransitionTime: metav1.NewTime(d.clock.Now()),
	}}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_, err = d.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{}, "status")
	return err
}
