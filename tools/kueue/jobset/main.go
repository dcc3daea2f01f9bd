// SPDX-License-Identifier: Apache-2.0

// Command jobset runs JobSet's controller, of the version that Kueue is built with, for tests of pools.
// Its webhooks are left out: tests set the fields that they would default.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/jobset/pkg/controllers"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
)

func main() {
	flag.Parse() // --kubeconfig is controller-runtime's
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctrl.SetLogger(klog.Background())
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), jobset.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("make the scheme: %w", err)
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	ctx := ctrl.SetupSignalHandler()
	if err := controllers.SetupJobSetIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return fmt.Errorf("make the indexes: %w", err)
	}
	if err := controllers.NewJobSetReconciler(mgr.GetClient(), scheme, mgr.GetEventRecorder("jobset")).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("make the controller: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the controller: %w", err)
	}
	return nil
}
