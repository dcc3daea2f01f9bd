// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podkeys"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

const (
	// eventKeyIgnored is the reason of the event on a pod with keys that no part reads.
	eventKeyIgnored = "KeyIgnored"
	// ignoredPerSecond and ignoredAtOnce bound these events of all pods together.
	ignoredPerSecond = 50
	ignoredAtOnce    = 100
	// leadsAgain is the time between checks whether a process with pending events leads.
	leadsAgain = time.Second
)

// TellIgnoredKeys reports the unread keys of a pod in an event on it, once for each version of its keys
// and for one member of a gang among those with the same text. It checks pods as they come, since a
// member may wait for others without any attempt to schedule it.
func TellIgnoredKeys(clk clock.Clock) Attachment {
	return func(ctx context.Context, h fwk.Handle, _ string, state *nodestate.State) cache.ResourceEventHandler {
		i := newIgnored(state.Profiles.Serves, state.Leader.MayLead)
		if _, err := h.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(i.handler()); err != nil {
			klog.FromContext(ctx).Error(err, "Pods cannot be watched for misspelled keys; no events tell of them")
		}
		limit := flowcontrol.NewTokenBucketRateLimiterWithClock(ignoredPerSecond, ignoredAtOnce, clk)
		go i.run(ctx, clk, limit, func(pod *v1.Pod, text string) {
			h.EventRecorder().Eventf(pod, nil, v1.EventTypeWarning, eventKeyIgnored, "Scheduling", "%s", text)
		})
		return cache.ResourceEventHandlerFuncs{}
	}
}

// ignored has the pods with unread keys, and the events that are still to be sent.
type ignored struct {
	serves  func(profile string) bool
	mayLead func() bool
	wake    chan struct{}

	mu      sync.Mutex
	of      map[types.UID]subject // guarded by mu; of pods that came unbound
	told    map[subject]int       // guarded by mu; how many pods of each
	pending []telling             // guarded by mu
}

// subject is what is reported once: a text about a gang, or about a pod that is in none.
type subject struct {
	gang gangrequest.Key
	pod  types.UID
	text string
}

// telling is a pod that gets an event.
type telling struct {
	pod *v1.Pod
	subject
}

func newIgnored(serves func(string) bool, mayLead func() bool) *ignored {
	return &ignored{serves: serves, mayLead: mayLead, wake: make(chan struct{}, 1), of: map[types.UID]subject{}, told: map[subject]int{}}
}

func (i *ignored) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if pod, ok := obj.(*v1.Pod); ok {
				i.set(pod)
			}
		},
		UpdateFunc: func(oldObj, obj any) {
			old, ok1 := oldObj.(*v1.Pod)
			pod, ok2 := obj.(*v1.Pod)
			if ok1 && ok2 && old.UID != pod.UID {
				i.drop(old.UID)
			}
			if ok2 {
				i.set(pod)
			}
		},
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if pod, ok := obj.(*v1.Pod); ok {
				i.drop(pod.UID)
			}
		},
	}
}

// set records a pod. A bound pod got its event from the process that bound it, or gets it next; other
// processes send none.
func (i *ignored) set(pod *v1.Pod) {
	if pod.Spec.NodeName != "" {
		if !i.mayLead() {
			i.drop(pod.UID)
		}
		return
	}
	text := ""
	if i.serves(pod.Spec.SchedulerName) {
		text = podkeys.Message(podkeys.Unread(pod))
	}
	if text == "" {
		i.drop(pod.UID)
		return
	}
	s := subject{text: text}
	if key, member := gangrequest.KeyOf(pod); member {
		s.gang = key
	} else {
		s.pod = pod.UID
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.of[pod.UID] == s {
		return
	}
	i.forget(pod.UID)
	i.of[pod.UID] = s
	if i.told[s]++; i.told[s] > 1 {
		return // of another member
	}
	i.pending = append(i.pending, telling{pod, s})
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

func (i *ignored) drop(uid types.UID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.forget(uid)
}

// forget drops a pod. The caller holds i.mu.
func (i *ignored) forget(uid types.UID) {
	s, ok := i.of[uid]
	if !ok {
		return
	}
	delete(i.of, uid)
	if i.told[s]--; i.told[s] == 0 {
		delete(i.told, s)
		i.pending = slices.DeleteFunc(i.pending, func(t telling) bool { return t.subject == s }) // a standby never reports them
	}
}

// next returns the pod that gets the next event, among those whose text is still current.
func (i *ignored) next() (telling, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for len(i.pending) > 0 {
		t := i.pending[0]
		i.pending = i.pending[1:]
		if i.told[t.subject] > 0 {
			return t, true
		}
	}
	return telling{}, false
}

// run sends the events one after the other while this process leads, until ctx ends.
func (i *ignored) run(ctx context.Context, clk clock.Clock, limit flowcontrol.RateLimiter, tell func(*v1.Pod, string)) {
	for {
		if i.mayLead() {
			for t, ok := i.next(); ok; t, ok = i.next() {
				if limit.Wait(ctx) != nil {
					return
				}
				tell(t.pod, t.text)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-i.wake:
		case <-clk.After(leadsAgain):
		}
	}
}
