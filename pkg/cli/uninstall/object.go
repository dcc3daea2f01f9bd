// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nvtopo/nvtopo/internal/release"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// Object is one object of a cluster. Of most kinds it has the metadata alone; see [Read].
type Object struct {
	Resource schema.GroupVersionResource
	*unstructured.Unstructured
}

// String returns the object's kind and name for messages.
func (o *Object) String() string {
	name := o.GetName()
	if o.GetNamespace() != "" {
		name = o.GetNamespace() + "/" + name
	}
	return o.GetKind() + " " + name
}

// Field managers.
const (
	exporterManager = "nvtopo-exporter"
	aliasManager    = exporterManager + "-aliases"
	agentManager    = "nvtopo-node-agent"
	// The scheduler and the pool controller write their leader Leases under their programs' names.
	schedulerManager = "nvtopo-scheduler"
	poolManager      = names.FieldOwner
)

// Names of the shipped workloads, in their label app.kubernetes.io/name.
const (
	nameLabel     = "app.kubernetes.io/name"
	agentName     = "nvtopo-node-agent"
	schedulerName = "nvtopo-scheduler"
)

const (
	domain        = "nvtopo.dev"
	kueueGroup    = kueue.GroupName
	helmSecret    = "helm.sh/release.v1"
	releaseName   = "meta.helm.sh/release-name"
	releaseSpace  = "meta.helm.sh/release-namespace"
	kubeNamespace = metav1.NamespaceSystem
)

// moneyKinds are the kinds of billing. They stay unless the plan purges.
var moneyKinds = []string{
	poolv1alpha1.TenantAccountKind, poolv1alpha1.PriceBookKind, poolv1alpha1.InvoiceKind, poolv1alpha1.UsageRecordKind, poolv1alpha1.UsageBatchKind,
}

// isOurGroup reports whether the API group is one of the project's.
func isOurGroup(group string) bool {
	return group == v1alpha1.GroupName || group == poolv1alpha1.GroupName
}

func isMoney(o *Object) bool {
	return o.Resource.Group == poolv1alpha1.GroupName && slices.Contains(moneyKinds, o.GetKind())
}

// isDefinition reports whether the object defines one of the project's kinds.
func isDefinition(o *Object) bool {
	_, group, _ := strings.Cut(o.GetName(), ".")
	return o.Resource.Resource == "customresourcedefinitions" && isOurGroup(group)
}

// clusterGroups are the API groups of the manifests' cluster-scoped objects, beside definitions.
var clusterGroups = []string{"rbac.authorization.k8s.io", "admissionregistration.k8s.io", "flowcontrol.apiserver.k8s.io", "scheduling.k8s.io"}

// isInstalled reports whether the manifests or the chart made the object. The label is used where they
// make objects: cluster-scoped ones of some groups, and those in the project's namespace and in
// kube-system. Any user may put it on another object, such as a node.
func isInstalled(o *Object) bool {
	if o.GetLabels()[release.PartOfLabel] != release.PartOf {
		return false
	}
	switch o.GetNamespace() {
	case "":
		return slices.Contains(clusterGroups, o.Resource.Group) || o.GetKind() == "Namespace" && o.GetName() == release.Namespace
	case release.Namespace:
		return true
	case kubeNamespace:
		return o.Resource.Group == "rbac.authorization.k8s.io"
	}
	return false
}

// isQueue reports whether the pool controller made this object of Kueue.
func isQueue(o *Object) bool {
	_, ok := o.GetLabels()[names.LabelManaged]
	return ok && o.Resource.Group == kueueGroup
}

// isCheck reports whether this is the pool controller's admission check.
func isCheck(o *Object) bool {
	controller, _ := mapAt(o.Object, "spec")["controllerName"].(string)
	return o.Resource.Group == kueueGroup && o.GetKind() == kueue.AdmissionCheckKind && controller == names.CheckPlacement
}

// isPriority reports whether the pool controller made this priority of Kueue's jobs.
func isPriority(o *Object) bool {
	return o.Resource.Group == kueueGroup && o.GetKind() == kueue.WorkloadPriorityClassKind && wrote(o, poolManager)
}

// isOurFinalizer reports whether a finalizer is of the project's domain.
func isOurFinalizer(name string) bool {
	host, _, ok := strings.Cut(name, "/")
	return ok && (host == domain || strings.HasSuffix(host, "."+domain))
}

// wrote reports whether one of these managers wrote fields of the object.
func wrote(o *Object, managers ...string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return slices.Contains(managers, f.Manager) })
}
