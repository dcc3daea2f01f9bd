// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Verifier compares and publishes the allocations of one node. Create it with New.
type Verifier struct {
	cfg     Config
	pods    Pods
	clock   clock.WithTicker
	random  func() float64 // in [0, 1)
	metrics *metrics
	api     client
	kick    chan struct{}

	mu         sync.Mutex
	kubelet    *v1alpha1.Kubelet                        // guarded by mu
	pinned     *metav1.Condition                        // guarded by mu
	resources  func() []interposer.ResourceStatus       // guarded by mu
	containers map[types.UID]map[containerReason]string // pod UID -> container and reason -> last reported text; guarded by mu
	kicked     time.Time                                // when Trigger was first called since the last round; guarded by mu

	// Only the round uses the rest.
	record   *kubelet.RecordFile
	book     *podBook
	reporter *reporter
	pub      *publisher
	recalled bool      // recall has run
	said     string    // last logged reason for not publishing
	nodeUID  types.UID // of the Node
	nodeRead time.Time // when nodeUID was read

	// vouched is the UID of the Node, set while the published condition Enforced is
	// true, else nil. The Lease is renewed only while it is set.
	vouched  atomic.Pointer[types.UID]
	vouching chan struct{} // gets a token when vouched changes from nil to a UID

	finished atomic.Int64 // when the last round ended, in Unix nanoseconds; 0 before Run
}

// New returns the verifier of a node. It makes no request. Events go to recorder.
func New(cfg Config, pods Pods, kube kubernetes.Interface, dyn dynamic.Interface, recorder events.EventRecorder, clk clock.WithTicker) (*Verifier, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("verifier: %w", err)
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, fmt.Errorf("verifier: %w", err)
	}
	api := client{node: cfg.Node, namespace: cfg.Namespace, kube: kube, dyn: dyn}
	return &Verifier{
		cfg: cfg, pods: pods, clock: clk, random: rand.Float64, metrics: m, api: api, kick: make(chan struct{}, 1),
		resources: func() []interposer.ResourceStatus { return nil }, containers: map[types.UID]map[containerReason]string{},
		record: kubelet.NewRecordFile(cfg.CheckpointPath, clk), book: newPodBook(cfg.Node), reporter: newReporter(recorder, m, cfg.Strict), pub: &publisher{api: api},
		vouching: make(chan struct{}, 1),
	}, nil
}

// Trigger makes a round run now. It never blocks.
func (v *Verifier) Trigger() {
	v.mu.Lock()
	if v.kicked.IsZero() {
		v.kicked = v.clock.Now()
	}
	v.mu.Unlock()
	select {
	case v.kick <- struct{}{}:
	default: // a round is due already
	}
}

// SetKubelet sets status.kubelet; nil publishes none. The caller must not change k afterwards.
func (v *Verifier) SetKubelet(k *v1alpha1.Kubelet) {
	v.mu.Lock()
	v.kubelet = k
	v.mu.Unlock()
	v.Trigger()
}

// SetPinned sets the Pinned condition, and fills in its type and times.
func (v *Verifier) SetPinned(c metav1.Condition) {
	c.Type = v1alpha1.ConditionPinned
	c = shorten(c)
	v.mu.Lock()
	v.pinned = &c
	v.mu.Unlock()
	v.Trigger()
}

// SetResources sets the function that lists the resources of the interposer.
func (v *Verifier) SetResources(f func() []interposer.ResourceStatus) {
	v.mu.Lock()
	v.resources = f
	v.mu.Unlock()
	v.Trigger()
}

