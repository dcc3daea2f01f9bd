// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"encoding/json"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/gangstate"
)

// nominees are the members that the framework nominated, because a cycle of theirs ended while places were held
// for their gang. It writes that on the pod, so what we say to the queue alone would not end it.
type nominees struct {
	mu   sync.Mutex
	pods map[types.UID]*v1.Pod
}

func newNominees() *nominees { return &nominees{pods: map[types.UID]*v1.Pod{}} }

func (n *nominees) put(pods ...*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pod := range pods {
		n.pods[pod.UID] = pod
	}
}

// take returns those of the pods that are nominated, and forgets them.
func (n *nominees) take(uids ...types.UID) (pods []*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, uid := range uids {
		if pod := n.pods[uid]; pod != nil {
			pods = append(pods, pod)
			delete(n.pods, uid)
		}
	}
	return pods
}

// nomination has the framework nominate a member for the place that is held for it until others are gone, as its
// siblings are: otherwise its CPU, memory and ports there would be open to other pods. It takes back a
// nomination for a place that is not held any more.
func (p *Plugin) nomination(pod *v1.Pod) *fwk.PostFilterResult {
	node := p.gangs.ClaimedNode(pod.UID)
	switch {
	case node != "":
		p.doer.nominees.put(pod)
	case pod.Status.NominatedNodeName == "":
		return nil
	}
	return framework.NewPostFilterResultWithNominatedNode(node)
}

// replaceClaim ends what is held for a gang that has a plan now. Its members stay nominated until the plan's
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

// endNomination takes a nomination off a pod, unless it is gone or bound.
func (d *doer) endNomination(pod *v1.Pod) {
	now, err := d.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).Get(pod.Name)
	if err != nil || now.UID != pod.UID || now.Spec.NodeName != "" {
		return
	}
	ctx, cancel := d.state.Bounded(d.ctx)
	defer cancel()
	if d.state.Leads(ctx) != nil {
		return
	}
	if d.gangs.ClaimedNode(pod.UID) != "" {
		return // it has another place meanwhile, and is nominated for that
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"nominatedNodeName": nil},
	})
	if err == nil {
		_, err = d.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		klog.FromContext(d.ctx).Error(err, "Taking back the nomination of a gang's member failed", "pod", klog.KObj(pod))
	}
}
