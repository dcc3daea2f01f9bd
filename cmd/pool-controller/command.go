// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/daemon"
	"github.com/nvtopo/nvtopo/internal/release"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/computepool"
	"github.com/nvtopo/nvtopo/pkg/pools/elasticjob"
	"github.com/nvtopo/nvtopo/pkg/pools/invoicing"
	"github.com/nvtopo/nvtopo/pkg/pools/metering"
	"github.com/nvtopo/nvtopo/pkg/pools/placementcheck"
	"github.com/nvtopo/nvtopo/pkg/pools/remotesession"
	"github.com/nvtopo/nvtopo/pkg/pools/serverclock"
	"github.com/nvtopo/nvtopo/pkg/pools/virtualization"
)

// options holds the command line's values.
type options struct {
	endpoint    daemon.Endpoint
	kubeconfig  string
	namespace   string
	leaderElect bool

	invoiceGrace time.Duration
	keepRecords  int // days
	batchAfter   time.Duration
	storageLimit resource.QuantityValue
	exportDir    string
	exportWith   string // a command
	checkPlaces  bool
	placement    placementcheck.Options
	gateImage    string

	// clock is the clock of irreversible actions: sessions and invoices.
	clock *serverclock.Clock
}

// setups returns the functions that register the controllers, each with its part of the command line.
func (o *options) setups() []func(manager.Manager) error {
	return []func(manager.Manager) error{
		func(mgr manager.Manager) error {
			return computepool.Setup(mgr, computepool.Options{PlacementCheck: o.checkPlaces})
		},
		func(mgr manager.Manager) error {
			return metering.Setup(mgr, metering.Options{Namespace: o.namespace, Clock: o.clock.OfServer()})
		},
		func(mgr manager.Manager) error {
			return invoicing.Setup(mgr, invoicing.Options{
				Grace: o.invoiceGrace, Keep: time.Duration(o.keepRecords) * 24 * time.Hour, BatchAfter: o.batchAfter, StorageLimit: o.storageLimit.Value(),
				ExportDir: o.exportDir, ExportCommand: strings.Fields(o.exportWith), Clock: o.clock,
			})
		},
		elasticjob.Setup,
		func(mgr manager.Manager) error { return virtualization.Setup(mgr, o.clock.OfServer()) },
		func(mgr manager.Manager) error { return placementcheck.Setup(mgr, o.placement) },
		func(mgr manager.Manager) error { return remotesession.Setup(mgr, o.gateImage, o.clock) },
	}
}

