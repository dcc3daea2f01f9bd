// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/release"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
)

// Stage is a part of the removal. A stage begins when the one before it is done.
type Stage int

// Stages, in their order. Programs end before the removal of objects that they would write again. The
// scheduler ends last of them, so that pods are placed until then.
const (
	StageAgent Stage = iota
	StagePlugin
	StagePrograms
	StagePolicies
	StageObjects
	StageNodes
	StageLeases
	StageScheduler
	StageFinalizers
	StageInstallation
	StageMoney
	StageDefinitions
	StageNamespace
)

var stageNames = [...]string{
	"agent", "plugin", "programs", "policies", "objects", "nodes", "leases", "scheduler", "finalizers", "installation", "money", "definitions", "namespace",
}

func (s Stage) String() string { return stageNames[s] }

// Step is the removal of one object, or the change of one that is kept.
type Step struct {
	Stage  Stage
	Object Object
	Change Change   // NoChange: the object is deleted
	What   []string // of a change: the removed parts
	Orphan bool     // of a deletion: dependents stay
}

// Kept is an object of the project that is kept, with the reason.
type Kept struct {
	Object Object
	Why    string
}

// Options select the objects that a plan removes.
type Options struct {
	Purge bool      // billing objects and definitions too
	Now   time.Time // the time for judging Leases
}

// Removal is the steps of a removal and their order.
type Removal struct {
	Steps []Step // by stage
	// Going are being deleted and wait for others, such as Kueue's queues for the jobs that hold quota.
	Going []Object
	Kept  []Kept
	// Later is the project's namespace, if it is removed by a plan of its own once these steps are done and
	// it is empty; else nil.
	Later *Object
	Notes []string // advice for the user
	// Refused is why nothing may be removed yet; empty if it may.
	Refused string
}

// Plan returns the steps that remove nvtopo from a cluster with these objects.
func Plan(objects []Object, opts Options) *Removal {
	r := &Removal{Refused: refusal(objects, opts.Now)}
	releases := releasesOf(objects)
	gone := map[types.UID]bool{}
	for i := range objects {
		o := &objects[i]
		step, why := classify(o, opts.Purge, releases)
		switch {
		case step != nil && o.GetDeletionTimestamp() != nil:
			r.Going = append(r.Going, *o)
			gone[o.GetUID()] = true
		case step != nil:
			r.Steps = append(r.Steps, *step)
			gone[o.GetUID()] = !step.Orphan
		case why != "":
			r.Kept = append(r.Kept, Kept{*o, why})
		}
	}
	r.bindings(objects, gone)
	// Dependents of a deleted object are deleted with it.
	r.Steps = slices.DeleteFunc(r.Steps, func(s Step) bool { return ownedBy(&s.Object, gone) })
	r.changes(objects, opts.Purge)
	r.namespace(objects, gone)
	slices.SortStableFunc(r.Steps, compareSteps)
	slices.SortStableFunc(r.Kept, func(a, b Kept) int { return strings.Compare(a.Object.String(), b.Object.String()) })
	r.Notes = notes(objects, r)
	return r
}

const rbacGroup = "rbac.authorization.k8s.io"

// bindings adds the removal of users' RoleBindings to a removed Role: they would grant its rights again
// after the next installation.
func (r *Removal) bindings(objects []Object, gone map[types.UID]bool) {
	roles := map[string]bool{}
	for i := range objects {
		if o := &objects[i]; o.GetKind() == "Role" && o.Resource.Group == rbacGroup && gone[o.GetUID()] {
			roles[o.GetNamespace()+"/"+o.GetName()] = true
		}
	}
	for i := range objects {
		o := &objects[i]
		if o.GetKind() != "RoleBinding" || o.Resource.Group != rbacGroup || gone[o.GetUID()] {
			continue
		}
		kind, _, _ := unstructured.NestedString(o.Object, "roleRef", "kind")
		name, _, _ := unstructured.NestedString(o.Object, "roleRef", "name")
		switch {
		case kind != "Role" || !roles[o.GetNamespace()+"/"+name]:
			continue
		case o.GetDeletionTimestamp() != nil:
			r.Going = append(r.Going, *o)
		default:
			r.Steps = append(r.Steps, Step{Stage: StageInstallation, Object: *o})
		}
		gone[o.GetUID()] = true
	}
}

