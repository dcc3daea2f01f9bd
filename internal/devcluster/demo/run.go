// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

const (
	// waveTimeout bounds the wait for one wave: it takes about a second, and up
	// to half a minute where a pod backed off once or twice.
	waveTimeout  = 3 * time.Minute
	pollInterval = 50 * time.Millisecond
)

// run is the state of one demo.
type run struct {
	client   kubernetes.Interface
	clock    clock.PassiveClock
	progress io.Writer

	graphs   map[string]*nvtopo.Graph // node name -> graph, from the catalogue
	machines map[string]string        // node name -> machine
	requests []request
	pods     map[string]*v1.Pod      // pod name -> as last seen bound, or refused
	released map[string][2]time.Time // pod name -> when it gave its GPUs back
}

// Run creates the waves of pods on a booted cluster and checks every placement.
// An error means that the demo could not be carried through; what the check
// found wrong is in the report.
func Run(ctx context.Context, c *devcluster.Cluster, progress io.Writer) (*Report, error) {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	r := &run{
		client: client, clock: clock.RealClock{}, progress: progress,
		graphs: map[string]*nvtopo.Graph{}, machines: map[string]string{},
		pods: map[string]*v1.Pod{}, released: map[string][2]time.Time{},
	}
	for _, n := range Nodes() {
		if r.graphs[n.Name], err = n.Graph(); err != nil {
			return nil, fmt.Errorf("the node's graph: %w", err)
		}
		r.machines[n.Name] = n.Machine
	}
	if err := r.warmUp(ctx); err != nil {
		return nil, err
	}
	waves := workload()
	for i := range waves {
		fmt.Fprintf(progress, "wave %d of %d: %s\n", i+1, len(waves), waves[i].title)
		if err := r.finish(ctx, fmt.Sprintf("barrier-%d", i), waves[i].finish); err != nil {
			return nil, err
		}
		if err := r.create(ctx, waves[i].pods); err != nil {
			return nil, err
		}
	}
	if err := r.refresh(ctx); err != nil {
		return nil, err
	}
	return r.report(), nil
}

// refresh reads the pods without a node once more: one of them may have got
// one when others finished, and its GPUs count then.
func (r *run) refresh(ctx context.Context) error {
	for name, pod := range r.pods {
		if pod.Spec.NodeName != "" {
			continue
		}
		p, err := r.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read pod %s: %w", name, err)
		}
		r.pods[name] = p
	}
	return nil
}

// create creates pods and waits until each is bound, or refused if it is impossible.
func (r *run) create(ctx context.Context, pods []request) error {
	start := r.clock.Now()
	for i := range pods {
		if _, err := r.client.CoreV1().Pods(namespace).Create(ctx, pods[i].pod(), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod %s: %w", pods[i].name, err)
		}
		r.requests = append(r.requests, pods[i])
	}
	for i := range pods {
		pod, err := r.settled(ctx, pods[i].name, pods[i].impossible)
		if err != nil {
			return err
		}
		r.pods[pod.Name] = pod
	}
	fmt.Fprintf(r.progress, "  %d pods decided in %.1f s\n", len(pods), r.clock.Since(start).Seconds())
	return nil
}

// settled waits until a pod runs, or until it was refused where that is enough.
// A pod that never gets a node is returned as it is: the report says why.
func (r *run) settled(ctx context.Context, name string, refusedIsEnough bool) (*v1.Pod, error) {
	var pod *v1.Pod // as last read, also when the last request ran out of time
	err := wait.PollUntilContextTimeout(ctx, pollInterval, waveTimeout, true, func(ctx context.Context) (bool, error) {
		p, err := r.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("read: %w", err)
		}
		pod = p
		return pod.Status.Phase == v1.PodRunning || refusedIsEnough && refusal(pod) != "", nil
	})
	if pod == nil || ctx.Err() != nil || err != nil && !wait.Interrupted(err) {
		return nil, fmt.Errorf("wait for pod %s: %w", name, errors.Join(ctx.Err(), err))
	}
	return pod, nil
}

