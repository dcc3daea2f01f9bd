// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// recorder watches pods, Jobs, Workloads and ClusterQueues, and keeps the account of each scenario: the
// holders of devices and quota, and every excess of a limit.
type recorder struct {
	mu       sync.Mutex
	accounts map[string]*account // by scenario; guarded by mu
}

func newRecorder() *recorder { return &recorder{accounts: map[string]*account{}} }

// account is the observed state of one scenario. Tenants are identified by the names of their namespaces.
type account struct {
	// limits are the tenants' limits, and capacity that of all of them together. A lower limit takes no
	// devices away from their holders, so the highest one so far is used.
	limits   map[string]int64
	capacity int64
	// unordered: events do not have the order of the changes, so nothing is checked.
	unordered bool

	// occupied is the largest number of devices of a tenant's bound pods so far, terminating ones included.
	occupied map[string]int64

	pods      map[types.UID]podSeen
	sessions  map[types.UID]sessionSeen // of all pods that were ever bound
	workloads map[types.UID]workloadSeen
	// priorities are those of all Workloads that ever existed.
	priorities map[types.UID]int32
	evictions  []eviction
	activated  []string             // jobs whose Workloads were inactive before
	deleted    map[types.UID]string // of Jobs -> version of the deletion
	wrong      []excess             // excesses of limits
	judged     int                  // number of wrong that were left after the last judgement
	history    []string             // the last changes of quota
	changed    time.Time
	written    []string // the last writes: object and writer
}

// podSeen is the last observed state of a pod.
type podSeen struct {
	tenant  string
	devices int64
	job     types.UID // empty where it has none
	// holds: it is bound, and neither ended nor terminating. The quota of a terminating pod may be another's
	// already.
	holds, running bool
	occupies       bool // it is bound and has not ended
}

// workloadSeen is the last observed state of a Workload.
type workloadSeen struct {
	tenant, job string
	devices     int64 // of its quota
	asks        int64 // devices
	priority    int32
	why         string // why it has no quota
	// held: a gate keeps it from having quota, or it is not active.
	reserved, admitted, evicted, finished, held bool
	stopped                                     bool // it is not active
	// paused: since its last eviction Kueue left it out of its queue for a while.
	paused bool
	// evictionLost: it was evicted, and then admitted by an earlier response. Kueue's scheduler evicts jobs
	// of which it has not yet written that they are admitted; the late write reverts the eviction, whose
	// quota is another's by then (admit in its pkg/scheduler/scheduler.go applies without a version).
	evictionLost bool
	// endLost: its end was reverted, likewise by a late write. Its job is gone, and Kueue ends it again as
	// soon as it notices.
	endLost bool
}

// eviction is a job's loss of its quota.
type eviction struct {
	at                          time.Time
	tenant, job, reason, detail string
	priority                    int32
	protected                   bool // it was of the class of jobs that must not be preempted
	afterPause                  bool // it was paused between its last eviction and this one
	admitted                    bool // its pods could start before it
	ofJob                       types.UID
	version                     string // of the Workload
}

func newAccount() *account {
	return &account{
		limits: map[string]int64{}, occupied: map[string]int64{}, pods: map[types.UID]podSeen{}, sessions: map[types.UID]sessionSeen{}, workloads: map[types.UID]workloadSeen{},
		priorities: map[types.UID]int32{}, deleted: map[types.UID]string{}, changed: time.Now(),
	}
}

// open begins the account of a scenario.
func (r *recorder) open(scenario string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.accounts[scenario] = newAccount()
}

// close ends it.
func (r *recorder) close(scenario string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.accounts, scenario)
}

// read calls see with the account of a scenario.
func (r *recorder) read(scenario string, see func(*account)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	see(r.accounts[scenario])
}

// OnAdd, OnUpdate and OnDelete implement a handler of events.
func (r *recorder) OnAdd(o any, _ bool) { r.see(o, false) }

// OnUpdate records the new state of an object.
func (r *recorder) OnUpdate(_, o any) { r.see(o, false) }

