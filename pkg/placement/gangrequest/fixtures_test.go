// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"strconv"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testobj"
)

type texts = map[string]string

// member is a waiting pod of the PodGroup ns/g.
func member(name string, change ...func(*v1.Pod)) *v1.Pod {
	return testobj.Pod(name).Namespace("ns").UID("uid-"+name).Label(schedulingv1alpha1.PodGroupLabel, "g").With(change...).Obj()
}

func label(key, value string) func(*v1.Pod) { return func(p *v1.Pod) { p.Labels[key] = value } }

func annotate(key, value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations[key] = value }
}

// plain makes the pod one of an annotated gang ns/g.
func plain(size string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		delete(p.Labels, schedulingv1alpha1.PodGroupLabel)
		p.Annotations[GangKey], p.Annotations[GangSizeKey] = "g", size
	}
}

// kueue makes the pod one of Kueue's pod group ns/g.
func kueue(count string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		delete(p.Labels, schedulingv1alpha1.PodGroupLabel)
		p.Labels[kueueGroupLabel], p.Annotations[kueueCountKey] = "g", count
	}
}

func bound(rank int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.NodeName = "node-" + p.Name
		p.Annotations[RankKey] = FormatRank(rank)
	}
}

func phase(is v1.PodPhase) func(*v1.Pod) { return func(p *v1.Pod) { p.Status.Phase = is } }

// of makes the pod one of a controller.
func of(controller string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Name: controller, UID: types.UID(controller), Controller: new(true)}}
	}
}

func index(n int) func(*v1.Pod) {
	return label("batch.kubernetes.io/job-completion-index", strconv.Itoa(n))
}

func podGroup(minimum int32, annotations texts) *schedulingv1alpha1.PodGroup {
	g := &schedulingv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: "ns", UID: "uid-g", Annotations: annotations}}
	g.Spec.MinMember = minimum
	return g
}

var groupKey = Key{SourcePodGroup, "ns", "g"}

// names are the names of the pods in their order.
func names(pods []*v1.Pod) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}
