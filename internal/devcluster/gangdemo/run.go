// SPDX-License-Identifier: Apache-2.0

package gangdemo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/internal/devcluster/demo"
	"github.com/nvtopo/nvtopo/pkg/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

const (
	// sceneTimeout bounds the wait for one scene, which takes some seconds.
	sceneTimeout = 2 * time.Minute
	pollInterval = 100 * time.Millisecond
)

// run is the state of one demo.
type run struct {
	client   kubernetes.Interface
	progress io.Writer
	nodes    []devcluster.NodeSpec
	graphs   map[string]*nvtopo.Graph
	places   map[string]place
	report   *Report
}

// Run plays all scenes on a booted cluster of Nodes. An error means that the demo could not be
// carried through; what was wrong is in the report.
func Run(ctx context.Context, c *devcluster.Cluster, progress io.Writer) (*Report, error) {
	client, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	r := &run{client: client, progress: progress, nodes: Nodes(), graphs: map[string]*nvtopo.Graph{}, places: places(), report: &Report{}}
	for i := range r.nodes {
		if r.graphs[r.nodes[i].Name], err = r.nodes[i].Graph(); err != nil {
			return nil, fmt.Errorf("the node's graph: %w", err)
		}
	}
	if err := demo.WarmUp(ctx, client, r.nodes); err != nil {
		return nil, fmt.Errorf("waiting for the scheduler: %w", err)
	}
	urgent := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgentClass}, Value: 10}
	if _, err := client.SchedulingV1().PriorityClasses().Create(ctx, urgent, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make priority class %s: %w", urgentClass, err)
	}
	for _, s := range scenes() {
		fmt.Fprintln(progress, s.title)
		if err := r.play(ctx, &s); err != nil {
			return nil, err
		}
	}
	return r.report, nil
}

// play carries a scene out and writes down what came of it.
func (r *run) play(ctx context.Context, s *scene) error {
	for _, name := range s.deleted {
		if err := r.delete(ctx, name); err != nil {
			return err
		}
	}
	if err := r.finish(ctx, s.finished); err != nil {
		return err
	}
	for _, g := range s.come {
		for rank := range g.pods {
			if err := r.create(ctx, g.member(rank)); err != nil {
				return err
			}
		}
	}
	var reasons []string
	for _, g := range s.wait {
		reason, err := r.refusal(ctx, &g)
		if err != nil {
			return err
		}
		reasons = append(reasons, g.name+" waits. "+reason)
	}
	for _, g := range s.start {
		if err := r.await(ctx, g.names()); err != nil {
			return err
		}
	}
	for _, g := range s.evicted {
		why, err := r.evicted(ctx, &g)
		if err != nil {
			return err
		}
		reasons = append(reasons, g.name+" is evicted. "+why)
	}
	return r.write(ctx, s, reasons)
}

func (r *run) create(ctx context.Context, pod *v1.Pod) error {
	if _, err := r.client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	return nil
}

// delete removes a pod and makes another of its name, as a controller does.
func (r *run) delete(ctx context.Context, name string) error {
	pods := r.client.CoreV1().Pods(namespace)
	old, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read pod %s: %w", name, err)
	}
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	err = r.until(ctx, func(ctx context.Context) (bool, error) {
		_, err := pods.Get(ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err != nil {
		return fmt.Errorf("wait for pod %s to go: %w", name, err)
	}
	notes := map[string]string{}
	for key, value := range old.Annotations {
		if slices.Contains(gangrequest.InputKeys(), key) || key == letterKey {
			notes[key] = value
		}
	}
	again := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: notes}, Spec: old.Spec}
	again.Spec.NodeName = ""
	return r.create(ctx, again)
}

// finish lets pods succeed.
func (r *run) finish(ctx context.Context, names []string) error {
	patch := []byte(`{"metadata":{"annotations":{"` + devcluster.AnnotationRunsFor + `":"0s"}}}`)
	for _, name := range names {
		if _, err := r.client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("finish pod %s: %w", name, err)
		}
	}
	return nil
}

// await waits until pods run. Those that do not are in the report: the scene goes on.
func (r *run) await(ctx context.Context, names []string) error {
	err := r.until(ctx, func(ctx context.Context) (bool, error) {
		for _, name := range names {
			pod, err := r.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, fmt.Errorf("read pod %s: %w", name, err)
			}
			if pod.Status.Phase != v1.PodRunning {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil && (ctx.Err() != nil || !wait.Interrupted(err)) {
		return err
	}
	return nil
}

// refusal waits until every member of a gang says why it waits, and returns the reason.
func (r *run) refusal(ctx context.Context, g *gang) (string, error) {
	reasons := make([]string, g.pods)
	err := r.until(ctx, func(ctx context.Context) (bool, error) {
		for rank, name := range g.names() {
			pod, err := r.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, fmt.Errorf("read pod %s: %w", name, err)
			}
			if reasons[rank] = reasonOf(g, pod); reasons[rank] == "" {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil && (ctx.Err() != nil || !wait.Interrupted(err)) {
		return "", err
	}
	if err != nil {
		r.report.problem("gang %s: not every member says why it waits: %q", g.name, reasons)
	}
	return reasons[0], nil
}

// evicted waits until no pod of a gang is left, and returns what the first one was told.
func (r *run) evicted(ctx context.Context, g *gang) (string, error) {
	err := r.until(ctx, func(ctx context.Context) (bool, error) {
		for _, name := range g.names() {
			if _, err := r.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil && (ctx.Err() != nil || !wait.Interrupted(err)) {
		return "", err
	}
	if err != nil {
		r.report.problem("gang %s: not all of its pods are evicted", g.name)
	}
	list, err := r.client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list events: %w", err)
	}
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.Name == g.nameOf(0) && e.Reason == "Preempted" {
			return e.Note + ".", nil
		}
	}
	r.report.problem("gang %s: pod %s was told nothing", g.name, g.nameOf(0))
	return "", nil
}

// reasonOf is what the scheduler wrote on a member of the gang as a whole; empty if nothing yet.
func reasonOf(g *gang, pod *v1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && strings.Contains(c.Message, "/"+g.name+": ") {
			return c.Message
		}
	}
	return ""
}

func (r *run) until(ctx context.Context, done wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, pollInterval, sceneTimeout, true, done)
}
