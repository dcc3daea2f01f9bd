// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/scheduler/whatif/memoryapi"
)

// quiet is how long no object may be written before a pod that is not placed is reported as waiting. A
// refused pod is tried once more after its backoff of a second, if the list of nodes was taken back
// (docs/design/narrowing.md).
const quiet = 1500 * time.Millisecond

// askEvery is the time between reads of the pods' reasons to wait after that. Reading those of gangs
// takes the scheduler's time.
const askEvery = 200 * time.Millisecond

// Answer runs the scheduler of a snapshot, adds the pods of the question and returns their outcomes. Pods
// that are not decided when ctx ends are undecided. It changes the snapshot's Leases.
func Answer(ctx context.Context, s *whatif.Snapshot, asked *whatif.Asked, plugins Plugins) (*whatif.Answer, error) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := renewLeases(s.Objects, time.Now()); err != nil {
		return nil, err
	}
	store, err := memoryapi.NewStore(s.Objects)
	if err != nil {
		return nil, err
	}
	r, err := start(work, &s.Header, memoryapi.Serve(work, store), plugins)
	if err != nil {
		return nil, err
	}
	q := &question{running: r, store: store, asked: asked, quiet: quiet}
	if q.admission, err = newAdmission(s, r.scheduler.Profiles); err != nil {
		return nil, err
	}
	for _, pod := range asked.Pods {
		if err := q.admission.admit(pod); err != nil {
			return nil, fmt.Errorf("%w: %w", whatif.ErrAsked, err)
		}
	}
	context.AfterFunc(ctx, cancel) // later events would be waited for in vain
	if err := r.ready(work, store.Watched); err != nil {
		return nil, err
	}
	if err := q.submit(); err != nil {
		return nil, fmt.Errorf("%w: %w", whatif.ErrAsked, err)
	}
	_ = poll(work, q.decided) // once the time is over, the answer has undecided pods
	a, err := q.answer()
	if err != nil {
		return nil, err
	}
	a.At, a.Scheduler = s.At, s.Scheduler
	return a, nil
}

// question has the pods of a question, and the scheduler that runs them.
type question struct {
	*running
	store     *memoryapi.Store
	asked     *whatif.Asked
	admission *admission
	quiet     time.Duration // how long no object is written once all is decided
	submitted time.Time
	asking    time.Time        // when reasons were last read
	gangs     []diagnosis.Gang // nil until one is needed
}

// submit creates the objects of the question: PodGroups first, as people do. An existing one is used as
// it is.
func (q *question) submit() error {
	for _, g := range q.asked.Groups {
		if q.store.Get(whatif.GroupKind.Resource, g.Namespace, g.Name) != nil {
			continue
		}
		if err := q.store.Create(whatif.GroupKind, g.Namespace, g.Name, g); err != nil {
			return err
		}
	}
	for _, pod := range q.asked.Pods {
		if err := q.store.Create(whatif.PodKind, pod.Namespace, pod.Name, pod); err != nil {
			return err
		}
	}
	q.submitted = time.Now()
	return nil
}

// decided reports whether all pods are placed, or nothing was written for a while and each other pod has
// a reason to wait. One without a reason has not been tried yet.
func (q *question) decided() bool {
	settled := q.settled()
	if settled {
		if time.Since(q.asking) < askEvery {
			return false
		}
		q.asking, q.gangs = time.Now(), nil // the gangs that were read are outdated
	}
	for _, asked := range q.asked.Pods {
		pod, err := q.read(asked)
		if err != nil {
			return true // a repeated read would not help
		}
		switch {
		case pod.Spec.NodeName != "" && (settled || q.told(pod)):
		case !settled:
			return false
		case pod.Status.NominatedNodeName == "" && q.reasonOf(pod) == "":
			return false
		}
	}
	return true
}

// told reports whether the placement of a placed pod's gang is written: on its PodGroup, or without one
// on the pod of the first rank.
func (q *question) told(pod *v1.Pod) bool {
	switch key, member := gangrequest.KeyOf(pod); {
	case !member:
		return true
	case key.Source == gangrequest.SourcePodGroup:
		return bytes.Contains(q.store.Get(whatif.GroupKind.Resource, key.Namespace, key.Name), []byte(gangrequest.PlacementKey))
	}
	return pod.Annotations[gangrequest.PlacementKey] != "" || pod.Annotations[gangrequest.RankKey] != gangrequest.FormatRank(0)
}

// settled reports whether no object was written for a while.
func (q *question) settled() bool {
	now := time.Now()
	return now.Sub(q.store.Changed()) >= q.quiet && now.Sub(q.submitted) >= q.quiet
}