func newCommand() *cobra.Command {
	o := &options{clock: serverclock.New(clock.RealClock{}), storageLimit: resource.QuantityValue{Quantity: resource.MustParse("1Gi")}}
	cmd := &cobra.Command{
		Use:   "nvtopo-pool-controller",
		Short: "Keep Kueue's objects, jobs and bills as pools have them",
		Long: `nvtopo-pool-controller makes Kueue's queues of ComputePools and Jobs of ElasticJobs,
and records and bills what devices tenants hold. Kueue decides how many devices a job may
hold, and nvtopo-scheduler which.`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty means in the cluster, or the default kubeconfig outside of one")
	f.StringVar(&o.namespace, "namespace", release.Namespace, "namespace of the controller's Leases")
	f.BoolVar(&o.leaderElect, "leader-elect", true, "act only while leading, so that several replicas may run")
	f.DurationVar(&o.invoiceGrace, "invoice-grace", 24*time.Hour, "how long after a calendar month (UTC) its invoices are closed; what becomes known later is on a later one")
	f.IntVar(&o.keepRecords, "usage-retention-days", 90, "days for which UsageRecords and UsageBatches are kept once their final invoice was exported")
	f.DurationVar(&o.batchAfter, "usage-batch-after", time.Hour, "how long after their end sessions go from UsageRecords into UsageBatches, a tenant's when they are 1000 or a week old; 0 means never")
	f.Var(&o.storageLimit, "usage-storage-limit", "bytes of etcd that the UsageRecords and UsageBatches of all tenants take before conditions say so; 0 means any")
	f.StringVar(&o.exportDir, "export-dir", "", "folder to which each final invoice (INVOICE.json) and its sessions (INVOICE.csv) are exported; empty means that people export")
	f.StringVar(&o.exportWith, "export-command", "", "program and arguments, without a shell, that take each exported file, whose path is in place of {}, to an object store for example; if it fails the invoice is exported again")
	f.BoolVar(&o.checkPlaces, "placement-check", true, "have the jobs of pools start only where their pods have a place")
	f.DurationVar(&o.placement.PodsReadyTimeout, "pods-ready-timeout", 5*time.Minute, "waitForPodsReady.timeout of Kueue's configuration; one that evicts jobs which are about to start is refused")
	f.StringVar(&o.gateImage, "gate-image", "", "image of this program, which RemoteGPUSessions have in front of their servers; empty means that there are no sessions")
	o.endpoint.AddFlags(f, ":9103")
	daemon.AddLogFlags(cmd)
	cmd.AddCommand(newRemoteGate())
	return cmd
}

// validate rejects flag values that make no sense.
func (o *options) validate() error {
	if o.invoiceGrace < 0 || o.keepRecords < 0 || o.batchAfter < 0 || o.storageLimit.Sign() < 0 {
		return errors.New("--invoice-grace, --usage-retention-days, --usage-batch-after and --usage-storage-limit: want 0 or more")
	}
	if o.exportWith != "" && (o.exportDir == "" || !strings.Contains(o.exportWith, "{}")) {
		return errors.New("--export-command: want {} in it, in place of which a file is, and --export-dir")
	}
	return nil
}

func (o *options) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return err
	}
	restConfig, err := daemon.RESTConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	restConfig.QPS = -1 // the API server's flow control bounds it; 5 requests a second would be the default
	restConfig.Wrap(o.clock.Wrap)
	ctrl.SetLogger(klog.FromContext(ctx))
	mgr, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:                        newScheme(),
		Metrics:                       metricsserver.Options{BindAddress: "0"}, // daemon serves them, to clients that RBAC allows
		LeaderElection:                o.leaderElect,
		LeaderElectionID:              "nvtopo-pool-controller",
		LeaderElectionNamespace:       o.namespace,
		LeaderElectionReleaseOnCancel: true,
		Cache:                         cacheOptions(),
		// ElasticJobs are read unstructured: an invalid template must not keep all others from being read.
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	for _, setup := range o.setups() { //nolint:contextcheck // what is set up runs in the manager's context
		if err := setup(mgr); err != nil {
			return err
		}
	}
	return daemon.ServeWhile(ctx, &o.endpoint, restConfig, observed{}, mgr.Start)
}

// cacheOptions keeps managed fields only where metering reads them: they are large.
func cacheOptions() cache.Options {
	kept := cache.ByObject{Transform: metering.KeepManagers}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject:         map[client.Object]cache.ByObject{&v1.Namespace{}: kept, &v1.Node{}: kept, &poolv1alpha1.ComputePool{}: kept},
	}
}

// newScheme returns a scheme with all kinds that the controllers read and write.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(errors.Join(
		scheme.AddToScheme(s), poolv1alpha1.AddToScheme(s), topologyv1alpha1.AddToScheme(s), kueue.AddToScheme(s),
	))
	return s
}

// observed is the source of the metrics server.
type observed struct{}

// Gatherer returns controller-runtime's registry without the metrics of the process, which daemon serves
// for every program: a duplicate is an error in place of all metrics.
func (observed) Gatherer() prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := ctrlmetrics.Registry.Gather()
		return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool {
			return strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_")
		}), err
	})
}

// Healthy always returns nil: the manager ends the process if it cannot continue.
func (observed) Healthy() error { return nil }
