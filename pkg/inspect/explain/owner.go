// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/release"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// The labels by which pods name the object that they are of over one or more objects in between.
const (
	podTemplateHash = "pod-template-hash" // of a Deployment's ReplicaSet, whose name ends in it
	jobSetName      = "jobset.sigs.k8s.io/jobset-name"
	lwsName         = "leaderworkerset.sigs.k8s.io/name"
)

// Owners are the kinds of objects whose pods Owner finds, in the order in which a plain name is looked for.
func Owners() []string {
	return []string{"Job", "ElasticJob", "Deployment", "StatefulSet", "JobSet", "LeaderWorkerSet", "ReplicaSet"}
}

// isOf reports whether a pod is one of an object of these kinds. It goes by the pod alone: whoever explains may not
// read these objects.
func isOf(p *v1.Pod, kind, name string) bool {
	switch kind {
	case "JobSet":
		return p.Labels[jobSetName] == name
	case "LeaderWorkerSet":
		return p.Labels[lwsName] == name
	}
	o := metav1.GetControllerOf(p)
	if o == nil {
		return false
	}
	if kind == "Deployment" { // its ReplicaSets have its name, a dash and the hash of the template, which their pods have as a label
		hash := p.Labels[podTemplateHash]
		return o.Kind == "ReplicaSet" && hash != "" && o.Name == name+"-"+hash
	}
	return o.Kind == kind && o.Name == name
}

// Job explains a Job by its quota and by the first of its pods that waits, or by its pods alone where it
// may not be read; ErrNotFound if there is none.
func Job(w *World, namespace, name string) (*Explanation, error) {
	return Owner(w, "Job", namespace, name)
}

// Owner explains the pods of an object of one of the Owners: the first that waits in full, and how many there are of
// which others. ErrNotFound if there is neither a pod of it nor a Workload.
func Owner(w *World, kind, namespace, name string) (*Explanation, error) {
	switch kind {
	case "ElasticJob":
		return elasticJob(w, namespace, name)
	case "Job":
		if j := find(w.Jobs, namespace, name); j != nil {
			return newScene(w).explainJob(j), nil
		}
	}
	s := newScene(w)
	var pods []*v1.Pod
	for i := range w.Pods {
		if p := &w.Pods[i]; p.Namespace == namespace && isOf(p, kind, name) {
			pods = append(pods, p)
		}
	}
	e := &Explanation{Kind: kind, Namespace: namespace, Name: name, State: Pending}
	if len(pods) > 0 {
		return s.explainPodsOf(e, pods), nil
	}
	if wl := s.quota.workloadOfKind(kind, namespace, name); wl != nil {
		s.explainQuota(e, nil, nil, wl)
		return e, nil
	}
	return nil, fmt.Errorf("%s %s/%s, or a pod of it: %w", kind, namespace, name, ErrNotFound)
}

// explainPodsOf explains the pods of an object: the first that waits, or else has not ended, stands for it.
func (s *scene) explainPodsOf(e *Explanation, pods []*v1.Pod) *Explanation {
	order := slices.Clone(pods)
	slices.SortStableFunc(order, func(a, b *v1.Pod) int { return cmp.Or(cmp.Compare(turn(a), turn(b)), strings.Compare(a.Name, b.Name)) })
	what := e.Kind
	if what == "Job" {
		what = "job"
	}
	of := s.explainPod(order[0])
	of.Evidence = append([]string{"pod " + order[0].Name + " stands for the " + what}, of.Evidence...)
	of.Kind, of.Name = e.Kind, e.Name
	if len(order) > 1 {
		of.Pods = s.alike(order, of)
	}
	return of
}

// turn is in which order the pods of an object are looked at: those that wait, those that have a node, those that
// have ended.
func turn(p *v1.Pod) int {
	return slices.Index([]State{Pending, Bound, Ended}, stateOf(p))
}

func stateOf(p *v1.Pod) State {
	switch {
	case ended(p):
		return Ended
	case p.Spec.NodeName != "":
		return Bound
	}
	return Pending
}

// maxExplained bounds how many pods of an object are explained because they ask for something else than the others.
// How many wait is said of all, and for what of these and of those that are like them.
const maxExplained = 16

// alike counts pods by state and, of those that wait, by cause. first is what is said of the first of them.
func (s *scene) alike(pods []*v1.Pod, first *Explanation) (out []Alike) {
	causes := map[string]Cause{} // what pods ask -> why they wait
	for i, p := range pods {
		a := Alike{State: stateOf(p)}
		if a.State == Pending {
			a.Cause = s.causeOf(p, i, first.Cause, causes)
		}
		at := slices.IndexFunc(out, func(b Alike) bool { return a.State == b.State && a.Cause == b.Cause })
		if at < 0 {
			at, out = len(out), append(out, a)
		}
		if out[at].Pods++; len(out[at].Named) < maxNamed {
			out[at].Named = append(out[at].Named, p.Name)
		}
	}
	return out
}

