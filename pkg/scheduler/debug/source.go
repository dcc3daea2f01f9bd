// SPDX-License-Identifier: Apache-2.0

package debug

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/scheduler/nodestate"
)

// Source has the inputs of a snapshot of the process: the objects in its informers, which are written as
// they are and not copied. Make one in main, and attach it to the plugins.
type Source struct {
	config    string // KubeSchedulerConfiguration
	gates     string // --feature-gates
	groups    func() []*schedulingv1alpha1.PodGroup
	graphs    cache.Store
	informers informers.SharedInformerFactory
	namespace string
	state     *nodestate.State
	endpoint  atomic.Pointer[func() *diagnosis.Endpoint] // nil until the process has an endpoint
}

// NewSource returns a Source.
func NewSource() *Source {
	return &Source{graphs: cache.NewStore(cache.MetaNamespaceKeyFunc), groups: func() []*schedulingv1alpha1.PodGroup { return nil }}
}

// Configure sets the configuration of the process: its KubeSchedulerConfiguration, empty if it runs
// without, and --feature-gates. Call it before the first plugin is made.
func (s *Source) Configure(config, featureGates string) { s.config, s.gates = config, featureGates }

// ReadGroups sets the function that returns the known PodGroups. Call it before the first plugin is made.
func (s *Source) ReadGroups(groups func() []*schedulingv1alpha1.PodGroup) { s.groups = groups }

// Attach connects the Source with the plugins; it is a lifecycle.Attachment.
func (s *Source) Attach(_ context.Context, h fwk.Handle, namespace string, state *nodestate.State) cache.ResourceEventHandler {
	s.informers, s.namespace, s.state = h.SharedInformerFactory(), namespace, state
	// A store of pointers; it only fails for objects without a name.
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { _ = s.graphs.Add(obj) },
		UpdateFunc: func(_, obj any) { _ = s.graphs.Update(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			_ = s.graphs.Delete(obj)
		},
	}
}

// Write writes a snapshot of the process, with the given name and time. It takes no lock for longer than
// a list of pointers takes.
func (s *Source) Write(out io.Writer, name string, now time.Time) error {
	w, err := whatif.NewWriter(out, whatif.Header{At: now.UTC(), Scheduler: name, Config: s.config, FeatureGates: s.gates})
	if err != nil {
		return err
	}
	promises := s.state.Diagnosis.Promises() // before the pods
	if err := errors.Join(s.writePods(w, promises), s.writeOthers(w), s.writeOurs(w, now)); err != nil {
		return fmt.Errorf("writing a snapshot: %w", err)
	}
	return w.Close()
}

// writePods writes the pods that have a node, are assumed on one or are nominated for one. All others
// wait, and have been refused.
func (s *Source) writePods(w *whatif.Writer, promises promises) error {
	for _, obj := range s.informers.Core().V1().Pods().Informer().GetStore().List() {
		pod, ok := obj.(*v1.Pod)
		if !ok {
			continue
		}
		if pod = promises.show(whatif.Essence(pod)); pod.Spec.NodeName == "" && pod.Status.NominatedNodeName == "" {
			continue
		}
		if err := w.Add(whatif.PodKind, pod); err != nil {
			return err
		}
	}
	return nil
}

// writeOthers writes the other objects of kube-scheduler's informers.
func (s *Source) writeOthers(w *whatif.Writer) error {
	for _, kind := range whatif.Kinds() {
		informer := s.informerOf(kind)
		if informer == nil {
			continue
		}
		for _, obj := range informer.GetStore().List() {
			if err := w.Add(kind, whatif.Bare(obj)); err != nil {
				return err
			}
		}
	}
	return nil
}

// informerOf returns kube-scheduler's informer of a kind; nil if it has none. One that it does not run is
// empty.
func (s *Source) informerOf(kind *whatif.Kind) cache.SharedIndexInformer {
	core, apps, storage, resource := s.informers.Core().V1(), s.informers.Apps().V1(), s.informers.Storage().V1(), s.informers.Resource().V1()
	of := map[string]interface {
		Informer() cache.SharedIndexInformer
	}{
		"nodes": core.Nodes(), "namespaces": core.Namespaces(), "persistentvolumeclaims": core.PersistentVolumeClaims(),
		"persistentvolumes": core.PersistentVolumes(), "services": core.Services(), "replicationcontrollers": core.ReplicationControllers(),
		"replicasets": apps.ReplicaSets(), "statefulsets": apps.StatefulSets(), "poddisruptionbudgets": s.informers.Policy().V1().PodDisruptionBudgets(),
		"storageclasses": storage.StorageClasses(), "csinodes": storage.CSINodes(), "csidrivers": storage.CSIDrivers(),
		"csistoragecapacities": storage.CSIStorageCapacities(), "volumeattachments": storage.VolumeAttachments(),
		"resourceclaims": resource.ResourceClaims(), "resourceslices": resource.ResourceSlices(), "deviceclasses": resource.DeviceClasses(),
	}
	if x, ok := of[kind.Resource]; ok {
		return x.Informer()
	}
	return nil
}

// writeOurs writes graphs, valid Leases, PodGroups and the ClusterTopology.
func (s *Source) writeOurs(w *whatif.Writer, now time.Time) error {
	for _, obj := range s.graphs.List() {
		if err := w.Add(whatif.KindOf(v1alpha1.SchemeGroupVersion.String(), "NodeGPUTopology"), obj); err != nil {
			return err
		}
	}
	if ct := s.state.Fabric.Topology(); ct != nil {
		if err := w.Add(whatif.KindOf(v1alpha1.SchemeGroupVersion.String(), "ClusterTopology"), whatif.Bare(ct)); err != nil {
			return err
		}
	}
	for _, group := range s.groups() {
		if err := w.Add(whatif.GroupKind, whatif.Bare(group)); err != nil {
			return err
		}
	}
	for _, l := range s.state.Diagnosis.LiveLeases() {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.Name, Namespace: s.namespace}}
		if l.NodeUID != "" {
			lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: l.Node, UID: l.NodeUID}}
		}
		lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = new(metav1.NewMicroTime(now)), new(int32(nodelease.Duration.Seconds()))
		if err := w.Add(whatif.LeaseKind, lease); err != nil {
			return err
		}
	}
	return nil
}