// classify returns how an object is deleted, or why one of nvtopo's stays; neither for another object.
func classify(o *Object, purge bool, releases map[[2]string]bool) (step *Step, kept string) {
	in := func(s Stage) *Step { return &Step{Stage: s, Object: *o} }
	switch {
	case isMoney(o):
		return purged(purge, in(StageMoney), "money")
	case isDefinition(o):
		return purged(purge, in(StageDefinitions), "definition of a kind")
	case isOurGroup(o.Resource.Group):
		s := in(StageObjects)
		// The Jobs that it made run on, with their pods.
		s.Orphan = o.GetKind() == poolv1alpha1.ElasticJobKind || o.GetKind() == poolv1alpha1.RemoteGPUSessionKind
		return s, ""
	case isPriority(o):
		return purged(purge, in(StageObjects), "priority of jobs")
	case isQueue(o), isCheck(o):
		return in(StageObjects), ""
	case isLease(o):
		return leaseStep(o), ""
	case isHelmRecord(o, releases):
		return in(StageInstallation), ""
	case o.GetKind() == "Namespace" || !isInstalled(o):
		return nil, ""
	}
	return in(stageOf(o)), ""
}

// purged returns the step for an object that only --purge removes, or why it stays.
func purged(purge bool, step *Step, what string) (*Step, string) {
	if purge {
		return step, ""
	}
	return nil, what + "; --purge removes it"
}

// leaseStep returns the deletion of a Lease; nil if it is not nvtopo's.
func leaseStep(o *Object) *Step {
	switch {
	case wrote(o, schedulerManager):
		return &Step{Stage: StageInstallation, Object: *o}
	case wrote(o, exporterManager, agentManager, poolManager):
		return &Step{Stage: StageLeases, Object: *o}
	}
	return nil
}

// stageOf returns the stage of an installed object.
func stageOf(o *Object) Stage {
	switch o.Resource.Group {
	case "apps":
		switch o.GetLabels()[nameLabel] {
		case agentName:
			return StageAgent
		case schedulerName:
			return StageScheduler
		}
		return StagePrograms
	case "admissionregistration.k8s.io":
		return StagePolicies
	}
	return StageInstallation
}

func isLease(o *Object) bool {
	return o.Resource.Group == "coordination.k8s.io" && o.GetNamespace() == release.Namespace
}

// releasesOf returns the Helm releases, by namespace and name, of the installed objects.
func releasesOf(objects []Object) map[[2]string]bool {
	out := map[[2]string]bool{}
	for i := range objects {
		o := &objects[i]
		a := o.GetAnnotations()
		if isInstalled(o) && a[releaseName] != "" {
			out[[2]string{a[releaseSpace], a[releaseName]}] = true
		}
	}
	return out
}

// isHelmRecord reports whether this Secret is Helm's record of one of the releases.
func isHelmRecord(o *Object, releases map[[2]string]bool) bool {
	kind, _ := o.Object["type"].(string)
	return o.GetKind() == "Secret" && kind == helmSecret && o.GetLabels()["owner"] == "helm" &&
		releases[[2]string{o.GetNamespace(), o.GetLabels()["name"]}]
}

func ownedBy(o *Object, gone map[types.UID]bool) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return gone[r.UID] })
}

