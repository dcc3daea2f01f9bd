// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/bench/internal/proc"
	"github.com/nvtopo/nvtopo/bench/internal/report"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	// settleLimit bounds the wait for the effects of the last binding: metrics of the attempt,
	// deletions, events.
	settleLimit = 30 * time.Second
	settlePoll  = 50 * time.Millisecond
	// clients is the number of concurrent requests of the load generator.
	clients = 32
	// urgentName is the priority class of pods that are scheduled first, without preemption.
	urgentName = "urgent"
	rackLabel  = "topology.kubernetes.io/rack"
	protobuf   = "application/vnd.kubernetes.protobuf"
)

// cluster is a control plane with its nodes.
type cluster struct {
	*controlPlane
	o     *options
	kube  kubernetes.Interface
	dyn   dynamic.Interface
	nodes int
}

// runService measures all cells, those of one size on one control plane.
func runService(ctx context.Context, o *options, res *Result, progress io.Writer) ([]*report.Table, error) {
	var failure error
	for _, nodes := range o.Nodes {
		err := o.onCluster(ctx, nodes, progress, func(c *cluster) error {
			cells, err := runCells(ctx, o, nodes, c, progress)
			res.Cells = append(res.Cells, cells...)
			if err == nil && o.profile {
				err = c.storeProfiles(ctx, cells, progress)
			}
			return err
		})
		if err != nil {
			failure = fmt.Errorf("%d nodes: %w", nodes, err)
			break
		}
	}
	if len(res.Cells) == 0 {
		return nil, failure
	}
	g, err := o.group(res.Cells)
	if err != nil {
		return nil, errors.Join(failure, err)
	}
	return o.serviceTables(g), failure
}

// onCluster starts a control plane with nodes and calls do with it.
func (o *options) onCluster(ctx context.Context, nodes int, progress io.Writer, do func(*cluster) error) (err error) {
	start, log := time.Now(), &devcluster.Tail{}
	var args []string
	if o.hostile() {
		args = slices.Clone(realLimits)
	}
	if o.profile {
		args = append(args, "--profiling=true")
	}
	cp, err := startControlPlane(ctx, log, args...)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, log)
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w\nlast words of the control plane:\n%s", err, log)
		}
		err = errors.Join(err, cp.stop()) //nolint:contextcheck // what was started has to end although ctx may be over
	}()
	c, err := newCluster(ctx, cp, o, nodes)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "%d nodes: control plane and nodes made in %.1f s\n", nodes, since(start))
	return do(c)
}

// newCluster creates the nodes, in racks that a ClusterTopology names, and a priority class.
func newCluster(ctx context.Context, cp *controlPlane, o *options, nodes int) (*cluster, error) {
	config := cp.RESTConfig()
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf+",application/json"
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	never := v1.PreemptNever
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgentName}, Value: 1000, PreemptionPolicy: &never}
	if _, err := kube.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("make a priority class: %w", err)
	}
	of := fleet.Options{Devices: func(i int) v1.ResourceList { return v1.ResourceList{ownResource(i): resource.MustParse("1")} }}
	if o.Racks > 0 {
		fabric := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "ClusterTopology", "metadata": map[string]any{"name": "default"},
			"spec": map[string]any{"levels": []any{map[string]any{"name": "rack", "nodeLabel": rackLabel}}},
		}}
		if _, err := dyn.Resource(v1alpha1.ClusterTopologyGVR).Create(ctx, fabric, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("make the ClusterTopology: %w", err)
		}
		of.Labels = func(i int) map[string]string {
			return map[string]string{rackLabel: fmt.Sprintf("rack-%03d", i*o.Racks/nodes)}
		}
	}
	return &cluster{controlPlane: cp, o: o, kube: kube, dyn: dyn, nodes: nodes}, fleet.Add(ctx, kube, dyn, nodes, of)
}

// recording is the parameters of an additional cell that only stores profiles.
type recording struct {
	files  string // prefix of their names
	length time.Duration
}

