// SPDX-License-Identifier: Apache-2.0

package pooldemo

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster/demo"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// steady is how long the promise of a scene has to hold.
const steady = 3 * time.Second

// run is the state of one demo.
type run struct {
	*demo.Runner

	watch  *watch
	before map[string]int // by tenant, running pods that were deleted before the scene
	base   []types.UID    // pods of the elastic job's base, as they were when it had grown
}

// Run runs all scenes on a booted cluster of Nodes with Kueue; controller is the path of the pool
// controller. It returns an error if the demo could not be carried through; problems are in the pictures.
func Run(ctx context.Context, c *devcluster.Cluster, controller string, progress io.Writer) (*demo.Pictures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	runner, err := demo.NewRunner(c, progress)
	if err != nil {
		return nil, err
	}
	r := &run{Runner: runner}
	if err := r.WarmUp(ctx, Nodes()); err != nil {
		return nil, err
	}
	fmt.Fprintln(progress, "starting the pool controller, and making a pool of 64 GPUs that three tenants share")
	if err := Start(ctx, c, controller); err != nil {
		return nil, err
	}
	pods, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if r.watch, err = startWatch(ctx, pods); err != nil {
		return nil, err
	}
	if err := r.Play(ctx, r.scenes()...); err != nil {
		return nil, err
	}
	wrong, checks := r.watch.verdict()
	for _, w := range wrong {
		r.Problem("%s", w)
	}
	r.Verdict = fmt.Sprintf("shares are as computed, and at %d changes of pods nobody was beyond a limit", checks)
	return &r.Pictures, nil
}

// ready returns the condition that the pool is ready.
func (r *run) ready() demo.Condition {
	return demo.Condition{What: "the pool is ready", Must: true, Instead: func(ctx context.Context) (string, error) {
		var p poolv1alpha1.ComputePool
		if err := r.Get(ctx, client.ObjectKey{Name: pool}, &p); err != nil {
			return "", err // the runner names the condition
		}
		if p.Status.Phase != poolv1alpha1.PoolReady {
			return fmt.Sprintf("it is %q", p.Status.Phase), nil
		}
		return "", nil
	}}
}

// hold returns the condition that tenants hold exactly so many GPUs, for a while.
func (r *run) hold(want map[string]int64) demo.Condition {
	begun, since := false, time.Time{}
	return demo.Condition{What: fmt.Sprintf("tenants hold %v", want), Instead: func(context.Context) (string, error) {
		if !begun {
			begun, r.before = true, r.watch.deleted()
		}
		if _, by := r.watch.now(); !maps.Equal(by, want) {
			since = time.Time{}
			return fmt.Sprintf("they hold %v", by), nil
		}
		if since.IsZero() {
			since = r.Clock.Now()
		}
		if r.Clock.Since(since) < steady {
			return "they do, but not for long", nil
		}
		return "", nil
	}}
}

// replicas returns the condition that the elastic job reports so many replicas.
func (r *run) replicas(want int32) demo.Condition {
	return demo.Condition{What: fmt.Sprintf("%s says that it has %d replicas", elastic, want), Instead: func(ctx context.Context) (string, error) {
		var job poolv1alpha1.ElasticJob
		if err := r.Get(ctx, client.ObjectKey{Namespace: "team-a", Name: elastic}, &job); err != nil {
			return "", err // the runner names the condition
		}
		if job.Status.Replicas != want {
			return fmt.Sprintf("it says %d", job.Status.Replicas), nil
		}
		return "", nil
	}}
}

// picture shows the owners of GPUs, under the title of the scene.
func (r *run) picture(title string) func(context.Context, time.Time) error {
	return func(ctx context.Context, _ time.Time) error {
		pods, by := r.watch.now()
		waiting, err := r.waiting(ctx)
		if err != nil {
			return err
		}
		lines := []string{title}
		for tenant, n := range r.watch.deleted() {
			if n -= r.before[tenant]; n > 0 {
				lines = append(lines, fmt.Sprintf("  %d pods of %s were evicted", n, tenant))
			}
		}
		slices.Sort(lines[1:])
		show(&r.Text, strings.Join(lines, "\n"), pods, by, waiting)
		return nil
	}
}

// keepsBase shows a picture, and checks whether the elastic job's base still has the same pods; the first
// time it records them.
func (r *run) keepsBase(title string) func(context.Context, time.Time) error {
	return func(ctx context.Context, began time.Time) error {
		var list v1.PodList
		if err := r.List(ctx, &list, client.InNamespace("team-a"), client.MatchingLabels{batchv1.JobNameLabel: names.BaseJob(elastic)}); err != nil {
			return fmt.Errorf("list the pods of %s: %w", elastic, err)
		}
		var now []types.UID
		for i := range list.Items {
			now = append(now, list.Items[i].UID)
		}
		slices.Sort(now)
		if len(now) == 0 {
			r.Problem("%s: there are no pods of its minReplicas", elastic)
		}
		if r.base != nil && !slices.Equal(r.base, now) {
			r.Problem("%s: the pods of its minReplicas are not those that they were", elastic)
		}
		r.base = now
		return r.picture(title)(ctx, began)
	}
}

// waiting counts the jobs of each tenant that are suspended.
func (r *run) waiting(ctx context.Context) (map[string]int, error) {
	out := map[string]int{}
	for _, t := range tenants() {
		var list batchv1.JobList
		if err := r.List(ctx, &list, client.InNamespace(t.name)); err != nil {
			return nil, fmt.Errorf("list the jobs of %s: %w", t.name, err)
		}
		for i := range list.Items {
			if s := list.Items[i].Spec.Suspend; s != nil && *s {
				out[t.name]++
			}
		}
	}
	return out, nil
}