// OnDelete records the deletion of an object.
func (r *recorder) OnDelete(o any) {
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
		if _, job := o.(*batchv1.Job); job {
			return // the version of its deletion is unknown
		}
	}
	r.see(o, true)
}

func (r *recorder) see(o any, gone bool) {
	object, ok := o.(metav1.Object)
	if !ok {
		return
	}
	// Names of scenarios have no - or dot, and begin those of their namespaces and queues.
	where := object.GetNamespace()
	if where == "" {
		where = object.GetName()
	}
	scenario := where
	if end := strings.IndexAny(where, "-."); end >= 0 {
		scenario = where[:end]
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.accounts[scenario]
	if a == nil {
		return
	}
	if job, ok := o.(*batchv1.Job); ok { // its status follows its pods, which are watched themselves
		a.seeJob(job, gone)
		return
	}
	a.changed = time.Now()
	a.noteWriter(object)
	switch object := o.(type) {
	case *v1.Pod:
		a.seePod(object, gone)
	case *kueue.Workload:
		a.seeWorkload(object, gone)
	case *kueue.ClusterQueue:
		a.checkQueue(object)
	}
}

// noteWriter keeps the last writer of an object, to find out why a scenario does not settle.
func (a *account) noteWriter(object metav1.Object) {
	const last = 12
	who, when := "", time.Time{}
	for _, m := range object.GetManagedFields() {
		if m.Time != nil && !m.Time.Time.Before(when) {
			who, when = m.Manager+" "+m.Subresource, m.Time.Time
		}
	}
	if len(a.written) == last {
		a.written = slices.Delete(a.written, 0, 1)
	}
	a.written = append(a.written, fmt.Sprintf("%s: %T %s/%s (version %s) by %s",
		a.changed.Format(time.StampMilli), object, object.GetNamespace(), object.GetName(), object.GetResourceVersion(), who))
}

func (a *account) seeJob(job *batchv1.Job, gone bool) {
	if _, known := a.deleted[job.UID]; !known && (gone || job.DeletionTimestamp != nil) {
		a.deleted[job.UID] = job.ResourceVersion
	}
}

func (a *account) seePod(pod *v1.Pod, gone bool) {
	a.seeSession(pod)
	if gone {
		delete(a.pods, pod.UID)
		return
	}
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	now := podSeen{
		tenant: pod.Namespace, devices: devicesOf(&pod.Spec),
		holds:    pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && !ended,
		running:  pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil,
		occupies: pod.Spec.NodeName != "" && !ended,
	}
	if job := metav1.GetControllerOf(pod); job != nil {
		now.job = job.UID
	}
	a.pods[pod.UID] = now
	var sum int64
	for _, p := range a.pods {
		if p.tenant == now.tenant && p.occupies {
			sum += p.devices
		}
	}
	if !a.unordered {
		a.occupied[now.tenant] = max(a.occupied[now.tenant], sum)
	}
	a.checkPods(pod.ResourceVersion)
}

func (a *account) seeWorkload(w *kueue.Workload, gone bool) {
	before := a.workloads[w.UID]
	if gone {
		delete(a.workloads, w.UID)
		return
	}
	now := workloadSeen{tenant: w.Namespace, job: w.Name}
	var owner types.UID
	if len(w.OwnerReferences) > 0 {
		now.job, owner = w.OwnerReferences[0].Name, w.OwnerReferences[0].UID
	}
	if w.Spec.Priority != nil {
		now.priority = *w.Spec.Priority
	}
	a.priorities[w.UID] = now.priority
	now.held = w.Annotations[kueue.AnnotationAdmissionGatedBy] != "" || w.Spec.Active != nil && !*w.Spec.Active
	for i := range w.Spec.PodSets {
		now.asks += int64(w.Spec.PodSets[i].Count) * devicesOf(&w.Spec.PodSets[i].Template.Spec)
	}
	now.reserved = meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadQuotaReserved)
	now.admitted = meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadAdmitted)
	now.finished = meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished)
	switch {
	case now.finished:
	case before.finished:
		now.endLost = true
	default:
		now.endLost = before.endLost
	}
	if !now.reserved {
		now.why = quotaMessage(w)
	}
	now.paused = before.paused || w.Status.RequeueState != nil && w.Status.RequeueState.RequeueAt != nil
	// The quota of a job that is stopped is free at once (Update in Kueue's workload_controller.go).
	now.stopped = w.Spec.Active != nil && !*w.Spec.Active
	if before.stopped && !now.stopped {
		a.activated = append(a.activated, now.job)
	}
	if now.reserved && !now.finished && !now.stopped && w.Status.Admission != nil {
		now.devices = quotaOf(&w.Status)
	}
	if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted); c != nil && c.Status == metav1.ConditionTrue {
		now.evicted = true
		if !before.evicted {
			now.paused = false
			a.evictions = append(a.evictions, eviction{
				at: c.LastTransitionTime.Time, tenant: now.tenant, job: now.job, reason: c.Reason, detail: c.Message,
				priority: now.priority, protected: now.priority == names.ProtectedPriority, afterPause: before.paused, admitted: before.admitted || now.admitted,
				ofJob: owner, version: w.ResourceVersion,
			})
		}
	}
	now.evictionLost = (before.evicted || before.evictionLost) && before.devices > 0 && !now.evicted && now.devices > 0
	a.workloads[w.UID] = now
	a.note(w, &before, &now)
	a.checkQuota()
}

