// SPDX-License-Identifier: Apache-2.0

package gang

import (
	"context"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/scheduler/gangstate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate/leader"
)

// doer carries out gangstate's decisions, in the framework and at the API server.
type doer struct {
	ctx    context.Context //nolint:containedctx // of the process: what is begun outlives the cycle that began it
	handle fwk.Handle
	clock  clock.PassiveClock
	nodes  *nodestate.NodeCache
	binder *nodestate.Binder
	leader *leader.Leader
	plans  *nodestate.GangReserver
	gangs  *gangstate.Gangs // whose effects these are; set before the first
	// groups is one client for all writes of PodGroups, so that they have one limit together.
	groups     func() (versioned.Interface, error)
	sayings    *sayings
	placements *placements
	nominees   *nominees
}

func newDoer(ctx context.Context, h fwk.Handle, clk clock.PassiveClock, state *nodestate.State) *doer {
	return &doer{
		ctx: ctx, handle: h, clock: clk, sayings: newSayings(), placements: newPlacements(), nominees: newNominees(),
		nodes: state.Nodes, binder: state.Binder, leader: state.Leader, plans: state.GangReserver,
		groups: sync.OnceValues(func() (versioned.Interface, error) { return groupsClient(h.KubeConfig()) }),
	}
}

var _ gangstate.Doer = &doer{}

// Release removes the nominations of pods, also of deleted ones: the queue may have seen the end of a pod
// before hold nominated it. The queue finds a nomination by the pod's UID, and lists it by name: as that
// of the pod's successor.
func (d *doer) Release(uids []types.UID) {
	for _, uid := range uids {
		d.handle.DeleteNominatedPodIfExists(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
	}
	for _, pod := range d.nominees.end(d.clock.Now(), uids...) {
		go d.endNomination(pod)
	}
	d.plans.EndPlanned(uids...)
}

func (d *doer) Reject(uids []types.UID, why string) {
	for _, uid := range uids {
		if w := d.handle.GetWaitingPod(uid); w != nil {
			w.Reject(Name, why)
		}
	}
}

func (d *doer) Activate(pods []*v1.Pod) {
	byName := make(map[string]*v1.Pod, len(pods))
	for _, pod := range pods {
		byName[pod.Namespace+"/"+pod.Name] = pod
	}
	d.handle.Activate(klog.FromContext(d.ctx), byName)
}

const (
	// allowEvery and allowWithin are the poll interval and timeout for a pod to become a waiting pod, which
	// it does only after its Permit has returned; for the last member that is in a moment.
	allowEvery  = time.Millisecond
	allowWithin = time.Second
)

func (d *doer) Allow(uids []types.UID) {
	ctx, cancel := context.WithTimeout(d.ctx, allowWithin)
	defer cancel()
	ticker := time.NewTicker(allowEvery)
	defer ticker.Stop()
	for {
		uids = slices.DeleteFunc(slices.Clone(uids), func(uid types.UID) bool {
			w := d.handle.GetWaitingPod(uid)
			if w != nil {
				w.Allow(Name)
			}
			return w != nil
		})
		if len(uids) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
