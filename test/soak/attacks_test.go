// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

const (
	burstLabel   = "soak/burst"
	hostileLabel = "soak/hostile-gang"
	// fewGangs and few bound the hostile tenant's objects beside a burst: gangs, and pods of each kind.
	fewGangs, few = 5, 8
	// mostAnnotations is the number of annotations that the policies allow.
	mostAnnotations = 512
)

// attack is one action of the hostile tenant.
type attack struct {
	name      string
	weight    int
	forbidden bool // it must be refused
	do        func(*hostile, context.Context) error
}

// attacks is the only table of the hostile tenant's actions and their weights.
var attacks = []attack{
	{name: "a gang without devices that cannot fit", weight: 6, do: (*hostile).cpuGang},
	{name: "a gang whose minimum is above what fits", weight: 6, do: (*hostile).greedyGang},
	{name: "a gang that others keep from starting", weight: 3, do: (*hostile).waitingGang},
	{name: "a gang with the name of another tenant's", weight: 5, do: (*hostile).namesake},
	{name: "a malformed annotation", weight: 16, do: (*hostile).malformed},
	{name: "a burst of impossible pods", weight: 2, do: (*hostile).impossible},
	{name: "hundreds of annotations", weight: 4, do: (*hostile).longPod},
	{name: "too many annotations", weight: 2, forbidden: true, do: (*hostile).tooLongPod},
	{name: "a pod with outputs of ours", weight: 4, forbidden: true, do: (*hostile).forgedPod},
	{name: "outputs of ours on a pod that is there", weight: 4, forbidden: true, do: (*hostile).forge},
	{name: "the state of a gang on its PodGroup", weight: 3, forbidden: true, do: (*hostile).forgedGroup},
	{name: "a pod in another tenant's namespace", weight: 2, forbidden: true, do: (*hostile).trespass},
	{name: "an edit of another tenant's PodGroup", weight: 2, forbidden: true, do: (*hostile).editForeign},
	{name: "a false owner", weight: 6, do: (*hostile).falseOwner},
	{name: "a pod that runs", weight: 6, do: (*hostile).running},
	{name: "an edit of a pod", weight: 12, do: (*hostile).editPod},
	{name: "an edit of a PodGroup", weight: 10, do: (*hostile).editGroup},
	{name: "a deletion", weight: 8, do: (*hostile).remove},
}

func (h *hostile) name(of string) string {
	h.made++
	return fmt.Sprintf("%s-%05d", of, h.made)
}

// one returns a random element.
func one[T any](h *hostile, of ...T) T { return of[h.random.IntN(len(of))] }

// pod returns a pod with a number of GPUs.
func (h *hostile) pod(name string, gpus int) *v1.Pod {
	return testobj.Pod(name).Namespace(hostileNamespace).Annotations(map[string]string{}).
		Scheduler(one(h, profiles...)).GracePeriod(time.Second).Containers(container("main", gpus)).Obj()
}

func (h *hostile) create(ctx context.Context, p *v1.Pod) error {
	_, err := h.kube.CoreV1().Pods(hostileNamespace).Create(ctx, p, metav1.CreateOptions{})
	return err
}

// add creates a pod of a kind. If there are more than a few of it, the oldest is deleted.
func (h *hostile) add(ctx context.Context, kind string, p *v1.Pod) error {
	if err := h.create(ctx, p); err != nil {
		return err
	}
	h.pods[kind] = append(h.pods[kind], p.Name)
	if len(h.pods[kind]) <= few {
		return nil
	}
	oldest := h.pods[kind][0]
	h.pods[kind] = h.pods[kind][1:]
	return gone(h.kube.CoreV1().Pods(hostileNamespace).Delete(ctx, oldest, metav1.DeleteOptions{}))
}

