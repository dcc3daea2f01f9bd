// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// makeOwner creates the object that stands for the Job of a gang: by their controller the scheduler tells
// members that succeeded from those of an earlier gang. It needs g.mu.
func (e *testEnv) makeOwner(ctx context.Context, g *gang) error {
	return e.try(ctx, "apply ConfigMap "+g.name, func(ctx context.Context) error {
		owner, err := e.kube.CoreV1().ConfigMaps(namespace).Apply(ctx, corev1ac.ConfigMap(g.name, namespace), metav1.ApplyOptions{FieldManager: "soak"})
		if err == nil {
			g.owner = *metav1.NewControllerRef(owner, v1.SchemeGroupVersion.WithKind("ConfigMap"))
			e.past.asks(g.owner.UID, g.want.Minimum)
		}
		return err
	})
}

func (e *testEnv) makeGroup(ctx context.Context, g *gang) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{"minMember": int64(g.want.Minimum)},
	}}
	u.SetAPIVersion(schedulingv1alpha1.SchemeGroupVersion.String())
	u.SetKind("PodGroup")
	u.SetName(g.name)
	u.SetAnnotations(gangWishes[g.want.Wish].notes)
	return e.try(ctx, "create PodGroup "+g.name, func(ctx context.Context) error {
		_, err := e.dyn.Resource(groupResource).Namespace(namespace).Create(ctx, u, metav1.CreateOptions{})
		return exists(err)
	})
}

// makeMember creates the next pod of an index. It needs g.mu.
func (e *testEnv) makeMember(ctx context.Context, g *gang, index int) error {
	p := memberOf(g, index, fmt.Sprintf("%s-%d-%d", g.name, index, g.lives[index]))
	g.lives[index]++
	return e.makePod(ctx, p)
}

func (e *testEnv) makePod(ctx context.Context, p *v1.Pod) error {
	return e.try(ctx, "create "+p.Name, func(ctx context.Context) error {
		_, err := e.kube.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
		return exists(err)
	})
}

// memberOf returns a pod with an index as a controller sets it. It needs g.mu.
func memberOf(g *gang, index int, name string) *v1.Pod {
	p := podOf(name, &podPlan{Profile: g.want.Profile, Priority: g.want.Priority, GPUs: []int{g.want.GPUs}})
	p.Labels[gangLabel] = g.name
	p.OwnerReferences = []metav1.OwnerReference{g.owner}
	p.Annotations = map[string]string{batchv1.JobCompletionIndexAnnotation: strconv.Itoa(index)}
	if g.want.Group {
		p.Labels[schedulingv1alpha1.PodGroupLabel] = g.name
		return p
	}
	p.Annotations[gangrequest.GangKey], p.Annotations[gangrequest.GangSizeKey] = g.name, strconv.Itoa(g.want.Minimum)
	maps.Copy(p.Annotations, gangWishes[g.want.Wish].notes)
	return p
}

func indexOf(p *v1.Pod) int {
	n, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil {
		return -1
	}
	return n
}