func (q *question) read(pod *v1.Pod) (*v1.Pod, error) {
	raw := q.store.Get(whatif.PodKind.Resource, pod.Namespace, pod.Name)
	if raw == nil {
		return nil, fmt.Errorf("pod %s/%s is gone", pod.Namespace, pod.Name)
	}
	out := &v1.Pod{}
	return out, json.Unmarshal(raw, out)
}

func (q *question) answer() (*whatif.Answer, error) {
	q.gangs = nil
	settled := q.settled()
	a := &whatif.Answer{Version: whatif.AnswerVersion, Victims: q.store.Leaving()}
	for _, asked := range q.asked.Pods {
		pod, err := q.read(asked)
		if err != nil {
			return nil, err
		}
		p, err := q.describe(pod, settled)
		if err != nil {
			return nil, err
		}
		a.Pods = append(a.Pods, *p)
	}
	q.explain(a)
	return a, nil
}

// describe returns the outcome of a pod. It waits only if there is a reason, and nothing was written
// since.
func (q *question) describe(pod *v1.Pod, settled bool) (*whatif.Pod, error) {
	p := &whatif.Pod{Pod: pod.Namespace + "/" + pod.Name, Scored: q.scores.of(pod.UID)}
	switch {
	case pod.Spec.NodeName != "":
		p.Outcome, p.Node = whatif.Placed, pod.Spec.NodeName
		return p, describeChoice(p, pod)
	case pod.Status.NominatedNodeName != "":
		p.Outcome, p.Node = whatif.Preempts, pod.Status.NominatedNodeName
		q.describeNominated(p, pod)
	default:
		p.Outcome = whatif.Undecided
	}
	if p.Message = q.reasonOf(pod); p.Outcome == whatif.Undecided && settled && p.Message != "" {
		p.Outcome = whatif.Waits
	}
	return p, nil
}

// reasonOf returns why a pod has no node; empty if no reason is known.
func (q *question) reasonOf(pod *v1.Pod) string {
	if message := messageOf(pod); message != "" {
		return message
	}
	return q.gangWaits(pod)
}

// gangWaits returns why the gang of a pod waits, which its members report some seconds later; empty if it
// is in none or does not wait.
func (q *question) gangWaits(pod *v1.Pod) string {
	key, ok := gangrequest.KeyOf(pod)
	if !ok || q.state == nil {
		return ""
	}
	if q.gangs == nil {
		q.gangs = append([]diagnosis.Gang{}, q.state.Diagnosis.Diagnose("").Gangs...)
	}
	i := slices.IndexFunc(q.gangs, func(g diagnosis.Gang) bool { return g.Gang == key.String() })
	if i < 0 {
		return ""
	}
	return q.gangs[i].Waits
}

// describeChoice reads the scheduler's annotations of a bound pod.
func describeChoice(p *whatif.Pod, pod *v1.Pod) error {
	if text, ok := pod.Annotations[gangrequest.RankKey]; ok {
		rank, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("pod %s: annotation %s: %q: want a whole number", p.Pod, gangrequest.RankKey, text)
		}
		p.Rank = &rank
	}
	choice, err := allocation.Of(pod, pod.Spec.NodeName)
	if errors.Is(err, allocation.ErrNone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pod %s: %w", p.Pod, err)
	}
	for _, c := range choice.Containers {
		p.Devices = append(p.Devices, whatif.Devices{Container: c.Name, Resource: c.Resource, IDs: c.GPUs})
	}
	p.NUMANodes, p.CPUSet = choice.NUMANodes, choice.CPUSet
	p.GPUIndices = pod.Annotations[allocation.GPUIndicesKey]
	p.LinkClass, p.RingBandwidth = pod.Annotations[allocation.LinkClassKey], pod.Annotations[allocation.RingBandwidthKey]
	return nil
}

// describeNominated adds the devices that are kept for a pod that waits for others to end.
func (q *question) describeNominated(p *whatif.Pod, pod *v1.Pod) {
	if q.state == nil {
		return
	}
	for _, n := range q.state.Nominator.NominatedReservations() {
		if n.UID == pod.UID && len(n.GPUs) > 0 {
			p.Devices = []whatif.Devices{{IDs: n.GPUs}}
		}
	}
}

// messageOf returns the message of the scheduler, or a gate, about a pod without a node.
func messageOf(pod *v1.Pod) string {
	if i := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodScheduled && c.Message != "" }); i >= 0 {
		return pod.Status.Conditions[i].Message
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		return fmt.Sprintf("spec.schedulingGates[0] %q: the scheduler does not look at the pod before the gate is taken away", pod.Spec.SchedulingGates[0].Name)
	}
	return ""
}