// storeProfiles runs one more cell of each kind and stores CPU profiles of scheduler and API server,
// over the median window of the cells before, and the scheduler's heap profile after that.
func (c *cluster) storeProfiles(ctx context.Context, cells []Cell, progress io.Writer) error {
	g, err := c.o.group(cells)
	if err != nil {
		return err
	}
	for _, p := range c.o.plans(c.nodes, progress) {
		for _, p.profile = range c.o.Profiles {
			p.repeat = c.o.Repeats
			window := g.sample(key{c.nodes, p.workload.name, p.profile}, "windowSeconds", nil).Median()
			r := &recording{
				files:  filepath.Join(c.o.out, fmt.Sprintf("bench-scheduler-%d-%s-%s", c.nodes, p.workload.name, p.profile)),
				length: time.Duration(window * float64(time.Second)),
			}
			if _, err := c.cell(ctx, &p, r); err != nil {
				return fmt.Errorf("profiles of workload %s, %s: %w", p.workload.name, p.profile, err)
			}
			fmt.Fprintf(progress, "stored %s.{cpu,api-server.cpu,heap}.pprof\n", r.files)
		}
	}
	return nil
}

func (c *cluster) measure(ctx context.Context, p *plan) (*Cell, error) { return c.cell(ctx, p, nil) }

// cell measures one cell and leaves no pod behind.
func (c *cluster) cell(ctx context.Context, p *plan, r *recording) (_ *Cell, err error) {
	begin := time.Now()
	out := &Cell{Nodes: c.nodes, Workload: p.workload.name, Profile: p.profile, Repeat: p.repeat, Pods: p.pods, Service: &Service{}}
	config, err := findProfile(p.profile).configure(c.o.QPS)
	if err != nil {
		return nil, err
	}
	defer func() {
		if ctx.Err() == nil { // otherwise the whole control plane is about to be removed
			err = errors.Join(err, c.clean(ctx))
		}
		out.ElapsedSeconds = since(begin)
	}()
	stop, err := c.surround(ctx, findProfile(p.profile), out)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return nil, err
	}
	if err := c.createWaiting(ctx, p, config); err != nil {
		return nil, err
	}
	if err := c.createPods(ctx, p.workload.pods(p.pods, c.o.Seed, config.schedulerName)); err != nil {
		return nil, err
	}
	before, err := c.writes(ctx)
	if err != nil {
		return nil, err
	}
	w, err := watchBindings(ctx, c.kube)
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	err = c.withScheduler(ctx, c.o.binary(p.profile), config, func(s *running) error { return c.schedule(ctx, p, s, w, r, out) })
	if err != nil {
		return nil, err
	}
	return out, c.countWrites(ctx, before, out)
}

// parallel calls do for each of n, some at a time, until one fails.
func parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

func (c *cluster) createPods(ctx context.Context, pods []*v1.Pod) error {
	return parallel(ctx, len(pods), func(ctx context.Context, i int) error {
		if _, err := c.kube.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pods[i], metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make pod %s: %w", pods[i].Name, err)
		}
		return nil
	})
}

// createWaiting creates the pods that wait beside the workload's, and runs a scheduler until each
// has a reason in its status. So the one-time cost of a pod that begins to wait is before the
// window.
func (c *cluster) createWaiting(ctx context.Context, p *plan, config *configuration) error {
	pods := p.workload.waitingPods(config.schedulerName)
	if len(pods) == 0 {
		return nil
	}
	if err := c.createPods(ctx, pods); err != nil {
		return err
	}
	return c.withScheduler(ctx, c.o.binary(p.profile), config, func(s *running) error {
		told := 0
		err := wait.PollUntilContextTimeout(ctx, settlePoll, settleLimit, true, func(ctx context.Context) (bool, error) {
			list, err := c.kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
			if err != nil {
				return false, err // wrapped below
			}
			told = 0
			for i := range list.Items {
				if slices.ContainsFunc(list.Items[i].Status.Conditions, saysWhy) {
					told++
				}
			}
			return told == len(pods), nil
		})
		if err != nil {
			return fmt.Errorf("%d of %d waiting pods say why: %w\n%s", told, len(pods), err, s.log)
		}
		return nil
	})
}

