// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"k8s.io/client-go/rest"
)

// schedulerAccess are the flags for access to schedulers' debug addresses. Without --scheduler what-if and
// snapshot save find the leader.
type schedulerAccess struct {
	schedulers  []string
	schedulerCA string
	insecure    bool
	tokenFile   string
}

func (a *schedulerAccess) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&a.schedulers, "scheduler", nil, "https://host:port of a scheduler process's debugAddress; may be repeated")
	f.StringVar(&a.schedulerCA, "scheduler-ca", "", "file with the certificates to verify --scheduler with (default: the system's)")
	f.BoolVar(&a.insecure, "insecure-skip-tls-verify", false, "trust any certificate of --scheduler; the token could be stolen")
	f.StringVar(&a.tokenFile, "token-file", "", "file with the token for --scheduler (default: the kubeconfig's)")
}

func (a *schedulerAccess) check() error {
	switch {
	case len(a.schedulers) == 0 && (a.schedulerCA != "" || a.tokenFile != "" || a.insecure):
		return usagef("--scheduler-ca, --token-file and --insecure-skip-tls-verify go with --scheduler only")
	case a.insecure && a.schedulerCA != "":
		return usagef("--scheduler-ca and --insecure-skip-tls-verify contradict each other")
	}
	return nil
}

// client returns a client that sends the user's token to schedulers, and nothing else from the connection
// to the API server. timeout bounds one request.
func (a *schedulerAccess) client(cluster *rest.Config, timeout time.Duration) (*http.Client, error) {
	config := &rest.Config{
		Host: a.schedulers[0], Timeout: timeout, UserAgent: cluster.UserAgent,
		BearerToken: cluster.BearerToken, BearerTokenFile: cluster.BearerTokenFile,
		ExecProvider: cluster.ExecProvider, AuthProvider: cluster.AuthProvider, AuthConfigPersister: cluster.AuthConfigPersister,
		TLSClientConfig: rest.TLSClientConfig{CAFile: a.schedulerCA, Insecure: a.insecure},
	}
	if a.tokenFile != "" {
		token, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return nil, inputf("--token-file: %w", err)
		}
		config.BearerToken, config.BearerTokenFile, config.ExecProvider, config.AuthProvider = strings.TrimSpace(string(token)), "", nil, nil
	}
	if config.BearerToken == "" && config.BearerTokenFile == "" && config.ExecProvider == nil && config.AuthProvider == nil {
		return nil, usagef("--scheduler needs a token, and the kubeconfig has none: use --token-file, for example with what `kubectl create token` prints")
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, inputf("--scheduler: %w", err)
	}
	return client, nil
}