// changes adds the steps that remove parts of objects.
func (r *Removal) changes(objects []Object, purge bool) {
	for i := range objects {
		o := &objects[i]
		add := func(stage Stage, c Change) {
			if _, what := c.patch(&Object{o.Resource, o.DeepCopy()}); len(what) > 0 {
				r.Steps = append(r.Steps, Step{Stage: stage, Object: *o, Change: c, What: what})
			}
		}
		if purge || !isMoney(o) || o.GetDeletionTimestamp() == nil { // without its finalizer, money that is being deleted would be gone unbilled
			add(StageFinalizers, WithoutFinalizers)
		}
		switch {
		case o.GetKind() == "Node":
			add(StageNodes, WithoutMarks)
		case o.GetKind() == "ClusterPolicy", o.GetKind() == "DaemonSet" && !isInstalled(o) && !madeByOperator(o):
			add(StagePlugin, WithoutAgent)
		case o.GetKind() == kueue.ClusterQueueKind && o.Resource.Group == kueueGroup && !isQueue(o):
			add(StageObjects, WithoutCheck)
		}
	}
}

// madeByOperator reports whether the GPU Operator makes this DaemonSet from its ClusterPolicy, and would
// revert a change of it.
func madeByOperator(o *Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Kind == "ClusterPolicy" })
}

// namespace adds the removal of the project's namespace, unless it has other objects.
func (r *Removal) namespace(objects []Object, gone map[types.UID]bool) {
	var space *Object
	var left []string
	for i := range objects {
		o := &objects[i]
		switch {
		case o.GetKind() == "Namespace" && o.GetName() == release.Namespace && isInstalled(o):
			space = o
		case o.GetNamespace() == release.Namespace && !gone[o.GetUID()] && !isFixture(o) && !r.goesWith(objects, o, gone):
			left = append(left, o.String())
		}
	}
	switch {
	case space == nil:
	case space.GetDeletionTimestamp() != nil:
		r.Going = append(r.Going, *space)
	case len(left) == 0 && len(r.Steps) > 0:
		// Once all else is done the cluster is read again: programs that were ending may have written objects
		// into it.
		r.Later = space
	case len(left) == 0:
		r.Steps = append(r.Steps, Step{Stage: StageNamespace, Object: *space})
	default:
		slices.Sort(left)
		r.Kept = append(r.Kept, Kept{*space, "it has " + eviction.First(left, maxNamed)})
	}
}

// isFixture reports whether Kubernetes puts such an object into every namespace, or removes it by itself.
func isFixture(o *Object) bool {
	switch o.GetKind() {
	case "Event":
		return true
	case "ConfigMap":
		return o.GetName() == "kube-root-ca.crt"
	case "ServiceAccount":
		return o.GetName() == "default"
	}
	return false
}

// goesWith reports whether an object is deleted with an owner, direct or indirect.
func (r *Removal) goesWith(objects []Object, o *Object, gone map[types.UID]bool) bool {
	byUID := map[types.UID]*Object{}
	for i := range objects {
		byUID[objects[i].GetUID()] = &objects[i]
	}
	for range objects { // owners that own each other end here
		if ownedBy(o, gone) {
			return true
		}
		owners := o.GetOwnerReferences()
		if len(owners) == 0 || byUID[owners[0].UID] == nil {
			return false
		}
		o = byUID[owners[0].UID]
	}
	return false
}

// ranks order the kinds of a stage: a kind that uses another comes before it.
var ranks = map[string]int{
	"validatingadmissionpolicybindings": 0, "validatingadmissionpolicies": 1,
	"rolebindings": 2, "clusterrolebindings": 2, "roles": 3, "clusterroles": 3, "serviceaccounts": 4,
	"flowschemas": 0, "prioritylevelconfigurations": 1,
	"localqueues": 1, "clusterqueues": 2, "cohorts": 3, "admissionchecks": 4, "resourceflavors": 4, "topologies": 5,
	"secrets": 6,
}

func compareSteps(a, b Step) int {
	return cmp.Or(
		cmp.Compare(a.Stage, b.Stage),
		cmp.Compare(ranks[a.Object.Resource.Resource], ranks[b.Object.Resource.Resource]),
		strings.Compare(a.Object.String(), b.Object.String()),
	)
}

// maxNamed is the number of objects that a message names.
const maxNamed = 3
