// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/bench/internal/proc"
	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

const (
	// urgentShare: one in urgentShare waiting pods is urgent, the ones created last.
	urgentShare = 10
	// backlogSettle is the time for the scheduler to settle after it tried every waiting
	// pod once.
	backlogSettle = 10 * time.Second
	// releaseEvery is the interval at which a GPU is released, and releaseTold the time
	// from the deletion of its pod to the node agent's update.
	releaseEvery = time.Second
	releaseTold  = 100 * time.Millisecond
	// releaseLimit is how long the freed GPU may stay without a pod.
	releaseLimit = time.Minute
)

// Backlog is the result of one scheduler with all GPUs in use, many pods waiting and one
// GPU released at a time.
type Backlog struct {
	Scheduler  string        `json:"scheduler"`
	Nodes      int           `json:"nodes"`
	Waiting    int           `json:"waiting"`
	Releases   int           `json:"releases"`
	CPUPercent float64       `json:"cpuPercent"` // of one core, in the window of the releases
	Attempts   float64       `json:"attemptsPerRelease"`
	Seconds    report.Sample `json:"seconds"` // from the agent's update to a binding, by release
	Median     float64       `json:"medianSeconds"`
	Worst      float64       `json:"worstSeconds"`
	Wrong      int           `json:"wrong"` // GPUs that went to a pod while a more important one waited
}

func (b *Backlog) label() string { return b.Scheduler }

// runBacklog measures each scheduler in turn on one control plane.
func runBacklog(ctx context.Context, o *options, stdout, progress io.Writer) (out []*Backlog, err error) {
	err = o.onCluster(ctx, o.Nodes[0], progress, func(c *cluster) error {
		for _, binary := range slices.DeleteFunc([]string{o.Against, o.Scheduler}, func(s string) bool { return s == "" }) {
			b, err := c.backlog(ctx, binary)
			if ctx.Err() == nil {
				err = errors.Join(err, c.clean(ctx))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", binary, err)
			}
			fmt.Fprintf(progress, "%s: %.0f %% of a core, %.0f attempts a release\n", binary, b.CPUPercent, b.Attempts)
			out = append(out, b)
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	title := fmt.Sprintf("%d nodes, %d pods waiting, %d releases of one GPU", o.Nodes[0], o.Backlog, o.Releases)
	t, err := rowsTable(title, out, []column{
		{title: "scheduler"},
		{title: "CPU, % of a core", figure: "cpuPercent"},
		{title: "attempts per release", figure: "attemptsPerRelease", decimals: 1},
		{title: "s until a pod has the GPU, median", figure: "medianSeconds", decimals: 2},
		{title: "worst", figure: "worstSeconds", decimals: 2},
		{title: "given to a less important pod", figure: "wrong"},
	})
	if err != nil {
		return out, err
	}
	return out, t.Write(stdout) // its errors name their cause
}

func (c *cluster) backlog(ctx context.Context, binary string) (*Backlog, error) {
	config, err := findProfile(profileBinding).configure(c.o.QPS)
	if err != nil {
		return nil, err
	}
	full := c.nodes * fleet.GPUs
	if err := c.createPods(ctx, findWorkload("one").pods(full, c.o.Seed, config.schedulerName)); err != nil {
		return nil, err
	}
	w, err := watchBindings(ctx, c.kube)
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	out := &Backlog{Scheduler: binary, Nodes: c.nodes, Waiting: c.o.Backlog, Releases: c.o.Releases}
	return out, c.withScheduler(ctx, binary, config, func(s *running) error {
		if _, err := collect(ctx, w, full, c.o.stall, func(int) {}); err != nil {
			return fmt.Errorf("fill the nodes: %w", err)
		}
		if err := c.createPods(ctx, backlogPods(c.o.Backlog, config.schedulerName)); err != nil {
			return err
		}
		err := wait.PollUntilContextTimeout(ctx, settlePoll*10, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
			n, err := attempts(ctx, s.client)
			return n["unschedulable"] >= float64(c.o.Backlog), err
		})
		if err != nil {
			return fmt.Errorf("wait until all were tried: %w", err)
		}
		if err := pause(ctx, backlogSettle); err != nil {
			return err
		}
		return c.releases(ctx, s, w, out)
	})
}

// backlogPods returns the waiting pods, the urgent ones last.
func backlogPods(n int, scheduler string) []*v1.Pod {
	out := make([]*v1.Pod, n)
	for i := range out {
		out[i] = newPod(fmt.Sprintf("waits-%05d", i), 1, scheduler)
		if i >= n-n/urgentShare {
			out[i].Name, out[i].Spec.PriorityClassName = fmt.Sprintf("%s-%05d", urgentName, i), urgentName
		}
	}
	return out
}

// attempts reads the number of scheduling attempts, by their result.
func attempts(ctx context.Context, client rest.Interface) (map[string]float64, error) {
	f, err := scrape(ctx, client, attemptsName)
	return f.sums(attemptsName, byLabel("result")), err
}

// releases frees one GPU after the other and fills in the results.
func (c *cluster) releases(ctx context.Context, s *running, w watch.Interface, out *Backlog) error {
	list, err := c.kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: boundPods})
	if err != nil {
		return fmt.Errorf("list the running pods: %w", err)
	}
	before, err := attempts(ctx, s.client)
	if err != nil {
		return err
	}
	begin := time.Now()
	cpu, err := proc.CPUTime(s.PID())
	if err != nil {
		return err
	}
	for i := range out.Releases {
		next := time.Now().Add(releaseEvery)
		told, err := c.release(ctx, &list.Items[i*len(list.Items)/out.Releases])
		if err != nil {
			return err
		}
		pod, err := nextBound(ctx, w, releaseLimit)
		if err != nil {
			return fmt.Errorf("release %d: %w", i, err)
		}
		out.Seconds = append(out.Seconds, since(told))
		if !strings.HasPrefix(pod.Name, urgentName) {
			out.Wrong++
		}
		if err := pause(ctx, time.Until(next)); err != nil {
			return err
		}
	}
	after, err := proc.CPUTime(s.PID())
	if err != nil {
		return err
	}
	out.CPUPercent = 100 * (after - cpu).Seconds() / since(begin)
	out.Median, out.Worst = out.Seconds.Median(), out.Seconds.Max()
	done, err := attempts(ctx, s.client)
	for result, n := range done {
		out.Attempts += (n - before[result]) / float64(out.Releases)
	}
	return err
}

