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

// Stages, in their order. Programs end before the objects go that they would write anew. The scheduler
// ends last of them, so that pods are placed until then.
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

// Step is the removal of one object, or the change of one that stays.
type Step struct {
	Stage  Stage
	Object Object
	Change Change   // NoChange: the object is deleted
	What   []string // of a change: what is taken away
	Orphan bool     // of a deletion: what the object made stays
}

// Kept is an object of the project that stays, with the reason.
type Kept struct {
	Object Object
	Why    string
}

// Options say what a plan removes.
type Options struct {
	Purge bool      // money and definitions too
	Now   time.Time // by which Leases are judged
}

// Removal is what is removed and in which order.
type Removal struct {
	Steps []Step // by stage
	// Going are deleted already and wait for others, such as Kueue's queues for the jobs that hold quota.
	Going []Object
	Kept  []Kept
	// Later is the project's namespace, if it goes in a plan of its own once these steps are done and
	// nothing is left in it; else nil.
	Later *Object
	Notes []string // what a person should know or do besides
	// Refused says why nothing may be removed yet; empty where it may.
	Refused string
}

// Plan returns how nvtopo is removed from a cluster with these objects.
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
	// What belongs to an object that goes, goes with it.
	r.Steps = slices.DeleteFunc(r.Steps, func(s Step) bool { return ownedBy(&s.Object, gone) })
	r.changes(objects, opts.Purge)
	r.namespace(objects, gone)
	slices.SortStableFunc(r.Steps, compareSteps)
	slices.SortStableFunc(r.Kept, func(a, b Kept) int { return strings.Compare(a.Object.String(), b.Object.String()) })
	r.Notes = notes(objects, r)
	return r
}

const rbacGroup = "rbac.authorization.k8s.io"

// bindings adds the removal of RoleBindings that somebody made for a Role that goes: they would give its
// rights again with the next installation.
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

// classify returns how an object is deleted, or why one of ours stays; neither for an object of others.
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

// purged is the step for what only --purge removes, or why it stays.
func purged(purge bool, step *Step, what string) (*Step, string) {
	if purge {
		return step, ""
	}
	return nil, what + "; --purge removes it"
}

// leaseStep is how a Lease is deleted; nil if it is of others.
func leaseStep(o *Object) *Step {
	switch {
	case wrote(o, schedulerManager):
		return &Step{Stage: StageInstallation, Object: *o}
	case wrote(o, exporterManager, agentManager, poolManager):
		return &Step{Stage: StageLeases, Object: *o}
	}
	return nil
}

// stageOf is the stage of an object that was installed.
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

// releasesOf are the releases of Helm, by namespace and name, that made what is installed.
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

// isHelmRecord reports whether Helm keeps in this Secret what it knows of one of the releases.
func isHelmRecord(o *Object, releases map[[2]string]bool) bool {
	kind, _ := o.Object["type"].(string)
	return o.GetKind() == "Secret" && kind == helmSecret && o.GetLabels()["owner"] == "helm" &&
		releases[[2]string{o.GetNamespace(), o.GetLabels()["name"]}]
}

func ownedBy(o *Object, gone map[types.UID]bool) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return gone[r.UID] })
}

// changes adds the steps that take something out of objects.
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
// take a change of it back.
func madeByOperator(o *Object) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Kind == "ClusterPolicy" })
}

// namespace adds the removal of the project's namespace, unless something is left in it.
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
		// Once all else is done the cluster is read anew: programs that were ending may have put something there.
		r.Later = space
	case len(left) == 0:
		r.Steps = append(r.Steps, Step{Stage: StageNamespace, Object: *space})
	default:
		slices.Sort(left)
		r.Kept = append(r.Kept, Kept{*space, "it has " + eviction.First(left, maxNamed)})
	}
}

// isFixture reports whether Kubernetes puts such an object into every namespace, or lets it go by itself.
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

// goesWith reports whether an object goes with an owner of it, over however many others.
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

// ranks order the kinds of a stage: what uses another comes before it.
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

// maxNamed is how many objects a message names.
const maxNamed = 3
