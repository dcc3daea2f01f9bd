// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
)

// nominationsEvery is the interval at which nominations are checked for removal, and nominationWithin how
// long after the end of a place the framework may still write one for it.
const (
	nominationsEvery = time.Second
	nominationWithin = time.Minute
)

// nominees holds the members that the framework nominated, because a cycle of theirs ended while places
// were held for their gang. It writes the nomination on the pod, so deleting it from the queue alone would
// not end it. It writes it after the cycle, possibly after the place has ended: so an end is kept for
// nominationWithin.
type nominees struct {
	mu   sync.Mutex
	pods map[types.UID]*nominee
}

type nominee struct {
	pod   *v1.Pod
	lost  bool      // it was found without a place once
	ended time.Time // when its place ended; zero before
}

func newNominees() *nominees { return &nominees{pods: map[types.UID]*nominee{}} }

func (n *nominees) put(pods ...*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pod := range pods {
		n.pods[pod.UID] = &nominee{pod: pod}
	}
}

// take removes and returns those of the pods that are nominated for a place.
func (n *nominees) take(uids ...types.UID) (pods []*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, uid := range uids {
		if x := n.pods[uid]; x != nil && x.ended.IsZero() {
			pods = append(pods, x.pod)
			delete(n.pods, uid)
		}
	}
	return pods
}

// end records that the places of pods have ended. It returns those that were nominated for them.
func (n *nominees) end(now time.Time, uids ...types.UID) (pods []*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, uid := range uids {
		if x := n.pods[uid]; x != nil && x.ended.IsZero() {
			x.ended = now
			pods = append(pods, x.pod)
		}
	}
	return pods
}

// over returns the pods whose places have ended, and drops those for which no write can come any more. A
// pod that is found twice in a row without a place, and whose end was not recorded, is one of them.
func (n *nominees) over(now time.Time, placed func(types.UID) bool) (pods []*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid, x := range n.pods {
		if x.ended.IsZero() {
			lost := !placed(uid)
			if lost && x.lost {
				x.ended = now
			}
			x.lost = lost
		}
		if x.ended.IsZero() {
			continue
		}
		pods = append(pods, x.pod)
		if now.Sub(x.ended) > nominationWithin {
			delete(n.pods, uid)
		}
	}
	return pods
}

// runNominations removes the nominations that outlived their places, until ctx ends.
func (d *doer) runNominations(ctx context.Context, clk clock.WithTicker) {
	ticker := clk.NewTicker(nominationsEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		for _, pod := range d.nominees.over(clk.Now(), d.gangs.HoldsPlace) {
			d.endNomination(pod) //nolint:contextcheck // it has the doer's own
		}
	}
}

// nomination has the framework nominate a member for the place that is held for it until others are gone,
// as its siblings are: otherwise its CPU, memory and ports on that node would be open to other pods. It
// removes a nomination for a place that is no longer held.
func (p *Plugin) nomination(pod *v1.Pod) *fwk.PostFilterResult {
	p.doer.nominees.put(pod) // before the lookup: a later end of the place finds the pod
	node := p.gangs.ClaimedNode(pod.UID)
	if node == "" {
		p.doer.nominees.end(p.shared.Clock().Now(), pod.UID)
		if pod.Status.NominatedNodeName == "" {
			return nil
		}
	}
	return framework.NewPostFilterResultWithNominatedNode(node)
}

// replaceClaim ends the claim of a gang that has a plan now. Its members stay nominated until the plan's
// places are held.
func (p *Plugin) replaceClaim(turn *gangstate.Turn) {
	if turn.Claim == nil {
		return
	}
	uids := make([]types.UID, len(turn.Claim.Places))
	for i := range turn.Claim.Places {
		uids[i] = turn.Claim.Places[i].Pod.UID
	}
	still := p.doer.nominees.take(uids...)
	p.gangs.EndClaim(turn.Gang.Key, "")
	p.doer.nominees.put(still...)
}

// endNomination removes the nomination of a pod, unless the pod is gone or bound. It is tried again while
// the pod is one of nominees.
func (d *doer) endNomination(pod *v1.Pod) {
	now, err := d.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" || now.Status.NominatedNodeName == "" {
		return
	}
	ctx, cancel := d.binder.Bounded(d.ctx)
	defer cancel()
	if d.leader.Check(ctx) != nil {
		return
	}
	if d.gangs.HoldsPlace(pod.UID) {
		return // it has been nominated for another place meanwhile
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": now.ResourceVersion}, // a later nomination stays
		"status":   map[string]any{"nominatedNodeName": nil},
	})
	if err == nil {
		_, err = d.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		klog.FromContext(d.ctx).Error(err, "Taking back the nomination of a gang's member failed", "pod", klog.KObj(pod))
	}
}
