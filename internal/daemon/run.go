// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/nvtopo/nvtopo/internal/release"
)

// Run adds --version to the command and runs it until it returns or a signal ends it.
// It returns the process's exit status. cobra prints the error.
func Run(cmd *cobra.Command) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd.Version = release.Version()
	if err := cmd.ExecuteContext(ctx); err != nil {
		return 1
	}
	return 0
}

// AddLogFlags adds the verbosity flag of Kubernetes' programs to the command.
func AddLogFlags(cmd *cobra.Command) {
	all := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(all)
	cmd.PersistentFlags().AddGoFlag(all.Lookup("v"))
}

// RESTConfig returns the client configuration from the named kubeconfig file, or if the name is empty,
// from the pod's own token or else the default kubeconfig.
func RESTConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	// A pod has no kubeconfig, and this uses the pod's token.
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	return config, nil
}
