// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/interposer"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet/kubeletconf"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/pinning"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/verify"
)

// checkpointFile is the name of the device manager's checkpoint in the plugin folder.
const checkpointFile = "kubelet_internal_checkpoint"

// Limits for requests to the API server. The agent requests a pod no faster than kubelet admits pods.
const (
	clientQPS   = 50
	clientBurst = 100
)

// firstListWait is the longest time that the device plugins wait for the first list of pods. The plugins
// take precedence: without GPUs the node fails pods permanently, while the agent can request a pod that
// it does not know yet from the API server.
const firstListWait = 2 * time.Second

// Agent is the agent of one node. Make it with New.
type Agent struct {
	cfg      Config
	kube     kubernetes.Interface
	registry *prometheus.Registry
	events   events.EventBroadcaster

	pods       *nodePods
	graph      *nodeGraph
	kubelet    *kubelet.PodResources
	settings   *kubeletconf.Reader
	steering   *steering.Steering
	interposer *interposer.Interposer
	verifier   *verify.Verifier
	pinning    *pinning.Plugin // nil while off
}

// New returns the agent of cfg.Node. It makes no request.
func New(cfg Config, config *rest.Config, clk clock.WithTicker) (*Agent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("node agent: %w", err)
	}
	a := &Agent{cfg: cfg, registry: prometheus.NewRegistry()}
	// Kubelet waits for some of the requests. The client's default of five a second
	// would delay them when many pods come at once.
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = clientQPS, clientBurst
	for _, build := range []func(*rest.Config, clock.WithTicker) error{
		a.buildSources, a.buildSteering, a.buildVerifier, a.buildSettings, a.buildPinning,
	} {
		if err := build(config, clk); err != nil {
			return nil, fmt.Errorf("node agent: %w", err)
		}
	}
	a.connect()
	return a, nil
}

// buildSources creates the sources that the other parts read.
func (a *Agent) buildSources(config *rest.Config, _ clock.WithTicker) (err error) {
	if a.kube, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	// The callbacks use parts that are built later; none is called before Run.
	if a.pods, err = newNodePods(a.kube, a.cfg.Node, a.registry, func() { a.verifier.Trigger() }); err != nil {
		return err
	}
	if a.graph, err = newNodeGraph(config, a.cfg.Node, func() { a.verifier.Trigger() }); err != nil {
		return err
	}
	if a.kubelet, err = kubelet.Dial(a.cfg.PodResourcesSocket); err != nil {
		return fmt.Errorf("connect to kubelet: %w", err)
	}
	return nil
}

func (a *Agent) checkpoint() string { return filepath.Join(a.cfg.PluginDir, checkpointFile) }

func (a *Agent) buildSteering(_ *rest.Config, clk clock.WithTicker) (err error) {
	a.steering, err = steering.New(steering.Config{
		Node: a.cfg.Node, Strict: a.cfg.Mode == Strict, StateDir: a.cfg.StateDir, CheckpointPath: a.checkpoint(), Registerer: a.registry,
	}, a.pods, a.kubelet, a.graph, clk)
	if err != nil {
		return fmt.Errorf("build steering: %w", err)
	}
	a.interposer, err = interposer.New(interposer.Config{
		PluginDir: a.cfg.PluginDir, PreStart: a.cfg.Mode == Strict, StripNUMA: a.cfg.Topology == StripTopology, Registerer: a.registry,
		// A kubelet that registers the plugin again may have restarted with another
		// configuration.
		OnRegistered: func(string) {
			a.settings.Trigger()
			a.steering.KubeletStarted()
		},
	}, a.steering, clk)
	if err != nil {
		return fmt.Errorf("build the device plugin proxy: %w", err)
	}
	return nil
}

func (a *Agent) buildVerifier(config *rest.Config, clk clock.WithTicker) error {
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	a.events = events.NewBroadcaster(NewEventSink(a.kube, a.cfg.Node))
	a.verifier, err = verify.New(verify.Config{
		Node: a.cfg.Node, Namespace: a.cfg.Namespace, CheckpointPath: a.checkpoint(), Strict: a.cfg.Mode == Strict,
		Topology: a.graph.object, Active: liveness{a.kubelet, a.steering}, Extra: confinement{a}, Busy: a.steering.Busy, Registerer: a.registry,
	}, a.pods, a.kube, dyn, a.events.NewRecorder(scheme.Scheme, reportingController), clk)
	if err != nil {
		return fmt.Errorf("build the verifier: %w", err)
	}
	return nil
}

// connect registers the callbacks between the parts.
func (a *Agent) connect() {
	a.verifier.SetResources(a.interposer.Resources)
	a.steering.OnAllocated(a.verifier.Trigger)
	a.settings.OnChange(a.verifier.SetKubelet)
}

// Run serves until ctx ends, and then returns nil. It returns an error only if the start fails: later
// failures are logged, published and retried.
func (a *Agent) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "node", a.cfg.Node))
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer func() {
		cancel()
		group.Wait()
		a.pods.end()
		a.events.Shutdown()
		if err := a.kubelet.Close(); err != nil {
			klog.FromContext(ctx).Error(err, "Closing the connection to kubelet failed")
		}
	}()
	if err := a.events.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("record events: %w", err)
	}
	a.pods.start(ctx)
	group.Go(func() { a.graph.run(ctx) })
	group.Go(func() { a.graph.prepare(ctx) })
	a.awaitPods(ctx)

	failed := make(chan error, 8)
	serve := func(name string, run func(context.Context) error) {
		group.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	serve("steering", a.steering.Run)
	serve("device plugin proxy", a.interposer.Run)
	serve("compare kubelet's record", a.verifier.Run)
	serve("read kubelet's configuration", a.settings.Run)
	if a.pinning != nil {
		serve("NRI plugin", a.pinning.Run)
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// awaitPods waits for the first list of pods, at most firstListWait.
func (a *Agent) awaitPods(ctx context.Context) {
	short, cancel := context.WithTimeout(ctx, firstListWait)
	defer cancel()
	if !cache.WaitForCacheSync(short.Done(), a.pods.informer.HasSynced) && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Serving device plugins before the pods are listed, because the API server does not answer", "waited", firstListWait)
	}
}

// Gatherer returns the agent's metrics.
func (a *Agent) Gatherer() prometheus.Gatherer { return a.registry }

// Healthy returns an error if the agent makes no progress. An absent kubelet, plugin or API server is not
// an error: a restart of the agent would not help.
func (a *Agent) Healthy() error { return a.verifier.Healthy() }

// liveness reports whether kubelet still treats a pod as active; all parts share its results.
type liveness struct {
	kubelet *kubelet.PodResources
	*steering.Steering
}

// Active returns false only if kubelet reported that it does not know the pod.
func (l liveness) Active(ctx context.Context, uid types.UID, namespace, name string) (bool, error) {
	if l.Ended(uid) {
		return false, nil
	}
	_, err := l.kubelet.Get(ctx, namespace, name)
	if errors.Is(err, kubelet.ErrUnknownPod) {
		l.LearnEnded(uid)
		return false, nil
	}
	return err == nil, err
}
