// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const (
	// syncEvery is the interval of kubelet's syncs without a trigger.
	syncEvery = 250 * time.Millisecond
	// dyingTime is the longest time that containers take to end.
	dyingTime = 800 * time.Millisecond
)

// Causes for which a pod did not get its choice.
const (
	causeUnhealthy = "the GPU was lost before"                                // or taken away with the machine
	causeForced    = "held for a pod deleted by force or failed from outside" // whose containers were still ending
	causeCascade   = "held by a pod that had not got its own"
	causeCounted   = "held by a pod that was placed by count" // on a node that had no graph then
	causePause     = "chosen twice around a leader's pause"
	causeUnknown   = "chosen twice without a pause"
)

// held is kubelet's record of one pod.
type held struct {
	uid             types.UID
	namespace, name string
	containers      map[string][]string // container -> UUIDs
	forced          bool                // the API server no longer has the pod
	counted         bool                // without a choice
	other           bool                // it did not get the chosen devices
	until           time.Time           // time at which its containers have ended; zero while they run
	since           time.Time           // time of the record
	why             string              // cause of other
	repaired        time.Time           // time at which the annotation first agreed with the record; zero before
}

func (h *held) uuids() []string {
	var out []string
	for _, ids := range h.containers {
		out = append(out, ids...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// kubelet admits the pods of one node one at a time, in an order of its own, and keeps the record of
// devices that no two pods ever share.
type kubelet struct {
	b    *box
	rng  *rand.Rand // used by run only
	path string
	kick chan struct{}

	mu     sync.Mutex
	record map[types.UID]*held     // guarded by mu
	left   map[types.UID]time.Time // pods without their choice -> time at which they left the record; guarded by mu
	done   map[types.UID]bool      // pods that ended or were refused, even if the API server does not have it yet; guarded by mu
}

func newKubelet(b *box, dir string, seed uint64) (*kubelet, error) {
	k := &kubelet{
		b: b, rng: rand.New(rand.NewPCG(seed, uint64(b.index))), path: filepath.Join(dir, b.name, "kubelet_internal_checkpoint"),
		kick: make(chan struct{}, 1), record: map[types.UID]*held{}, left: map[types.UID]time.Time{}, done: map[types.UID]bool{},
	}
	if err := os.MkdirAll(filepath.Dir(k.path), 0o700); err != nil {
		return nil, err
	}
	return k, k.save()
}

// look triggers a sync of kubelet.
func (k *kubelet) look() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// Active implements verify.Active.
func (k *kubelet) Active(_ context.Context, uid types.UID, _, _ string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ok := k.record[uid]
	return ok, nil
}

// Name implements verify.Active.
func (k *kubelet) Name(_ context.Context, _ string, uid types.UID) (namespace, name string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h, ok := k.record[uid]
	if !ok {
		return "", "", false
	}
	return h.namespace, h.name, true
}

// exited records that all containers of a pod ended by themselves.
func (k *kubelet) exited(uid types.UID) {
	k.mu.Lock()
	k.done[uid] = true
	k.mu.Unlock()
}

// leave removes a pod from the record. The caller holds mu.
func (k *kubelet) leave(uid types.UID, h *held) {
	delete(k.record, uid)
	if h.unlike() {
		k.left[uid] = time.Now()
	}
	maps.DeleteFunc(k.left, func(_ types.UID, at time.Time) bool { return time.Since(at) > echo })
}

// forget clears the record at the end of the machine.
func (k *kubelet) forget() {
	k.mu.Lock()
	for uid, h := range k.record {
		k.leave(uid, h)
	}
	k.mu.Unlock()
}

func (k *kubelet) run(ctx context.Context) error {
	ticker := time.NewTicker(syncEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.kick:
		case <-ticker.C:
		}
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			k.b.w.fail("kubelet of %s: %v", k.b.name, err)
		}
	}
}

// sync ends the pods that are to end and admits those that are to start.
func (k *kubelet) sync(ctx context.Context) error {
	pods := map[types.UID]*v1.Pod{}
	for _, p := range k.b.w.podsOf(k.b.name) {
		pods[p.UID] = p
	}
	changed, deaths := k.end(pods)
	var waiting []*v1.Pod
	k.mu.Lock()
	for uid, p := range pods {
		if k.record[uid] == nil && !ended(p) && (!k.done[uid] || p.DeletionTimestamp != nil) {
			waiting = append(waiting, p)
		}
	}
	k.mu.Unlock()
	if changed {
		if err := k.save(); err != nil {
			return err
		}
	}
	for _, p := range deaths {
		k.b.w.finishDeletion(ctx, p)
	}
	slices.SortFunc(waiting, func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	k.rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
	for _, p := range waiting {
		if p.DeletionTimestamp != nil {
			k.b.w.finishDeletion(ctx, p)
			continue
		}
		if err := k.admit(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// end releases ended pods, and returns the pods whose deletion is to be confirmed.
func (k *kubelet) end(pods map[types.UID]*v1.Pod) (changed bool, deaths []*v1.Pod) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for uid, h := range k.record {
		p := pods[uid]
		if p != nil && p.DeletionTimestamp == nil && !ended(p) && !k.done[uid] {
			k.compare(p, h)
			continue
		}
		h.forced = p == nil
		if h.until.IsZero() {
			h.until = now.Add(time.Duration(k.rng.Int64N(int64(dyingTime))))
		}
		if now.Before(h.until) && !k.done[uid] {
			continue
		}
		k.leave(uid, h)
		changed = true
	}
	for uid := range k.done {
		if pods[uid] == nil {
			delete(k.done, uid)
		}
	}
	for uid, p := range pods {
		if k.record[uid] == nil && p.DeletionTimestamp != nil {
			deaths = append(deaths, p)
		}
	}
	return changed, deaths
}

// compare records when the annotation of a pod with other devices agrees with the record.
func (k *kubelet) compare(p *v1.Pod, h *held) {
	if !h.other || !h.repaired.IsZero() {
		return
	}
	if a := choiceOf(p); a != nil && slices.Equal(slices.Sorted(slices.Values(a.GPUs(string(gpuResource)))), h.uuids()) {
		h.repaired = time.Now()
		k.b.w.conflicts.correct(h.why, time.Since(h.since))
	}
}

// admit gives a pod its devices or fails it.
func (k *kubelet) admit(ctx context.Context, p *v1.Pod) error {
	k.mu.Lock()
	for uid := range k.done {
		if h := k.record[uid]; h != nil {
			k.leave(uid, h) // ended pods make room before a pod is refused
		}
	}
	offered := k.b.healthy()
	holders := map[string]*held{}
	for _, h := range k.record {
		for _, id := range h.uuids() {
			holders[id] = h
		}
	}
	h := &held{uid: p.UID, namespace: p.Namespace, name: p.Name, since: time.Now()}
	choice := choiceOf(p)
	h.counted = choice == nil
	why, with := "", (*held)(nil)
	if choice != nil {
		why, with = k.cause(choice, offered, holders)
	}
	if why == causeUnknown {
		why = k.b.w.explain(with) // no other admission runs here meanwhile
	}
	switch {
	case choice != nil && why == "" && k.b.agent:
		h.containers = map[string][]string{}
		for _, c := range choice.Containers {
			h.containers[c.Name] = c.GPUs
		}
	default:
		h.containers = k.others(p, choice, offered, holders)
		h.other, h.why = choice != nil && k.b.agent, why // not reported without an agent
	}
	if h.containers == nil {
		k.done[p.UID] = true
		k.mu.Unlock()
		k.b.w.note("kubelet %s refuses %s: too few of its %d GPUs are free (%s)", k.b.name, p.Name, len(offered), why)
		return k.b.w.setPhase(ctx, p, v1.PodFailed, "UnexpectedAdmissionError")
	}
	k.record[p.UID] = h
	k.mu.Unlock()
	if k.b.agent && choice != nil && why != "" {
		holder := ""
		if with != nil {
			holder = with.namespace + "/" + with.name
		}
		k.b.w.note("kubelet %s gives %s others than chosen: %s %s", k.b.name, p.Name, why, holder)
		k.b.w.conflicts.meet(p.UID, why)
		if why == causeUnknown {
			k.b.w.violate("kubelet of %s finds GPUs of %s/%s (%s) taken by live pod %s (%s): chosen twice, and no leader was paused",
				k.b.name, p.Namespace, p.Name, p.UID, holder, with.uid)
		}
	}
	if err := k.save(); err != nil {
		return err
	}
	return k.b.w.setPhase(ctx, p, v1.PodRunning, "")
}

// cause returns why a choice cannot be given; empty if it can. The caller holds mu.
func (k *kubelet) cause(choice *allocation.Allocation, offered map[string]bool, holders map[string]*held) (string, *held) {
	for _, id := range choice.GPUs(string(gpuResource)) {
		if h := holders[id]; h != nil {
			switch {
			case h.forced:
				return causeForced, h
			case h.unlike():
				return causeCascade, h
			case h.counted:
				return causeCounted, h
			}
			return causeUnknown, h
		}
	}
	for _, id := range choice.GPUs(string(gpuResource)) {
		if !offered[id] {
			return causeUnhealthy, nil
		}
	}
	return "", nil
}

// others picks free devices: in the places of the chosen ones, or without a choice container by
// container, init containers from the others' devices. The caller holds mu.
func (k *kubelet) others(p *v1.Pod, choice *allocation.Allocation, offered map[string]bool, holders map[string]*held) map[string][]string {
	var free []string
	for _, id := range sortedKeys(offered) {
		if holders[id] == nil {
			free = append(free, id)
		}
	}
	n := gpusOf(p)
	if len(free) < n {
		return nil
	}
	k.rng.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	out := map[string][]string{}
	if choice != nil {
		instead := map[string]string{}
		for i, id := range choice.GPUs(string(gpuResource)) {
			instead[id] = free[i]
		}
		for _, c := range choice.Containers {
			for _, id := range c.GPUs {
				out[c.Name] = append(out[c.Name], instead[id])
			}
		}
		return out
	}
	take := func(c *v1.Container, from []string) []string {
		want := int(c.Resources.Requests.Name(gpuResource, "").Value())
		if want > 0 {
			out[c.Name] = slices.Clone(from[:want])
		}
		return from[want:]
	}
	rest := free[:n]
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil {
			rest = take(c, rest)
		}
	}
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; c.RestartPolicy == nil {
			take(c, rest)
		}
	}
	for i := range p.Spec.Containers {
		rest = take(&p.Spec.Containers[i], rest)
	}
	return out
}

// save writes the record as kubelet does, for the agent to read.
func (k *kubelet) save() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var entries []checkpoint.PodDevicesEntry
	owner := map[string]types.UID{}
	for uid, h := range k.record {
		for _, id := range h.uuids() {
			if other, taken := owner[id]; taken {
				k.b.w.violate("the record of %s gives GPU %s to pods %s and %s", k.b.name, id, other, uid)
				continue
			}
			owner[id] = uid
		}
		for name, ids := range h.containers {
			entries = append(entries, checkpoint.PodDevicesEntry{
				PodUID: string(uid), ContainerName: name, ResourceName: string(gpuResource), DeviceIDs: checkpoint.DevicesPerNUMA{0: ids},
			})
		}
	}
	data, err := checkpoint.New(entries, nil).MarshalCheckpoint()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(k.path+".new", data, 0o600), os.Rename(k.path+".new", k.path))
}

// holding returns a copy of the record: pod UID -> UUIDs.
func (k *kubelet) holding() map[types.UID][]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[types.UID][]string{}
	for uid, h := range k.record {
		out[uid] = h.uuids()
	}
	return out
}

// holders returns copies of the pods of the record.
func (k *kubelet) holders() []held {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []held
	for h := range maps.Values(k.record) {
		out = append(out, *h)
	}
	return out
}

// unrepaired returns the pods whose annotation differs from the record.
func (k *kubelet) unrepaired() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []string
	for h := range maps.Values(k.record) {
		if h.other && h.repaired.IsZero() && h.until.IsZero() {
			out = append(out, fmt.Sprintf("%s/%s on %s since %s (%s)", h.namespace, h.name, k.b.name, h.since.Format(time.TimeOnly), h.why))
		}
	}
	return out
}