// round compares once and publishes the differences. again is when to compare again even without an
// event; 0 means after the interval.
func (v *Verifier) round(ctx context.Context) (again time.Duration, err error) {
	v.mu.Lock()
	started := v.kicked
	v.kicked = time.Time{}
	v.mu.Unlock()
	now := v.clock.Now()
	if started.IsZero() {
		started = now
	}
	observed := v.cfg.Topology()
	ok, err := v.mayPublish(ctx, observed, now)
	if !ok {
		v.vouched.Store(nil)
		return 0, err
	}
	v.recall(observed)
	entries, again, recordErr := v.look(ctx, observed, now)
	want, out := v.wanted(entries, observed, recordErr)
	wrote, err := v.pub.publish(ctx, observed, want, now)
	if err != nil {
		v.vouched.Store(nil)
		v.metrics.failures.Inc()
		return again, errors.Join(recordErr, err)
	}
	if wrote {
		v.metrics.published(v.clock.Since(started))
		klog.FromContext(ctx).V(2).Info("Published what kubelet recorded", "allocations", len(want.Allocations))
		if out != (leftOut{}) {
			klog.FromContext(ctx).Info("The schema does not take all of what kubelet recorded", "leftOut", out.String(), "devicesInNoEntry", out.unseen)
		}
	}
	v.vouch(want)
	return again, recordErr
}

// mayPublish reports whether an object for this very Node exists. If not, it logs the reason once.
func (v *Verifier) mayPublish(ctx context.Context, observed *v1alpha1.NodeGPUTopology, now time.Time) (bool, error) {
	why := ""
	if observed == nil {
		why = "There is no NodeGPUTopology of this node yet; waiting for the exporter"
	} else {
		if v.nodeUID == "" || now.Sub(v.nodeRead) >= nodeInterval || v.nodeUID != observed.Spec.NodeUID && now.Sub(v.nodeRead) >= v.cfg.Interval {
			uid, err := v.api.nodeUID(ctx)
			if err != nil && v.nodeUID == "" {
				return false, err
			}
			if err == nil {
				v.nodeUID, v.nodeRead = uid, now
			}
		}
		if v.nodeUID != observed.Spec.NodeUID {
			why = "The NodeGPUTopology is about an earlier Node of this name; waiting for the exporter"
		}
	}
	if why != v.said {
		v.said = why
		if why != "" {
			klog.FromContext(ctx).Info(why)
		}
	}
	return why == "", nil
}

// recall adopts once the state that an earlier process published.
func (v *Verifier) recall(observed *v1alpha1.NodeGPUTopology) {
	if v.recalled {
		return
	}
	v.recalled = true
	v.book.update(v.pods.Pods(), v.reporter.annotation)
	v.book.recall(observed.Status.Allocations)
	v.reporter.recall(observed.Status.Allocations)
}

// registered reports whether kubelet has registered a non-empty list from the agent.
func (v *Verifier) registered() bool {
	v.mu.Lock()
	resources := v.resources
	v.mu.Unlock()
	return slices.ContainsFunc(resources(), func(r interposer.ResourceStatus) bool { return r.Registered && r.Devices > 0 })
}

// look reads kubelet's record and compares it. If it cannot be read, entries is nil.
func (v *Verifier) look(ctx context.Context, observed *v1alpha1.NodeGPUTopology, now time.Time) (entries []entry, again time.Duration, err error) {
	pods := v.pods.Pods()
	v.book.update(pods, v.reporter.annotation)
	recorded, err := v.record.Read(ctx, recordWait)
	if errors.Is(err, fs.ErrNotExist) && !v.registered() {
		recorded, err = &[]kubelet.Record{}, nil // kubelet writes the file as soon as a plugin has reported devices
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read kubelet's record: %w", err)
	}
	ours := resourcesOf(observed)
	records := slices.DeleteFunc(slices.Clone(*recorded), func(r kubelet.Record) bool { return !slices.Contains(ours, r.Resource) })
	counting, again := v.book.counting(ctx, records, v.cfg.Active, now)
	entries = compare(counting, records)
	for i := range entries {
		entries[i].CPUs = cpuList(v.cfg.Extra.CPUs(entries[i].recorded, entries[i].Container))
	}
	v.metrics.count(entries)
	v.reporter.entries(entries)
	v.reporter.unrecorded(unrecorded(pods, records, ours, now))
	v.forgetContainers(pods)
	return entries, again, nil
}