// gang creates a gang of pods that change modifies first, with a PodGroup or with annotations. If there
// are more than a few gangs, the oldest is deleted.
func (h *hostile) gang(ctx context.Context, name string, members, minimum, gpus int, change func(*v1.Pod)) error {
	h.gangs = append(h.gangs, name)
	if len(h.gangs) > fewGangs {
		if err := h.drop(ctx, h.gangs[0]); err != nil {
			return err
		}
		h.gangs = h.gangs[1:]
	}
	group := one(h, true, false)
	if group {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": int64(minimum)}}}
		u.SetAPIVersion(schedulingv1alpha1.SchemeGroupVersion.String())
		u.SetKind("PodGroup")
		u.SetName(name)
		u.SetAnnotations(gangWishes[h.random.IntN(len(gangWishes))].notes)
		if _, err := h.dyn.Resource(groupResource).Namespace(hostileNamespace).Create(ctx, u, metav1.CreateOptions{}); exists(err) != nil {
			return err
		}
		h.groups = append(h.groups, name)
	}
	profile := one(h, profiles...)
	for range members {
		p := h.pod(h.name("member"), gpus)
		p.Spec.SchedulerName = profile
		p.Labels[hostileLabel] = name
		if group {
			p.Labels[schedulingv1alpha1.PodGroupLabel] = name
		} else {
			p.Annotations[gangrequest.GangKey], p.Annotations[gangrequest.GangSizeKey] = name, strconv.Itoa(minimum)
		}
		change(p)
		if err := h.create(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// drop deletes a gang.
func (h *hostile) drop(ctx context.Context, name string) error {
	h.groups = slices.DeleteFunc(h.groups, func(g string) bool { return g == name })
	return errors.Join(
		h.kube.CoreV1().Pods(hostileNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: hostileLabel + "=" + name}),
		gone(h.dyn.Resource(groupResource).Namespace(hostileNamespace).Delete(ctx, name, metav1.DeleteOptions{})))
}

// cpuGang has one member more than there are nodes, at most one on each.
func (h *hostile) cpuGang(ctx context.Context) error {
	name, members := h.name("cpus"), len(h.w.boxes)+1
	return h.gang(ctx, name, members, members, 0, func(p *v1.Pod) {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
			TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{hostileLabel: name}},
		}}}}
	})
}

// greedyGang requests more GPUs of one model than exist, sometimes with a high priority, or more members
// than are created.
func (h *hostile) greedyGang(ctx context.Context) error {
	class := one(h, "", "", priorities[len(priorities)-1].name)
	set := func(p *v1.Pod) { p.Spec.PriorityClassName = class }
	if h.random.IntN(2) == 0 {
		return h.gang(ctx, h.name("many"), 3, one(h, 4, 500, 1_000_000), 1, set)
	}
	return h.gang(ctx, h.name("greedy"), 12, 12, 8, set)
}

// waitingGang fits only on nodes without other pods.
func (h *hostile) waitingGang(ctx context.Context) error {
	return h.gang(ctx, h.name("waits"), 3, 3, 8, func(*v1.Pod) {})
}

// namesake takes the name of another tenant's gang, or requests to be near it.
func (h *hostile) namesake(ctx context.Context) error {
	all := h.w.gangs.list()
	if len(all) == 0 {
		return h.cpuGang(ctx)
	}
	name := one(h, all...).name
	if h.random.IntN(3) == 0 {
		p := h.pod(h.name("near"), 0)
		p.Annotations[gangrequest.NearKey] = name
		return h.add(ctx, "near", p)
	}
	members := len(h.w.boxes) + 1
	return h.gang(ctx, name, 3, members, one(h, 0, 1, 8), func(*v1.Pod) {})
}

// inputs are the annotations that users may set.
var inputs = slices.Concat(slices.Sorted(slices.Values(podrequest.InputKeys())), []string{
	gangrequest.StrategyKey, gangrequest.RequiredKey, gangrequest.PreferredKey, gangrequest.SegmentSizeKey, gangrequest.RequiredSegmentKey,
	gangrequest.PreferredSegmentKey, gangrequest.SpreadOverKey, gangrequest.MaxPerDomainKey, gangrequest.PatienceKey, gangrequest.RankOrderKey,
	gangrequest.GangKey, gangrequest.GangSizeKey, gangrequest.NearKey,
})

// junk returns a value that no parser expects.
func (h *hostile) junk() string {
	return one(h, "", " ", "-1", "0", "NaN", "1e309", "1e-100000000", "99999999999999999999", "2147483648", "true", "{}", "null", "\"",
		"rеstricted", "a/\u202eb", "\x1b[2J", "rack\nspine", "rack", "NVLINK", "NV65", "9223372036854775807h", "..", strings.Repeat("A", 1024), strings.Repeat("B", 1025),
		strings.Repeat("7", 300), strings.Repeat("a,", 400))
}

// malformed is a pod, a gang's member or a PodGroup with junk for a value.
func (h *hostile) malformed(ctx context.Context) error {
	key := one(h, inputs...)
	if h.random.IntN(4) == 0 {
		return h.gang(ctx, h.name("junk"), 2, one(h, 2, 3), 1, func(p *v1.Pod) { p.Annotations[key] = h.junk() })
	}
	p := h.pod(h.name("junk"), one(h, 0, 1, 2))
	p.Annotations[key] = h.junk()
	if h.random.IntN(3) == 0 {
		p.Annotations[one(h, inputs...)] = h.junk()
	}
	return h.add(ctx, "junk", p)
}

