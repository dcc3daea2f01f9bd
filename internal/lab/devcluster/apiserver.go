// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/version"
	utilcompatibility "k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

const (
	serviceCIDR = "10.96.0.0/16" // never routed; the API server wants one
	issuer      = "https://kubernetes.default.svc"
	// apiserverStart limits the start of the API server: 1-2 s on an idle machine, more where several share
	// two cores.
	apiserverStart = 3 * time.Minute
	pollInterval   = 50 * time.Millisecond
)

// auditPolicy records each finished request once, without bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
`

func firstServiceIP() net.IP { return net.IPv4(10, 96, 0, 1) }

// apiserver is a kube-apiserver running in this process.
type apiserver struct {
	config   *rest.Config // admin, with the default rate limits switched off
	listener *listener
	cancel   context.CancelFunc
	done     chan error
}

// startAPIServer starts a kube-apiserver on a port, or on any free one if port is 0, and waits until it
// is ready.
func startAPIServer(ctx context.Context, dir, etcd string, port int, creds *credentials, cfg *Config) (*apiserver, error) {
	// Listening here and handing the listener over leaves no moment in which another process could take the
	// port.
	l, err := listen(ctx, port)
	if err != nil {
		return nil, fmt.Errorf("listen for kube-apiserver: %w", err)
	}
	opts, err := apiserverOptions(dir, etcd, l, creds, cfg)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	completed, err := opts.Complete(runCtx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("complete kube-apiserver's options: %w", err)
	}
	if errs := completed.Validate(); len(errs) != 0 {
		cancel()
		return nil, fmt.Errorf("kube-apiserver's options: %w", errors.Join(errs...))
	}
	s := &apiserver{listener: l, cancel: cancel, done: make(chan error, 1), config: adminConfig(l.port(), creds)}
	go func() {
		// It panics if etcd goes, or does not answer, while it sets up its storage.
		defer func() {
			if r := recover(); r != nil {
				s.done <- fmt.Errorf("kube-apiserver panicked: %v", r)
			}
		}()
		s.done <- app.Run(runCtx, completed)
	}()
	if err := s.waitReady(ctx); err != nil {
		return nil, errors.Join(err, s.abandon(ctx))
	}
	return s, nil
}

// knownVersion makes the server report its minor version, also in a program without the stamp of a
// release, such as a test: clients read it, and cannot parse "v0.0.0-master".
type knownVersion struct {
	basecompatibility.MutableEffectiveVersion
}

// Info returns the server's response at /version.
func (v knownVersion) Info() *version.Info {
	info := v.MutableEffectiveVersion.Info()
	if strings.HasPrefix(info.GitVersion, "v0.0.0-") {
		info.GitVersion = "v" + v.BinaryVersion().WithPatch(0).String()
	}
	return info
}

// apiserverOptions builds the options from command-line flags, the server's only stable interface.
// Feature gates and versions are in a separate registry, so that several clusters in one process do not
// disturb each other.
func apiserverOptions(dir, etcd string, l *listener, creds *credentials, cfg *Config) (*options.ServerRunOptions, error) {
	gate := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	effective := knownVersion{utilcompatibility.DefaultBuildEffectiveVersion()}
	registry := basecompatibility.NewComponentGlobalsRegistry()
	if err := registry.Register(basecompatibility.DefaultKubeComponent, effective, gate); err != nil {
		return nil, fmt.Errorf("register kube-apiserver's version: %w", err)
	}
	opts := options.NewServerRunOptions()
	opts.GenericServerRunOptions.ComponentGlobalsRegistry = registry

	opts.SecureServing.Listener = l

	args, err := apiserverArgs(dir, etcd, l.port(), creds, cfg)
	if err != nil {
		return nil, err
	}
	fs := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	sets := opts.Flags()
	for _, name := range sets.Order {
		fs.AddFlagSet(sets.FlagSets[name])
	}
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("kube-apiserver's flags: %w", err)
	}
	if err := registry.Set(); err != nil {
		return nil, fmt.Errorf("kube-apiserver's feature gates: %w", err)
	}
	return opts, nil
}

func apiserverArgs(dir, etcd string, port int, creds *credentials, cfg *Config) ([]string, error) {
	args := []string{
		"--etcd-servers=" + etcd,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(port),
		"--tls-cert-file=" + creds.certFile,
		"--tls-private-key-file=" + creds.keyFile,
		"--cert-dir=" + filepath.Join(dir, "pki"),
		"--client-ca-file=" + creds.caFile,
		"--requestheader-client-ca-file=" + creds.proxyCAFile,
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + creds.serviceAccountKeyFile,
		"--service-account-signing-key-file=" + creds.serviceAccountKeyFile,
		"--service-cluster-ip-range=" + serviceCIDR,
		"--authorization-mode=RBAC",
		"--anonymous-auth=" + strconv.FormatBool(cfg.AnonymousAuth),
		"--allow-privileged=true",
		// Loopback is refused as an endpoint address; the kubernetes Service needs none here.
		"--endpoint-reconciler-type=none",
		"--profiling=false",
		// Tests create hundreds of pods at once; the defaults (400, 200) are for large machines with fair queuing.
		"--max-requests-inflight=2000",
		"--max-mutating-requests-inflight=1000",
		// A namespace's events are deleted in one request, which may last a minute. Deleting thousands
		// one after the other took longer on a busy machine.
		"--delete-collection-workers=8",
	}
	// TaintNodesByCondition would taint every Node made by a client until a node controller lifts
	// it. ServiceAccount would refuse pods until a controller has made each namespace's default
	// account.
	without := "TaintNodesByCondition"
	if !cfg.ServiceAccounts {
		without += ",ServiceAccount"
	}
	args = append(args, "--disable-admission-plugins="+without)
	if cfg.AuditLog {
		policy := filepath.Join(dir, "audit-policy.yaml")
		if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
			return nil, fmt.Errorf("write the audit policy: %w", err)
		}
		args = append(args, "--audit-policy-file="+policy, "--audit-log-path="+filepath.Join(dir, auditLogFile))
	}
	return append(args, cfg.APIServerArgs...), nil
}

// adminConfig returns a client configuration without a rate limit: the caller
// is a test or a demo that shares the process with the server.
func adminConfig(port int, creds *credentials) *rest.Config {
	return &rest.Config{
		Host: "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   creds.ca,
			CertData: creds.adminCert,
			KeyData:  creds.adminKey,
		},
		QPS:            -1,
		UserAgent:      "nvtopo-devcluster",
		WarningHandler: rest.NoWarnings{},
	}
}

// waitReady waits for /readyz and the namespaces that the server itself creates.
func (s *apiserver) waitReady(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, pollInterval, apiserverStart, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-s.done:
			s.done <- err // for stop
			return false, fmt.Errorf("kube-apiserver ended: %w", err)
		default:
		}
		if _, last = client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); last != nil {
			return false, nil //nolint:nilerr // not ready yet
		}
		for _, ns := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
			if _, last = client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); last != nil {
				return false, nil //nolint:nilerr // not ready yet
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait for kube-apiserver: %w", errors.Join(err, last))
	}
	return nil
}

// abandon ends a server that is not ready yet. If ctx is over, it lets the server get ready first, for
// three minutes at most: one of its post-start hooks that is cancelled ends the whole process with
// klog.Fatal. A server that did not get ready in time may therefore take the process with it.
func (s *apiserver) abandon(ctx context.Context) error {
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiserverStart)
	defer cancel()
	if ctx.Err() != nil {
		if err := s.waitReady(finish); err != nil {
			s.cancel()
			return err
		}
	}
	return s.stop(finish)
}

// stop ends the server and waits for it, at most until ctx is done.
func (s *apiserver) stop(ctx context.Context) error {
	s.cancel()
	select {
	case err := <-s.done:
		if err != nil {
			return fmt.Errorf("kube-apiserver: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for kube-apiserver to end: %w", ctx.Err())
	}
}

// crash ends the server as its death would for its clients: every connection is
// cut in the middle of what it carried. It waits until the server is gone.
//
// The connections live until the hooks that the server runs before its end are done: it talks
// to itself over this listener, and the controller of its identity Lease, cut off in the middle
// of a renewal, would never end (kubernetes#140242, since 1.35).
func (s *apiserver) crash(ctx context.Context) error {
	s.listener.cutWhenClosed()
	return s.stop(ctx)
}
