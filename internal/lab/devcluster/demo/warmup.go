// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// WarmUp returns when the scheduler provably knows the graph of each of the nodes: it has placed a GPU
// pod on each, and has seen those pods go. A scheduler is healthy a moment before it has read all
// graphs, and pods that come in that moment would find fewer nodes than there are.
func (r *Runner) WarmUp(ctx context.Context, nodes []devcluster.NodeSpec) error {
	var names []string
	var pods []client.Object
	for i := range nodes {
		w := request{name: "warm-up-" + nodes[i].Name, gpus: []int{1}}
		pod := w.pod()
		pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: nodes[i].Name}
		names, pods = append(names, w.name), append(pods, pod)
	}
	if err := r.Play(ctx, Scene{Create: pods, Until: []Condition{*must(r.InPhase(v1.PodRunning, names...))}}); err != nil {
		return fmt.Errorf("find a scheduler that can use each node: %w", err)
	}
	for _, pod := range pods {
		if err := r.Delete(ctx, pod); err != nil {
			return fmt.Errorf("delete pod %s: %w", pod.GetName(), err)
		}
	}
	if err := r.Wait(ctx, must(r.Gone(names...))); err != nil {
		return err
	}
	return r.pass(ctx, "barrier-warm-up")
}

// pass returns when the scheduler has placed a pod without GPUs. The scheduler watches pods as one
// ordered stream, so it has provably seen earlier changes of other pods by then.
func (r *Runner) pass(ctx context.Context, barrier string) error {
	b := request{name: barrier, gpus: []int{0}}
	pod := b.pod()
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	if err := r.Play(ctx, Scene{Create: []client.Object{pod}, Until: []Condition{*must(r.InPhase(v1.PodRunning, barrier))}}); err != nil {
		return err
	}
	if err := r.Delete(ctx, pod); err != nil {
		return fmt.Errorf("delete pod %s: %w", barrier, err)
	}
	return nil
}
