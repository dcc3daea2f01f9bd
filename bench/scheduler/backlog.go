// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/bench/internal/proc"
	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/internal/devcluster"
	"github.com/nvtopo/nvtopo/pkg/allocation"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	// urgentName is the priority class of one waiting pod in urgentShare, the ones made
	// last, and of gangs that wait. They evict nobody.
	urgentName  = "urgent"
	urgentShare = 10
	// backlogSettle is how long the scheduler has after it tried every waiting pod once.
	backlogSettle = 10 * time.Second
	// releaseEvery is how often a GPU comes free, and releaseTold how long after its
	// pod was deleted the node's agent says so.
	releaseEvery = time.Second
	releaseTold  = 100 * time.Millisecond
	// releaseLimit is how long the freed GPU may stay without a pod.
	releaseLimit = time.Minute
)

// Backlog is what was measured of one scheduler with all GPUs in use, many pods waiting
// and one GPU at a time coming free.
type Backlog struct {
	Scheduler  string    `json:"scheduler"`
	Nodes      int       `json:"nodes"`
	Waiting    int       `json:"waiting"`
	Releases   int       `json:"releases"`
	CPUPercent float64   `json:"cpuPercent"` // of one core, in the window of the releases
	Attempts   float64   `json:"attemptsPerRelease"`
	Seconds    []float64 `json:"seconds"` // from the agent's word to a binding, by release
	Wrong      int       `json:"wrong"`   // GPUs that went to a pod while a more important one waited
}

// runBacklog measures each scheduler in turn on one control plane.
func runBacklog(ctx context.Context, o *options, stdout, progress io.Writer) (out []Backlog, err error) {
	nodes := o.Nodes[0]
	log := &devcluster.Tail{File: o.log}
	cp, err := startControlPlane(ctx, log)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, log)
	}
	defer func() { err = errors.Join(err, cp.stop()) }() //nolint:contextcheck // what was started has to end although ctx may be over
	c, err := newCluster(ctx, cp, nodes, o.Racks)
	if err != nil {
		return nil, err
	}
	for _, binary := range slices.DeleteFunc([]string{o.Against, o.Scheduler}, func(s string) bool { return s == "" }) {
		b, err := c.backlog(ctx, o, binary)
		if ctx.Err() == nil {
			err = errors.Join(err, c.clean(ctx))
		}
		if err != nil {
			return out, fmt.Errorf("%s: %w", binary, err)
		}
		fmt.Fprintf(progress, "%s: %.0f %% of a core, %.0f attempts a release\n", binary, b.CPUPercent, b.Attempts)
		out = append(out, *b)
	}
	return out, backlogTable(out).Write(stdout) // says what it was about
}

// makeUrgent makes the priority class of that name.
func makeUrgent(ctx context.Context, kube kubernetes.Interface) error {
	never := v1.PreemptNever
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgentName}, Value: 1000, PreemptionPolicy: &never}
	if _, err := kube.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a priority class: %w", err)
	}
	return nil
}

func backlogTable(all []Backlog) *report.Table {
	t := &report.Table{Header: []string{
		"scheduler", "CPU, % of a core", "attempts per release", "s until a pod has the GPU, median", "worst", "given to a less important pod",
	}}
	for i := range all {
		b := &all[i]
		t.Title = fmt.Sprintf("%d nodes, %d pods waiting, %d releases of one GPU", b.Nodes, b.Waiting, b.Releases)
		t.Add(b.Scheduler, number(b.CPUPercent, 0), number(b.Attempts, 1), number(report.Sample(b.Seconds).Median(), 2),
			number(slices.Max(b.Seconds), 2), strconv.Itoa(b.Wrong))
	}
	return t
}

func (c *cluster) backlog(ctx context.Context, o *options, binary string) (_ *Backlog, err error) {
	config, err := configure(profileBinding, o.QPS)
	if err != nil {
		return nil, err
	}
	running := c.nodes * fleet.GPUs
	if err := c.createPods(ctx, findWorkload("one").pods(running, o.Seed, config.schedulerName)); err != nil {
		return nil, err
	}
	w, err := watchBindings(ctx, c.kube)
	if err != nil {
		return nil, err
	}
	defer func() { w.stop() }()
	s, err := c.StartScheduler(ctx, devcluster.SchedulerOptions{
		Binary: binary, Config: config.yaml, ServiceAccount: systemNamespace + "/nvtopo-scheduler", Log: &devcluster.Tail{File: o.log},
	})
	if err != nil {
		return nil, fmt.Errorf("start the scheduler: %w", err)
	}
	defer func() { err = errors.Join(err, s.Kill()) }()
	client, err := newSchedulerClient(c.RESTConfig(), s.Port())
	if err != nil {
		return nil, err
	}
	defer client.close()
	if _, err := collect(ctx, w, running, o.Stall, func(int) {}); err != nil {
		return nil, fmt.Errorf("fill the nodes: %w", err)
	}
	if err := c.createPods(ctx, backlogPods(o.Backlog, config.schedulerName)); err != nil {
		return nil, err
	}
	err = wait.PollUntilContextTimeout(ctx, settlePoll*10, 5*time.Minute, true, func(ctx context.Context) (bool, error) {
		n, err := attemptsIn(ctx, client, "unschedulable")
		return n >= float64(o.Backlog), err
	})
	if err != nil {
		return nil, fmt.Errorf("wait until all were tried: %w", err)
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err() // the caller's own
	case <-time.After(backlogSettle):
	}
	out := &Backlog{Scheduler: binary, Nodes: c.nodes, Waiting: o.Backlog, Releases: o.Releases}
	return out, c.releases(ctx, client, w, s.PID(), out)
}