// refusal is the scheduler's reason for not placing a pod; empty if there is none.
func refusal(pod *v1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// finish ends pods and returns when the scheduler has provably seen all of
// them end: it watches pods as one ordered stream, so it has once it has
// placed a pod that was created after their end.
func (r *run) finish(ctx context.Context, barrier string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	fmt.Fprintf(r.progress, "  %d pods finish and give their GPUs back\n", len(names))
	pods := r.client.CoreV1().Pods(namespace)
	from := r.clock.Now()
	patch := []byte(`{"metadata":{"annotations":{"` + devcluster.AnnotationRunsFor + `":"0s"}}}`)
	for _, name := range names {
		if _, err := pods.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("finish pod %s: %w", name, err)
		}
	}
	for _, name := range names {
		err := wait.PollUntilContextTimeout(ctx, pollInterval, waveTimeout, true, func(ctx context.Context) (bool, error) {
			p, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, fmt.Errorf("read: %w", err)
			}
			return p.Status.Phase == v1.PodSucceeded, nil
		})
		if err != nil {
			return fmt.Errorf("wait for pod %s to finish: %w", name, err)
		}
	}
	if err := r.pass(ctx, barrier); err != nil {
		return err
	}
	by := r.clock.Now()
	for _, name := range names {
		r.released[name] = [2]time.Time{from, by}
	}
	return nil
}

// warmUp returns when the scheduler provably knows every node's graph: it has
// placed a GPU pod on each, and has seen those pods go. A scheduler is healthy
// a moment before it has read all graphs, and pods that come in that moment
// would find fewer nodes than there are.
func (r *run) warmUp(ctx context.Context) error {
	pods := r.client.CoreV1().Pods(namespace)
	name := func(node string) string { return "warm-up-" + node }
	for node := range r.graphs {
		w := request{name: name(node), gpus: []int{1}}
		pod := w.pod()
		pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
		if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod %s: %w", pod.Name, err)
		}
	}
	for node := range r.graphs {
		pod, err := r.settled(ctx, name(node), false)
		if err != nil {
			return err
		}
		if pod.Spec.NodeName == "" {
			return fmt.Errorf("the scheduler cannot use node %s: %s", node, refusal(pod))
		}
	}
	for node := range r.graphs {
		if err := pods.Delete(ctx, name(node), metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete pod %s: %w", name(node), err)
		}
	}
	for node := range r.graphs {
		err := wait.PollUntilContextTimeout(ctx, pollInterval, waveTimeout, true, func(ctx context.Context) (bool, error) {
			_, err := pods.Get(ctx, name(node), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
		if err != nil {
			return fmt.Errorf("wait for pod %s to go: %w", name(node), err)
		}
	}
	return r.pass(ctx, "barrier-warm-up")
}

// WarmUp returns when the scheduler provably knows the graph of each of the nodes.
func WarmUp(ctx context.Context, client kubernetes.Interface, nodes []devcluster.NodeSpec) error {
	r := &run{client: client, clock: clock.RealClock{}, progress: io.Discard, graphs: map[string]*nvtopo.Graph{}, pods: map[string]*v1.Pod{}}
	for i := range nodes {
		r.graphs[nodes[i].Name] = nil // its name is enough
	}
	return r.warmUp(ctx)
}

// pass has the scheduler place a pod without GPUs and removes it again.
func (r *run) pass(ctx context.Context, barrier string) error {
	b := request{name: barrier, gpus: []int{0}}
	pod := b.pod()
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	pods := r.client.CoreV1().Pods(namespace)
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", barrier, err)
	}
	seen, err := r.settled(ctx, barrier, false)
	if err != nil {
		return err
	}
	if seen.Spec.NodeName == "" {
		return fmt.Errorf("the scheduler did not place pod %s, which asks for nothing: %s", barrier, refusal(seen))
	}
	if err := pods.Delete(ctx, barrier, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod %s: %w", barrier, err)
	}
	return nil
}
