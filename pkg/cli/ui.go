// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/daemon"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
	"github.com/nvtopo/nvtopo/pkg/webui"
	"github.com/nvtopo/nvtopo/pkg/webui/clusterwatch"
	"github.com/nvtopo/nvtopo/ui"
)

const (
	// uiAddress is the default address of the web view: on this machine only.
	uiAddress = "127.0.0.1:8473"
	// settleTimeout bounds the time of reading the cluster before the first response.
	settleTimeout = 2 * time.Minute
	// maxPodEvents bounds the events of one pod's history.
	maxPodEvents = 500
)

// viewing is the command ui with its flags.
type viewing struct {
	cluster           clusterFlags
	address           string
	byToken           bool
	certFile, keyFile string
	proxies           []string
	leases            string
	schedulers        []string
	resource          string
	clock             clock.WithTicker
}

func newUI() *cobra.Command {
	cmd, _ := newUIWith()
	return cmd
}

// newUIWith returns the command, and the values of its flags.
func newUIWith() (*cobra.Command, *viewing) {
	v := &viewing{clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Serve a web view of the fabric, the GPUs and every waiting pod",
		Long: `Serve a web view of the cluster: the fabric and what is free in it, each node's links with
the pods on its GPUs, all pods that ask for GPUs and why they wait, gangs, pools, and a
pod's history. It changes nothing, and follows what changes. Its data is a JSON API, too:
see docs/web-api.md.

It serves this machine only, and shows what the kubeconfig's user may read. Whoever can
log in to this machine can see it while it runs.

With --require-token it serves any address, over TLS, to whom the cluster lets: each
request needs a bearer token of the cluster (TokenReview), whose owner may list what is
shown (SubjectAccessReview). In a cluster it takes its own service account.`,
		Example: `  NVTOPO ui
  NVTOPO ui --address 127.0.0.1:9000 --context staging
  NVTOPO ui --address '[::1]:8473'
  NVTOPO ui --address :8443 --require-token --tls-cert-file tls.crt --tls-private-key-file tls.key`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return v.run(cmd) },
	}
	v.cluster.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&v.address, "address", uiAddress, "host:port to serve, [::1]:8473 for IPv6; another than this machine needs --require-token")
	f.BoolVar(&v.byToken, "require-token", false, "serve over TLS, and only who has a bearer token of the cluster and may list what is shown")
	f.StringVar(&v.certFile, "tls-cert-file", "", "with --require-token: certificate, read again when it changes (default: one is made at each start)")
	f.StringVar(&v.keyFile, "tls-private-key-file", "", "private key of --tls-cert-file")
	f.StringSliceVar(&v.proxies, "trusted-proxies", nil, "with --require-token: addresses or CIDRs of proxies whose X-Forwarded-For is believed")
	f.StringVar(&v.leases, "lease-namespace", release.Namespace, "namespace of the Leases of exporters and agents")
	bindProfiles(cmd, &v.schedulers)
	f.StringVar(&v.resource, "resource", v1alpha1.DefaultResource, "extended resource the GPUs count under")
	return cmd, v
}

func (v *viewing) check() error {
	host, _, err := net.SplitHostPort(v.address)
	ip := net.ParseIP(host)
	switch {
	case err != nil:
		return usagef("--address: %w", err)
	case !v.byToken && host != "localhost" && (ip == nil || !ip.IsLoopback()):
		return usagef("--address %s: whoever reaches it would see what you may read; want an address of this machine, such as %s, or --require-token", v.address, uiAddress)
	case !v.byToken && (v.certFile != "" || v.keyFile != ""):
		return usagef("--tls-cert-file and --tls-private-key-file go with --require-token only")
	case (v.certFile == "") != (v.keyFile == ""):
		return usagef("--tls-cert-file and --tls-private-key-file go together")
	case !v.byToken && len(v.proxies) > 0:
		return usagef("--trusted-proxies goes with --require-token only")
	}
	if _, err := webui.ParseProxies(v.proxies); err != nil {
		return usagef("--trusted-proxies: %w", err)
	}
	return nil
}