// note keeps changes of a Workload's quota, to find out why too much is reserved.
func (a *account) note(w *kueue.Workload, before, now *workloadSeen) {
	const last = 40
	if before.devices == now.devices && before.evicted == now.evicted && before.finished == now.finished {
		return
	}
	if len(a.history) == last {
		a.history = slices.Delete(a.history, 0, 1)
	}
	a.history = append(a.history, fmt.Sprintf("%s: %s/%s (version %s): quota %d, was %d; evicted %t, was %t; finished %t",
		time.Now().Format(time.StampMilli), now.tenant, now.job, w.ResourceVersion,
		now.devices, before.devices, now.evicted, before.evicted, now.finished))
}

// quotaMessage returns Kueue's message on a Workload that waits for quota.
func quotaMessage(w *kueue.Workload) string {
	if c := meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil {
		return c.Reason + " " + c.Message
	}
	return "nothing said"
}

// quotaOf returns the number of devices of an admitted Workload's quota. That of pods that have succeeded
// is free.
func quotaOf(status *kueue.WorkloadStatus) (n int64) {
	for i := range status.Admission.PodSetAssignments {
		a := &status.Admission.PodSetAssignments[i]
		quantity := a.ResourceUsage[topologyv1alpha1.DefaultResource]
		n += quantity.Value()
		for _, done := range status.ReclaimablePods {
			if done.Name == a.Name && a.Count != nil && *a.Count > 0 {
				n -= quantity.Value() / int64(*a.Count) * int64(done.Count)
			}
		}
	}
	return n
}

// reserved returns each tenant's quota in devices.
func (a *account) reserved() map[string]int64 {
	return a.quotas(func(*workloadSeen) bool { return true })
}

// quotas returns each tenant's quota in devices, of the Workloads that counts selects.
func (a *account) quotas(counts func(*workloadSeen) bool) map[string]int64 {
	out := map[string]int64{}
	for _, w := range a.workloads {
		if counts(&w) {
			out[w.tenant] += w.devices
		}
	}
	return out
}

// lost returns the quota in devices of jobs whose eviction was lost.
func (a *account) lost() (n int64) {
	for _, w := range a.workloads {
		if w.evictionLost {
			n += w.devices
		}
	}
	return n
}

// devicesOf returns the number of devices that a pod requests.
func devicesOf(spec *v1.PodSpec) (n int64) {
	for i := range spec.Containers {
		quantity := spec.Containers[i].Resources.Limits[topologyv1alpha1.DefaultResource]
		n += quantity.Value()
	}
	return n
}