func saysWhy(c v1.PodCondition) bool {
	return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable
}

// running is a scheduler with the end of its log and a client of its own server.
type running struct {
	*devcluster.Scheduler
	log    *devcluster.Tail
	client rest.Interface
}

// withScheduler calls do while a scheduler runs.
func (c *cluster) withScheduler(ctx context.Context, binary string, config *configuration, do func(*running) error) (err error) {
	s := &running{log: &devcluster.Tail{}}
	s.Scheduler, err = c.StartScheduler(ctx, devcluster.SchedulerOptions{
		Binary: binary, Config: config.yaml, ServiceAccount: release.Namespace + "/nvtopo-scheduler", Log: s.log,
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.log)
	}
	defer func() { err = errors.Join(err, s.Kill()) }()
	if s.client, err = newSchedulerClient(c.RESTConfig(), s.Port()); err != nil {
		return err
	}
	return do(s)
}

// schedule waits until a scheduler has bound all waiting pods, which w shows, and fills in the
// figures.
func (c *cluster) schedule(ctx context.Context, p *plan, s *running, w watch.Interface, r *recording, out *Cell) error {
	client := s.client
	stopSampling := startSampling(ctx, s.PID(), c.pid)
	if _, err := get(ctx, client, "/readyz"); err != nil { // it has seen every object and schedules
		_, _ = stopSampling() // the error is reported anyway
		return fmt.Errorf("%w\n%s", err, s.log)
	}
	meanwhile, _ := errgroup.WithContext(ctx)
	record := func() {
		if r == nil {
			return
		}
		uri := fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, (r.length+time.Second-1)/time.Second))
		meanwhile.Go(func() error { return store(ctx, client, uri, r.files+".cpu.pprof") })
		meanwhile.Go(func() error { return store(ctx, c.kube.Discovery().RESTClient(), uri, r.files+".api-server.cpu.pprof") })
	}
	first := p.workload.first(p.pods)
	if first == 0 {
		record()
	}
	bound, err := collect(ctx, w, p.pods, c.o.stall, func(n int) {
		if n == first && n > 0 {
			meanwhile.Go(func() error { return out.countGraphs(ctx, client) })
			record()
		}
	})
	used, cpuErr := stopSampling()
	switch {
	case errors.Is(err, errStalled):
		return fmt.Errorf("%w: %s\n%s", err, refusal(ctx, c.kube), s.log)
	case err != nil || cpuErr != nil:
		return errors.Join(err, cpuErr)
	}
	out.window(bound, used, first)
	peak, err := proc.Peak(s.PID())
	if err != nil {
		return err
	}
	out.SchedulerPeakMiB = float64(peak) / (1 << 20)
	err = errors.Join(out.readMetrics(ctx, client), meanwhile.Wait(), out.holdStill(ctx, c.o.Hold, s.PID(), c.pid), out.readHeap(ctx, client))
	if err != nil || r == nil {
		return err
	}
	return store(ctx, client, "/debug/pprof/heap?gc=1", r.files+".heap.pprof")
}

// clean deletes pods and events and waits until the pods are gone, so that each cell starts from the
// same state.
func (c *cluster) clean(ctx context.Context) error {
	now, all := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, metav1.ListOptions{}
	pods := c.kube.CoreV1().Pods(metav1.NamespaceDefault)
	if err := pods.DeleteCollection(ctx, now, all); err != nil {
		return fmt.Errorf("delete the pods: %w", err)
	}
	err := wait.PollUntilContextTimeout(ctx, settlePoll, settleLimit, true, func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, err // wrapped below
		}
		return len(list.Items) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the pods are gone: %w", err)
	}
	if err := c.kube.EventsV1().Events(metav1.NamespaceDefault).DeleteCollection(ctx, now, all); err != nil {
		return fmt.Errorf("delete the events: %w", err)
	}
	return nil
}