// wanted returns the agent's part of the status, and the parts left out of it. If the record could not be
// read or was rejected, the published allocations stay.
func (v *Verifier) wanted(entries []entry, observed *v1alpha1.NodeGPUTopology, recordErr error) (*v1alpha1.NodeGPUTopologyStatus, leftOut) {
	v.mu.Lock()
	want := &v1alpha1.NodeGPUTopologyStatus{Kubelet: v.kubelet}
	pinned, resources := v.pinned, v.resources
	v.mu.Unlock()
	var out leftOut
	want.Allocations, out = publishable(entries)
	refused := v.pub.refusedBefore(want)
	if recordErr != nil || refused != nil {
		want.Allocations = v.pub.have(observed).Allocations
	}
	if out.unseen > 0 && refused == nil { // GPUs in use that would look free
		refused = fmt.Errorf("%d devices in use are in no published container: %v", out.unseen, out)
	}
	want.Conditions = []metav1.Condition{enforced(resources(), recordErr, refused, out)}
	if pinned != nil && pinned.Reason != "" {
		want.Conditions = append(want.Conditions, *pinned)
	}
	return want, out
}

// vouch allows the Lease to be renewed while the published Enforced condition is true.
func (v *Verifier) vouch(published *v1alpha1.NodeGPUTopologyStatus) {
	if published.Conditions[0].Status != metav1.ConditionTrue {
		v.vouched.Store(nil)
		return
	}
	uid := v.nodeUID
	if v.vouched.Swap(&uid) == nil {
		select {
		case v.vouching <- struct{}{}:
		default: // one token is enough
		}
	}
}

// Escaped reports a container that has more devices than kubelet recorded for it. what describes how, for
// example which variable requests which GPUs. The same text is reported once.
func (v *Verifier) Escaped(pod *v1.Pod, container, what string) {
	if v.once(pod, container, eventEscaped, what) {
		v.metrics.mismatches.WithLabelValues(kindEscaped).Inc()
	}
}

// Misbound reports a container whose environment binds threads to CPUs that it may not use; what
// describes them. The same text is reported once.
func (v *Verifier) Misbound(pod *v1.Pod, container, what string) {
	v.once(pod, container, eventMisbound, what+"; leave the variable out, or set OMP_PLACES=cores")
}

// once writes an event about a container, unless the last one with this reason had the same text.
func (v *Verifier) once(pod *v1.Pod, container, reason, what string) bool {
	of := containerReason{container, reason}
	v.mu.Lock()
	said := v.containers[pod.UID]
	if said == nil {
		said = map[containerReason]string{}
		v.containers[pod.UID] = said
	}
	again := said[of] == what
	said[of] = what
	v.mu.Unlock()
	if !again {
		v.reporter.recorder.Eventf(referenceTo(pod), nil, v1.EventTypeWarning, reason, actionVerify, "container %s: %s", container, what)
	}
	return !again
}

// containerReason is a container of a pod and the reason of an event about it.
type containerReason struct{ container, reason string }

// forgetContainers drops the reports about pods that are gone.
func (v *Verifier) forgetContainers(pods []*v1.Pod) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.containers) == 0 {
		return
	}
	here := map[types.UID]bool{}
	for _, p := range pods {
		here[p.UID] = true
	}
	maps.DeleteFunc(v.containers, func(uid types.UID, _ map[containerReason]string) bool { return !here[uid] })
}

// resourcesOf returns the resources of the node's GPUs.
func resourcesOf(t *v1alpha1.NodeGPUTopology) []string {
	var out []string
	for i := range t.Spec.GPUs {
		r := t.Spec.GPUs[i].Resource
		if r == "" {
			r = v1alpha1.DefaultResource
		}
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// cpuList returns the list in the schema's form, or "" if it is not a list.
func cpuList(s string) string {
	set, err := nvtopo.ParseCPUList(s)
	if err != nil {
		return ""
	}
	return set.String()
}
