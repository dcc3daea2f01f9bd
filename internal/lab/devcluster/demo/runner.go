// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

const (
	// sceneTimeout limits the wait for one condition, which takes seconds, and up to half a minute where a
	// pod backed off once or twice.
	sceneTimeout = 3 * time.Minute
	pollInterval = 50 * time.Millisecond
)

// Scene is one step of a demo, as data. Its fields are carried out in their order.
type Scene struct {
	Title   string   // empty: it goes with the scene before
	EndJobs []string // namespaces, of which all Jobs are deleted
	Again   []string // pods of the demo's namespace that die and are made again, as a controller does
	Finish  []Pods   // that succeed
	Create  []client.Object
	Until   []Condition // one after the other
	// Show returns the outcome of the scene, which began then; nil for none.
	Show func(ctx context.Context, began time.Time) error
}

// Pods are the pod of a name, or those of a namespace that run; of one Job if that is named.
type Pods struct{ Namespace, Name, Job string }

// Named are pods of the demo's namespace.
func Named(names ...string) (out []Pods) {
	for _, name := range names {
		out = append(out, Pods{Namespace: namespace, Name: name})
	}
	return out
}

// Condition is an awaited state of a scene. One that is not met in time is a problem, and the demo
// continues.
type Condition struct {
	What string // the awaited state
	Must bool   // else the demo ends
	// Instead returns the present state; "" once the condition is met. After an error it is called again.
	Instead func(ctx context.Context) (string, error)
}

// Runner plays scenes on a cluster.
type Runner struct {
	client.Client
	Pictures

	Progress io.Writer
	Clock    clock.PassiveClock
}

// NewRunner returns a Runner that can read the kinds of Kubernetes and of pools.
func NewRunner(c *devcluster.Cluster, progress io.Writer) (*Runner, error) {
	scheme := runtime.NewScheme()
	err := errors.Join(clientgoscheme.AddToScheme(scheme), poolv1alpha1.AddToScheme(scheme))
	r := &Runner{Progress: progress, Clock: clock.RealClock{}}
	if err == nil {
		config := c.RESTConfig()
		config.WarningHandler = rest.NoWarnings{} // else controller-runtime logs them, which has no logger here
		r.Client, err = client.New(config, client.Options{Scheme: scheme})
	}
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return r, nil
}

// Play runs scenes. It returns an error if they could not be carried through.
func (r *Runner) Play(ctx context.Context, scenes ...Scene) error {
	for i := range scenes {
		if err := r.play(ctx, &scenes[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) play(ctx context.Context, s *Scene) error {
	began := r.Clock.Now()
	if s.Title != "" {
		fmt.Fprintln(r.Progress, s.Title)
	}
	for _, of := range s.EndJobs {
		if err := r.DeleteAllOf(ctx, &batchv1.Job{}, client.InNamespace(of), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return fmt.Errorf("end the jobs of %s: %w", of, err)
		}
	}
	for _, name := range s.Again {
		if err := r.again(ctx, name); err != nil {
			return err
		}
	}
	for _, pods := range s.Finish {
		if err := r.finish(ctx, pods); err != nil {
			return err
		}
	}
	for _, o := range s.Create {
		if err := r.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	for i := range s.Until {
		if err := r.Wait(ctx, &s.Until[i]); err != nil {
			return err
		}
	}
	if s.Show == nil {
		return nil
	}
	return s.Show(ctx, began)
}

// Wait waits for a condition.
func (r *Runner) Wait(ctx context.Context, c *Condition) error {
	instead, last := "", error(nil)
	err := wait.PollUntilContextTimeout(ctx, pollInterval, sceneTimeout, true, func(ctx context.Context) (bool, error) {
		if said, err := c.Instead(ctx); err == nil || ctx.Err() == nil {
			instead, last = said, err
		}
		return instead == "" && last == nil, nil
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case last != nil:
		return fmt.Errorf("wait until %s: %w", c.What, last)
	case c.Must:
		return fmt.Errorf("wait until %s: not within %v: %s", c.What, sceneTimeout, instead)
	}
	r.Problem("not within %v: %s: %s", sceneTimeout, c.What, instead)
	return nil
}

// Pod reads a pod of the demo's namespace.
func (r *Runner) Pod(ctx context.Context, name string) (*v1.Pod, error) {
	pod := &v1.Pod{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
		return nil, fmt.Errorf("read pod %s: %w", name, err)
	}
	return pod, nil
}

// InPhase returns the condition that pods of the demo's namespace are in a phase.
func (r *Runner) InPhase(phase v1.PodPhase, names ...string) Condition {
	return Condition{What: fmt.Sprintf("pods %v are %s", names, phase), Instead: func(ctx context.Context) (string, error) {
		for _, name := range names {
			pod, err := r.Pod(ctx, name)
			if err != nil {
				return "", err
			}
			if pod.Status.Phase != phase {
				return fmt.Sprintf("pod %s is %s", name, pod.Status.Phase), nil
			}
		}
		return "", nil
	}}
}

// Gone returns the condition that pods of the demo's namespace are gone.
func (r *Runner) Gone(names ...string) Condition {
	return Condition{What: fmt.Sprintf("pods %v are gone", names), Instead: func(ctx context.Context) (string, error) {
		for _, name := range names {
			if _, err := r.Pod(ctx, name); !apierrors.IsNotFound(err) {
				return "pod " + name + " is there", err
			}
		}
		return "", nil
	}}
}

// must returns a condition without which the demo ends.
func must(c Condition) *Condition {
	c.Must = true
	return &c
}

// again deletes a pod and creates another of its name.
func (r *Runner) again(ctx context.Context, name string) error {
	old, err := r.Pod(ctx, name)
	if err != nil {
		return err
	}
	if err := r.Delete(ctx, old); err != nil {
		return fmt.Errorf("delete pod %s: %w", name, err)
	}
	if err := r.Wait(ctx, must(r.Gone(name))); err != nil {
		return err
	}
	notes := map[string]string{}
	for key, value := range old.Annotations {
		if slices.Contains(gangrequest.InputKeys(), key) || key == LetterKey {
			notes[key] = value
		}
	}
	anew := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: notes}, Spec: old.Spec}
	anew.Spec.NodeName = ""
	if err := r.Create(ctx, anew); err != nil {
		return fmt.Errorf("create pod %s: %w", name, err)
	}
	return nil
}

// finish lets pods succeed.
func (r *Runner) finish(ctx context.Context, of Pods) error {
	list := &v1.PodList{}
	if of.Name != "" {
		list.Items = []v1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: of.Namespace, Name: of.Name}, Status: v1.PodStatus{Phase: v1.PodRunning}}}
	} else {
		which := []client.ListOption{client.InNamespace(of.Namespace)}
		if of.Job != "" {
			which = append(which, client.MatchingLabels{batchv1.JobNameLabel: of.Job})
		}
		if err := r.List(ctx, list, which...); err != nil {
			return fmt.Errorf("list the pods of %s: %w", of.Namespace, err)
		}
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+devcluster.AnnotationRunsFor+`":"0s"}}}`))
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Status.Phase != v1.PodRunning {
			continue
		}
		if err := r.Patch(ctx, pod, patch); err != nil {
			return fmt.Errorf("let pod %s succeed: %w", pod.Name, err)
		}
	}
	return nil
}
