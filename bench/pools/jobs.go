// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// clients is the number of concurrent requests of the load.
const clients = 32

// gpus is the number of GPUs of each pod. It divides a node, so that all jobs find room under any
// policy: kube-scheduler spreads pods, and of mixed sizes would leave no node for the largest.
const gpus = 4

// submit creates all jobs, of one pod each, distributed over the tenants.
func (c *cluster) submit(ctx context.Context, o *options, profile string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(clients)
	for i := range o.Jobs {
		g.Go(func() error {
			_, err := c.kube.BatchV1().Jobs(tenant(i%o.Tenants)).Create(ctx, job(i, schedulerOf(profile)), metav1.CreateOptions{})
			return err // wrapped below
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("make the jobs: %w", err)
	}
	return nil
}

func job(number int, scheduler string) *batchv1.Job {
	devices := *resource.NewQuantity(gpus, resource.DecimalSI)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("job-%05d", number), Labels: map[string]string{kueue.LabelQueue: names.LocalQueue(pool, "")}},
		Spec: batchv1.JobSpec{Suspend: new(true), Template: v1.PodTemplateSpec{Spec: v1.PodSpec{
			SchedulerName: scheduler, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []v1.Container{{
				Name: "main", Image: "registry.k8s.io/pause:3.10",
				Resources: v1.ResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(2*gpus, resource.DecimalSI)},
					Limits:   v1.ResourceList{v1alpha1.DefaultResource: devices},
				},
			}},
		}}},
	}
}

// clean deletes all jobs and waits until they are gone with their pods and Workloads. Pods that our
// scheduler bound wait for the pool controller to record their end, so it runs from here on.
func (c *cluster) clean(ctx context.Context, o *options) error {
	if !c.plain.Alive() && !c.checked.Alive() {
		if err := c.plain.Restart(ctx); err != nil {
			return err // its errors name their cause
		}
	}
	all, background := metav1.ListOptions{}, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	for i := range o.Tenants {
		if err := c.kube.BatchV1().Jobs(tenant(i)).DeleteCollection(ctx, background, all); err != nil {
			return fmt.Errorf("delete the jobs of %s: %w", tenant(i), err)
		}
	}
	for i := range o.Tenants {
		err := wait.PollUntilContextTimeout(ctx, time.Second, ready, true, func(ctx context.Context) (bool, error) {
			return c.empty(ctx, tenant(i))
		})
		if err != nil {
			return fmt.Errorf("wait until the jobs of %s are gone: %w", tenant(i), err)
		}
	}
	return nil
}

// empty reports whether a namespace has no Jobs, pods and Workloads.
func (c *cluster) empty(ctx context.Context, namespace string) (bool, error) {
	one := metav1.ListOptions{Limit: 1}
	jobs, err := c.kube.BatchV1().Jobs(namespace).List(ctx, one)
	if err != nil || len(jobs.Items) > 0 {
		return false, err // the caller names the cause
	}
	pods, err := c.kube.CoreV1().Pods(namespace).List(ctx, one)
	if err != nil || len(pods.Items) > 0 {
		return false, err // the caller names the cause
	}
	left, err := c.dyn.Resource(workloads).Namespace(namespace).List(ctx, one)
	return err == nil && len(left.Items) == 0, err
}
