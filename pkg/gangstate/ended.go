// SPDX-License-Identifier: Apache-2.0

package gangstate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/gangrequest"
)

// SetEnded takes note of a pod that succeeded or failed. It counts in its gang as gangrequest
// says, and stays known when SetPod and DeletePod say otherwise: kube-scheduler's informer drops
// such a pod, and may be behind.
func (g *Gangs) SetEnded(pod *v1.Pod) {
	if key, ok := gangrequest.KeyOf(pod); ok {
		g.changeEnded(key, func(pods map[types.UID]*v1.Pod) { pods[pod.UID] = pod })
	}
}

// DeleteEnded takes note of a finished pod that is no longer there.
func (g *Gangs) DeleteEnded(pod *v1.Pod) {
	if key, ok := gangrequest.KeyOf(pod); ok {
		g.changeEnded(key, func(pods map[types.UID]*v1.Pod) { delete(pods, pod.UID) })
	}
}

// changeEnded has the gang read again, if it has other pods.
func (g *Gangs) changeEnded(key gangrequest.Key, change func(map[types.UID]*v1.Pod)) {
	g.do(func() (*gang, effects) {
		pods := g.ended[key]
		if pods == nil {
			pods = map[types.UID]*v1.Pod{}
			g.ended[key] = pods
		}
		change(pods)
		if len(pods) == 0 {
			delete(g.ended, key)
		}
		x := g.gangs[key]
		if x == nil {
			return nil, effects{}
		}
		x.counted = 0
		x.change()
		g.again(x)
		return x, effects{activate: g.next(x)}
	})
}

// endedOf is how many members of a gang ended and count. It needs g.mu.
func (g *Gangs) endedOf(x *gang) int {
	g.readAgain(x)
	return len(x.read.Members.Ended)
}
