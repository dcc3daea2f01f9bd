// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/exporter"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/verify"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

const (
	systemNamespace = release.Namespace
	// exporterInterval and exporterResync are short, so that deleted or recreated objects are noticed within
	// a run.
	exporterInterval = 3 * time.Second
	exporterResync   = 6 * time.Second
)

// account returns a configuration with a token of an account that is bound to the node.
func (b *box) account(ctx context.Context, name string) (cfg *rest.Config, err error) {
	err = b.w.try(ctx, "make a token of "+name, func(ctx context.Context) error {
		cfg, err = b.w.cluster.NodeBoundConfig(ctx, systemNamespace, name, b.name)
		return err
	})
	if err == nil {
		cfg.UserAgent = name
	}
	return cfg, err
}

// startExporter runs the product's exporter on the simulated hardware.
func (b *box) startExporter(ctx context.Context) error {
	if b.exporter != nil {
		return nil
	}
	cfg, err := b.account(ctx, "nvtopo-exporter")
	if err != nil {
		return err
	}
	e, err := exporter.New(exporter.Config{
		NodeName: b.name, Namespace: systemNamespace, Interval: exporterInterval, Resync: exporterResync,
	}, b, kubernetes.NewForConfigOrDie(cfg), dynamic.NewForConfigOrDie(cfg))
	if err != nil {
		return fmt.Errorf("exporter of %s: %w", b.name, err)
	}
	b.published.set(e.Gatherer())
	b.exporter = b.w.run(e.Run)
	return nil
}

func (b *box) stopExporter() {
	if b.exporter != nil {
		b.exporter.stop()
		b.exporter = nil
		b.published.set(nil)
	}
}

// startAgent runs the product's comparison of kubelet's record with the choices.
func (b *box) startAgent(ctx context.Context) error {
	if !b.agent || b.verifier != nil {
		return nil
	}
	cfg, err := b.account(ctx, "nvtopo-node-agent")
	if err != nil {
		return err
	}
	kube := kubernetes.NewForConfigOrDie(cfg)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: kube.EventsV1()})
	metrics := prometheus.NewRegistry()
	v, err := verify.New(verify.Config{
		Node: b.name, Namespace: systemNamespace, CheckpointPath: b.kubelet.path, Registerer: metrics, Active: b.kubelet,
		Topology: func() *v1alpha1.NodeGPUTopology { return b.w.topology(b.name) }, Interval: 2 * time.Second,
	}, b, kube, dynamic.NewForConfigOrDie(cfg), broadcaster.NewRecorder(runtime.NewScheme(), "nvtopo-node-agent"), clock.RealClock{})
	if err != nil {
		return fmt.Errorf("agent of %s: %w", b.name, err)
	}
	v.SetResources(func() []interposer.ResourceStatus {
		g := b.now()
		return []interposer.ResourceStatus{{
			Resource: string(gpuResource), InnerConnected: true, Registered: true, Devices: g.Len(), Healthy: g.Healthy().Len(),
		}}
	})
	v.SetKubelet(&v1alpha1.Kubelet{TopologyManagerPolicy: "none", CPUManagerPolicy: "none"})
	v.SetPinned(metav1.Condition{Status: metav1.ConditionFalse, Reason: "Off", Message: "pinning was not asked for"})
	b.w.triggers.set(b.name, v.Trigger)
	b.compared.set(metrics)
	b.verifier = b.w.run(func(ctx context.Context) error {
		if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
			return err
		}
		defer broadcaster.Shutdown()
		return v.Run(ctx)
	})
	return nil
}

func (b *box) stopAgent() {
	if b.verifier != nil {
		b.w.triggers.set(b.name, nil)
		b.verifier.stop()
		b.verifier = nil
		b.compared.set(nil)
	}
}

// Pods implements verify.Pods.
func (b *box) Pods() []*v1.Pod { return b.w.podsOf(b.name) }

// expire makes a node's Lease run out within a second. The scheduler measures from its own observation of
// a renewal, not from renewTime, so the term has to be short.
func (b *box) expire(ctx context.Context, prefix string) error {
	return b.w.try(ctx, "expire the Lease "+prefix+b.name, func(ctx context.Context) error {
		body := fmt.Appendf(nil, `{"spec":{"leaseDurationSeconds":1,"renewTime":%q}}`, time.Now().Add(-2*nodelease.Duration).UTC().Format(metav1.RFC3339Micro))
		_, err := b.w.kube.CoordinationV1().Leases(systemNamespace).Patch(ctx, prefix+b.name, types.MergePatchType, body, metav1.PatchOptions{})
		return gone(err)
	})
}

func topologyFrom(obj any) *v1alpha1.NodeGPUTopology {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	out := &v1alpha1.NodeGPUTopology{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil
	}
	return out
}