// release ends a pod as kubelet and agent do, and returns the time of the agent's
// update.
func (c *cluster) release(ctx context.Context, pod *v1.Pod) (time.Time, error) {
	a, err := allocation.Parse(pod.Annotations[allocation.Key])
	if err != nil {
		return time.Time{}, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	held := v1alpha1.Allocation{
		PodUID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name, Container: "main", Resource: gpuResource,
		GPUs: a.GPUs(gpuResource), State: v1alpha1.StateConfirmed,
	}
	if err := c.tellAllocations(ctx, pod.Spec.NodeName, []v1alpha1.Allocation{held}); err != nil {
		return time.Time{}, err
	}
	if err := c.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		return time.Time{}, fmt.Errorf("end pod %s: %w", pod.Name, err)
	}
	if err := pause(ctx, releaseTold); err != nil {
		return time.Time{}, err
	}
	return time.Now(), c.tellAllocations(ctx, pod.Spec.NodeName, []v1alpha1.Allocation{})
}

// tellAllocations writes the agent's record of a node's allocations.
func (c *cluster) tellAllocations(ctx context.Context, node string, held []v1alpha1.Allocation) error {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"allocations": held}})
	if err != nil {
		return fmt.Errorf("encode the status of %s: %w", node, err)
	}
	_, err = c.dyn.Resource(v1alpha1.GroupVersionResource).Patch(ctx, node, types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", node, err)
	}
	return nil
}