// causeOf is why a pod waits: empty if it asks for something else than maxExplained others.
func (s *scene) causeOf(p *v1.Pod, at int, first Cause, known map[string]Cause) Cause {
	if before := (&Explanation{Namespace: p.Namespace}); s.explainBefore(before, p) {
		return before.Cause
	}
	key := s.asksFor(p)
	cause, ok := known[key]
	switch {
	case ok:
	case at == 0:
		cause = first
	case len(known) == maxExplained:
		return ""
	default:
		cause = s.explainPod(p).Cause
	}
	known[key] = cause
	return cause
}

// asksFor is the same of pods that are explained alike.
func (s *schedulers) asksFor(p *v1.Pod) string {
	gang, _ := gangrequest.KeyOf(p)
	q, err := s.question(p)
	if err != nil {
		return fmt.Sprintf("%s %v", gang, err)
	}
	return fmt.Sprintf("%s %t %s", gang, saidBy(p) != "", q.shape.Class)
}

// elasticJob explains an ElasticJob by its conditions and by the Job of its minReplicas.
func elasticJob(w *World, namespace, name string) (*Explanation, error) {
	ej := find(w.ElasticJobs, namespace, name)
	if ej == nil {
		return nil, fmt.Errorf("ElasticJob %s/%s: %w", namespace, name, ErrNotFound)
	}
	base, e := names.BaseJob(name), withoutJob(ej)
	j := find(w.Jobs, namespace, base)
	mayRun := e.State != Ended && ej.Status.Phase != v1alpha1.JobSuspended
	if mayRun && (j == nil || metav1.IsControlledBy(j, ej)) { // it may be one that may not be read, with pods that may
		if of, err := Owner(w, "Job", namespace, base); err == nil {
			e = of
		} else if !errors.Is(err, ErrNotFound) {
			return nil, err
		}
	}
	e.Kind, e.Name = "ElasticJob", name
	var said []string
	for i := range ej.Status.Conditions {
		c := &ej.Status.Conditions[i]
		said = append(said, fmt.Sprintf("%s is %s, %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	e.Evidence = append(said, e.Evidence...)
	return e, nil
}

// withoutJob explains an ElasticJob as if there were no Job of it.
func withoutJob(ej *clusterobjects.ElasticJob) *Explanation {
	e := &Explanation{Namespace: ej.Namespace, State: Pending}
	conditions := ej.Status.Conditions
	template, admitted := meta.FindStatusCondition(conditions, v1alpha1.ConditionTemplateValid), meta.FindStatusCondition(conditions, v1alpha1.ConditionAdmitted)
	switch phase := ej.Status.Phase; {
	case phase == v1alpha1.JobCompleted || phase == v1alpha1.JobFailed:
		e.State = Ended
	case phase == v1alpha1.JobSuspended:
		e.Cause, e.Reason, e.Next = Suspended, "the job is suspended and makes no pods", nextSteps[Suspended]
	case template != nil && template.Status == metav1.ConditionFalse:
		e.Cause, e.Reason, e.Next = Unreadable, template.Message, nextSteps[Unreadable]
	case admitted != nil && admitted.Status == metav1.ConditionFalse:
		e.Cause, e.Reason, e.Next = Suspended, "the job has no Job yet: "+admitted.Message, "mend what the condition Admitted names, or wait if that passes"
	default:
		e.Cause, e.Reason = Suspended, "the job has no Job yet, and the pool controller has not said why"
		e.Next = "wait a moment; if that stays, see whether the pool controller runs: kubectl -n " + release.Namespace + " get deploy,pods"
	}
	return e
}

func (s *scene) explainJob(j *batchv1.Job) *Explanation {
	e := &Explanation{Kind: "Job", Namespace: j.Namespace, Name: j.Name, State: Pending}
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		if wl := s.quota.workloadOf(j.Namespace, j.UID, ""); wl != nil || j.Labels[kueue.LabelQueue] != "" {
			s.explainQuota(e, j.Labels, &j.Spec.Template.Spec, wl)
			if _, why, ok := names.Protection(j.Annotations); ok && e.Cause == NoQuota {
				e.Reason = "the pool: " + why
			}
			return e
		}
		e.Cause, e.Reason, e.Next = Suspended, "the job is suspended and makes no pods", nextSteps[Suspended]
		return e
	}
	pods := s.owned(j.UID)
	if len(pods) == 0 {
		e.Cause, e.Reason, e.Next = Suspended, "the job has no pods", "read the conditions and events of the job"
		return e
	}
	return s.explainPodsOf(e, pods)
}
