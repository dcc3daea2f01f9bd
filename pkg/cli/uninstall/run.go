// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
)

const pollInterval = 250 * time.Millisecond

// Runner carries out a plan.
type Runner struct {
	Cluster *Cluster
	Done    func(*Step) // called for each step that is done
	// Patience bounds the wait for the pods of a program, and for objects that are being deleted.
	Patience time.Duration
}

// passes bounds the number of times that a cluster is read: objects that programs wrote while they ended
// are found the second time, and the namespace is removed by a plan of its own.
const passes = 4

// Uninstall plans and carries out until nothing is left to do, and returns the last plan: the kept
// objects, and those that others still hold. An error lists the objects that could not be removed.
func (r *Runner) Uninstall(ctx context.Context, objects []Object, opts Options) (*Removal, error) {
	for range passes {
		plan := Plan(objects, opts)
		if plan.Refused != "" {
			return plan, errors.New(plan.Refused)
		}
		if len(plan.Steps) == 0 {
			return plan, nil
		}
		if err := r.Run(ctx, plan); err != nil {
			return plan, err
		}
		var err error
		if objects, err = r.Cluster.Read(ctx); err != nil {
			return plan, err
		}
	}
	plan := Plan(objects, opts)
	if len(plan.Steps) == 0 {
		return plan, nil
	}
	names := make([]string, len(plan.Steps))
	for i := range plan.Steps {
		names[i] = plan.Steps[i].Object.String()
	}
	return plan, fmt.Errorf("somebody writes anew what was removed (%s): end nvtopo's programs that run outside of the cluster", eviction.First(names, maxNamed))
}

// Run carries out the steps in their order. A stage begins when the steps before it are done, and when the
// pods of the programs that were deleted in them have ended. An error ends the run after its stage.
func (r *Runner) Run(ctx context.Context, plan *Removal) error {
	for from := 0; from < len(plan.Steps); {
		to := from
		for to < len(plan.Steps) && plan.Steps[to].Stage == plan.Steps[from].Stage {
			to++
		}
		if err := r.stage(ctx, plan.Steps[from:to]); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// stage carries out the steps of one stage.
func (r *Runner) stage(ctx context.Context, steps []Step) error {
	var errs []error
	for i := range steps {
		if err := r.step(ctx, &steps[i]); err != nil {
			errs = append(errs, fmt.Errorf("stage %s: %s: %w", steps[i].Stage, &steps[i].Object, err))
			continue
		}
		r.Done(&steps[i])
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range steps {
		if err := r.ended(ctx, &steps[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) resource(o *Object) dynamic.ResourceInterface {
	if ns := o.GetNamespace(); ns != "" {
		return r.Cluster.dynamic.Resource(o.Resource).Namespace(ns)
	}
	return r.Cluster.dynamic.Resource(o.Resource)
}

// step deletes or changes one object. An object that is gone already, or was replaced, is left alone.
func (r *Runner) step(ctx context.Context, s *Step) error {
	o, uid := &s.Object, s.Object.GetUID()
	if s.Change != NoChange {
		return r.change(ctx, s)
	}
	policy := metav1.DeletePropagationBackground
	if s.Orphan {
		policy = metav1.DeletePropagationOrphan
	}
	err := r.resource(o).Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err // the caller names the object
}

// change reads the object and patches it, again after a conflict with another writer.
func (r *Runner) change(ctx context.Context, s *Step) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		u, err := r.resource(&s.Object).Get(ctx, s.Object.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err // the caller names the object
		}
		version := u.GetResourceVersion()
		patch, what := s.Change.patch(&Object{s.Object.Resource, u})
		if len(what) == 0 || u.GetUID() != s.Object.GetUID() {
			return nil
		}
		meta := mapAt(patch, "metadata")
		if meta == nil {
			meta = map[string]any{}
			patch["metadata"] = meta
		}
		meta["resourceVersion"] = version
		body, err := json.Marshal(patch)
		if err != nil {
			return fmt.Errorf("encode a patch: %w", err)
		}
		_, err = r.resource(&s.Object).Patch(ctx, s.Object.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: "nvtopo-uninstall"})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// ended waits until the pods of a deleted workload have ended, so that none of them writes an object
// again, and until the objects of a kind are gone before its definition is deleted.
func (r *Runner) ended(ctx context.Context, s *Step) error {
	switch {
	case s.Change != NoChange:
		return nil
	case s.Stage == StageAgent || s.Stage == StagePrograms || s.Stage == StageScheduler:
		return r.wait(ctx, "the pods of "+s.Object.String()+" end", func(ctx context.Context) (string, error) { return r.podsOf(ctx, &s.Object) })
	case s.Stage == StageMoney || s.Stage == StageDefinitions || s.Stage == StageNamespace:
		return r.wait(ctx, s.Object.String()+" is gone", func(ctx context.Context) (string, error) {
			u, err := r.resource(&s.Object).Get(ctx, s.Object.GetName(), metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err) || err == nil && u.GetUID() != s.Object.GetUID():
				return "", nil
			case err != nil:
				return "", err
			}
			return fmt.Sprintf("it is being deleted, with finalizers %v", u.GetFinalizers()), nil
		})
	}
	return nil
}

// podsOf returns the name of a pod of a workload that has not ended.
func (r *Runner) podsOf(ctx context.Context, o *Object) (string, error) {
	var selector metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(mapAt(o.Object, "spec", "selector"), &selector); err != nil {
		return "", fmt.Errorf("read the selector: %w", err)
	}
	pods, err := r.Cluster.metadata.Resource(v1.SchemeGroupVersion.WithResource("pods")).Namespace(o.GetNamespace()).
		List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&selector), Limit: 1})
	if err != nil {
		return "", fmt.Errorf("list its pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return "", nil
	}
	return "pod " + pods.Items[0].Name + " is there", nil
}

// wait polls until nothing is left to wait for. It polls again after an error.
func (r *Runner) wait(ctx context.Context, what string, left func(context.Context) (string, error)) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, pollInterval, r.Patience, true, func(ctx context.Context) (bool, error) {
		said, err := left(ctx)
		if last = err; err == nil && said != "" {
			last = errors.New(said)
		}
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait until %s, %s at most (--timeout): %w", what, r.Patience, errors.Join(last, ctx.Err()))
	}
	return nil
}