// backlogPods are the waiting pods, the urgent ones last.
func backlogPods(n int, scheduler string) []*v1.Pod {
	out := make([]*v1.Pod, n)
	for i := range out {
		out[i] = newPod(i, 1, scheduler)
		out[i].Name = fmt.Sprintf("waits-%05d", i)
		if i >= n-n/urgentShare {
			out[i].Name, out[i].Spec.PriorityClassName = fmt.Sprintf("%s-%05d", urgentName, i), urgentName
		}
	}
	return out
}

// attemptsIn reads how many attempts had a result, of all results if it is empty.
func attemptsIn(ctx context.Context, client *schedulerClient, result string) (float64, error) {
	body, err := client.wait(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	f, err := parseMetrics(bytes.NewReader(body), attemptsName)
	if err != nil {
		return 0, err
	}
	var sum float64
	for r, n := range f.sums(attemptsName, byLabel("result")) {
		if result == "" || r == result {
			sum += n
		}
	}
	return sum, nil
}

// releases frees one GPU after the other and fills in what came of it.
func (c *cluster) releases(ctx context.Context, client *schedulerClient, w *bindingWatch, pid int, out *Backlog) error {
	list, err := c.kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: boundPods})
	if err != nil {
		return fmt.Errorf("list the running pods: %w", err)
	}
	before, err := attemptsIn(ctx, client, "")
	if err != nil {
		return err
	}
	begin := time.Now()
	cpu, err := proc.CPUTime(pid)
	if err != nil {
		return err
	}
	for i := range out.Releases {
		next := time.Now().Add(releaseEvery)
		told, err := c.release(ctx, &list.Items[i*len(list.Items)/out.Releases])
		if err != nil {
			return err
		}
		name, err := nextBinding(ctx, w)
		if err != nil {
			return fmt.Errorf("release %d: %w", i, err)
		}
		out.Seconds = append(out.Seconds, since(told))
		if !strings.HasPrefix(name, urgentName) {
			out.Wrong++
		}
		select {
		case <-ctx.Done():
			return ctx.Err() // the caller's own
		case <-time.After(time.Until(next)):
		}
	}
	after, err := proc.CPUTime(pid)
	if err != nil {
		return err
	}
	out.CPUPercent = 100 * (after - cpu).Seconds() / since(begin)
	n, err := attemptsIn(ctx, client, "")
	out.Attempts = (n - before) / float64(out.Releases)
	return err
}

// release ends a pod as kubelet and agent do, and returns when the agent said so.
func (c *cluster) release(ctx context.Context, pod *v1.Pod) (time.Time, error) {
	a, err := allocation.Parse(pod.Annotations[allocation.Key])
	if err != nil {
		return time.Time{}, fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	held := v1alpha1.Allocation{
		PodUID: pod.UID, Namespace: pod.Namespace, Pod: pod.Name, Container: "main", Resource: v1alpha1.DefaultResource,
		GPUs: a.GPUs(v1alpha1.DefaultResource), State: v1alpha1.StateConfirmed,
	}
	if err := c.report(ctx, pod.Spec.NodeName, []v1alpha1.Allocation{held}); err != nil {
		return time.Time{}, err
	}
	if err := c.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		return time.Time{}, fmt.Errorf("end pod %s: %w", pod.Name, err)
	}
	select {
	case <-ctx.Done():
		return time.Time{}, ctx.Err() // the caller's own
	case <-time.After(releaseTold):
	}
	return time.Now(), c.report(ctx, pod.Spec.NodeName, []v1alpha1.Allocation{})
}

// report is the agent's account of a node.
func (c *cluster) report(ctx context.Context, node string, held []v1alpha1.Allocation) error {
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

// nextBinding returns the name of the next pod that is bound.
func nextBinding(ctx context.Context, w *bindingWatch) (string, error) {
	limit := time.After(releaseLimit)
	for {
		select {
		case <-ctx.Done():
			return "", ctx.Err() // the caller's own
		case <-limit:
			return "", errStalled
		case e, ok := <-w.current.ResultChan():
			bound, err := w.next(ctx, e, ok)
			if err != nil {
				return "", err
			}
			if pod, isPod := e.Object.(*v1.Pod); bound && isPod {
				return pod.Name, nil
			}
		}
	}
}