// impossible replaces the previous burst by a burst of pods that fit nowhere.
func (h *hostile) impossible(ctx context.Context) error {
	err := h.kube.CoreV1().Pods(hostileNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: burstLabel})
	if err != nil {
		return err
	}
	kind := h.random.IntN(4)
	for range h.burst {
		p := h.pod(h.name("burst"), 1)
		p.Labels[burstLabel] = "true"
		switch kind {
		case 0:
			p.Spec.Containers[0] = container("main", 64)
		case 1:
			p.Spec.Containers[0] = container("main", 2) // one GPU has no links to request
			p.Annotations[podrequest.MinBandwidthKey] = "1000000"
		case 2:
			p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "nowhere"}
		default:
			p.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("1Ei")
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{gpuResource: resource.MustParse("1")}
		}
		if err := h.create(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func (h *hostile) annotated(n int) *v1.Pod {
	p := h.pod(h.name("long"), 1)
	for i := range n {
		p.Annotations[fmt.Sprintf("example.com/key-%d", i)] = strconv.Itoa(i)
	}
	return p
}

func (h *hostile) longPod(ctx context.Context) error {
	return h.add(ctx, "long", h.annotated(100+h.random.IntN(mostAnnotations-99)))
}

func (h *hostile) tooLongPod(ctx context.Context) error {
	return h.create(ctx, h.annotated(mostAnnotations+1+h.random.IntN(1500)))
}

// falseOwner names a controller that does not exist, or one of another tenant, and has long inputs.
func (h *hostile) falseOwner(ctx context.Context) error {
	p := h.pod(h.name("owned"), one(h, 0, 1))
	ref := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "nobody", UID: "00000000-0000-0000-0000-000000000000", Controller: new(true)}
	if all := h.w.gangs.list(); len(all) > 0 && h.random.IntN(2) == 0 {
		g := one(h, all...)
		g.mu.Lock()
		ref = g.owner
		g.mu.Unlock()
	}
	p.OwnerReferences = []metav1.OwnerReference{ref}
	p.Annotations[one(h, inputs...)] = h.junk()
	return h.add(ctx, "owned", p)
}

func (h *hostile) running(ctx context.Context) error {
	return h.add(ctx, "running", h.pod(h.name("runs"), one(h, 1, 1, 2)))
}

// editPod changes an input, a label or the requested number of members of a pod's gang.
func (h *hostile) editPod(ctx context.Context) error {
	own := h.own()
	if len(own) == 0 {
		return errNothing
	}
	name := one(h, own...).Name
	switch h.random.IntN(4) {
	case 0:
		return h.patchPod(ctx, name, map[string]any{"annotations": map[string]any{gangrequest.GangSizeKey: one(h, "1", "2", "400")}})
	case 1:
		return h.patchPod(ctx, name, map[string]any{"labels": map[string]any{schedulingv1alpha1.PodGroupLabel: one(h, h.name("other"), "")}})
	case 2:
		return h.patchPod(ctx, name, map[string]any{"annotations": map[string]any{one(h, inputs...): nil}})
	}
	return h.patchPod(ctx, name, map[string]any{"annotations": map[string]any{one(h, inputs...): h.junk()}})
}

func (h *hostile) editGroup(ctx context.Context) error {
	if len(h.groups) == 0 {
		return errNothing
	}
	name := one(h, h.groups...)
	switch h.random.IntN(3) {
	case 0:
		return h.patchGroup(ctx, hostileNamespace, name, map[string]any{"spec": map[string]any{"minMember": one(h, 0, 1, 2, 15, 1<<31-1)}})
	case 1:
		return h.patchGroup(ctx, hostileNamespace, name, map[string]any{"spec": map[string]any{"scheduleTimeoutSeconds": one(h, -1, 0, 1, 1<<31-1)}})
	}
	return h.patchGroup(ctx, hostileNamespace, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{one(h, inputs...): h.junk()}}})
}

// remove deletes a pod, a PodGroup or a gang.
func (h *hostile) remove(ctx context.Context) error {
	own := h.own()
	switch kind := h.random.IntN(4); {
	case len(own) == 0 || len(h.gangs) == 0:
		return errNothing
	case kind == 0:
		return gone(h.dyn.Resource(groupResource).Namespace(hostileNamespace).Delete(ctx, one(h, h.gangs...), metav1.DeleteOptions{}))
	case kind == 1:
		return h.drop(ctx, one(h, h.gangs...))
	}
	return gone(h.kube.CoreV1().Pods(hostileNamespace).Delete(ctx, one(h, own...).Name, metav1.DeleteOptions{GracePeriodSeconds: one[*int64](h, nil, new(int64(0)))}))
}