func (v *viewing) run(cmd *cobra.Command) error {
	if err := v.check(); err != nil {
		return err
	}
	config, err := v.cluster.config()
	if err != nil {
		return inputf("kubeconfig: %w", err)
	}
	served, err := v.server(config)
	if err != nil {
		return inputf("%w", err)
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { served.watch.Run(ctx) })
	running.Go(func() { served.server.Run(ctx) })
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", v.address)
	if err != nil {
		return inputf("--address: %w", err)
	}
	var secure *tls.Config
	scheme := "http"
	if v.byToken {
		scheme = "https"
		if secure, err = daemon.TLSConfig(ctx, v.certFile, v.keyFile, ln.Addr()); err != nil {
			_ = ln.Close() // nothing was served
			return inputf("%w", err)
		}
	}
	running.Go(func() { sayProblems(ctx, cmd.ErrOrStderr(), served.watch) })
	printf(cmd.OutOrStdout(), "The web view is at %s://%s/ until you interrupt it.\n", scheme, ln.Addr())
	if builtPages() == nil {
		printf(cmd.OutOrStdout(), "Its pages are not in this build: it serves /api/v1 only. In a checkout, with Node.js: make ui build\n")
	}
	if err := served.server.Serve(ctx, ln, secure); err != nil {
		return inputf("%w", err)
	}
	return nil
}

// sayProblems prints the parts of the cluster that cannot be read, once all have been requested.
func sayProblems(ctx context.Context, w io.Writer, watch *clusterwatch.Watch) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	if err := watch.Settle(ctx); err != nil {
		return
	}
	for _, problem := range watch.Snapshot().Problems {
		printf(w, "Problem  %s\n", problem)
	}
}

// viewed is a server with its watch of the cluster.
type viewed struct {
	watch  *clusterwatch.Watch
	server *webui.Server
}

func (v *viewing) server(config *rest.Config) (*viewed, error) {
	watching := rest.CopyConfig(config)
	watching.Timeout = 0 // a watch has no end
	watching.QPS, watching.Burst = clusterQPS, 2*clusterQPS
	dyn, err := dynamic.NewForConfig(watching)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	watching.ContentType = "application/vnd.kubernetes.protobuf" // of the kinds of Kubernetes, a tenth of the work
	kube, err := kubernetes.NewForConfig(watching)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	watch, err := clusterwatch.New(clusterwatch.Config{
		Kube: kube, Dynamic: dyn, LeaseNamespace: v.leases, Schedulers: v.schedulers, Resources: v.resources(), Clock: v.clock,
	})
	if err != nil {
		return nil, err
	}
	c := webui.Config{
		Watch: watch, Ledger: ledger.NewReader(dyn), Resource: v.resource, Version: release.Version(), Clock: v.clock,
		Events: func(ctx context.Context, namespace, pod string) ([]v1.Event, error) {
			return eventsOf(ctx, kube, namespace, pod)
		},
		Files: builtPages(),
	}
	if v.byToken {
		reviewing := rest.CopyConfig(config) // with a limit of its own: requests of any user use it up
		reviewing.QPS, reviewing.Burst = clusterQPS, 2*clusterQPS
		reviewer, err := kubernetes.NewForConfig(reviewing)
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: %w", err)
		}
		proxies, err := webui.ParseProxies(v.proxies)
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxies: %w", err)
		}
		c.Access = webui.NewTokens(reviewer, v.clock, proxies)
	} else {
		c.Access, c.Hosts = webui.OneUser{Name: v.user()}, []string{"localhost", "127.0.0.1", "::1"}
		if host, _, err := net.SplitHostPort(v.address); err == nil && !slices.Contains(c.Hosts, host) {
			c.Hosts = append(c.Hosts, host) // of this machine, such as 127.0.0.2
		}
	}
	server, err := webui.New(c)
	return &viewed{watch, server}, err
}

// resources returns the resources whose devices the scheduler chooses; nil: those that it has published.
func (v *viewing) resources() []string {
	if v.resource == v1alpha1.DefaultResource {
		return nil
	}
	return []string{v.resource}
}

// user is the name of the user in the kubeconfig's context.
func (v *viewing) user() string {
	raw, err := v.cluster.loader().RawConfig()
	if err != nil {
		return ""
	}
	name := v.cluster.context
	if name == "" {
		name = raw.CurrentContext
	}
	if c := raw.Contexts[name]; c != nil {
		return c.AuthInfo
	}
	return ""
}

// builtPages are the pages of the web view; nil if the program was built without them.
func builtPages() fs.FS {
	if files, ok := ui.Files(); ok {
		return files
	}
	return nil
}

func eventsOf(ctx context.Context, kube kubernetes.Interface, namespace, pod string) ([]v1.Event, error) {
	selector := fields.Set{"involvedObject.kind": "Pod", "involvedObject.name": pod}.AsSelector().String()
	l, err := kube.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: selector, Limit: maxPodEvents})
	if err != nil {
		return nil, err
	}
	return l.Items, nil
}
