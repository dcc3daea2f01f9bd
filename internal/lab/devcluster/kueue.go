// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/version"

	"github.com/nvtopo/nvtopo/manifests"
)

const (
	// kueueStart limits the wait for Kueue to serve: 3-12 s on an idle machine.
	kueueStart = 5 * time.Minute
	// readVersion is the API server's version in a program that is linked without one, such as a test: Kueue
	// cannot parse the default of component-base, and ends. Only 0.0.0 may be replaced by it.
	readVersion = "v0.0.0-devcluster.1.35.8"
)

// KueueOptions selects the Kueue to run; its two paths are created by make bin/kueue.
type KueueOptions struct {
	Binary string // path of the program
	Config string // the config folder of its module: CRDs, roles, webhooks
}

// Kueue is Kueue running as a child process.
type Kueue struct {
	c      *Cluster
	binary string
	args   []string
	dir    string
	ports  [3]int // health, metrics, webhooks
	probe  *applier

	mu   sync.Mutex
	proc *process // guarded by mu
}

// Kueue returns the cluster's Kueue; nil if Config has none.
func (c *Cluster) Kueue() *Kueue { return c.kueue }

// beReadable gives the API server a version that Kueue can read.
func beReadable() error {
	if _, err := utilversion.ParseSemantic(version.Get().GitVersion); err == nil {
		return nil
	}
	if err := version.SetDynamicVersion(readVersion); err != nil {
		return fmt.Errorf("set the API server's version: %w", err)
	}
	return nil
}

// startKueue applies the objects that Kueue needs, starts it as its own service account, and waits until
// the API server gets responses from it.
func (c *Cluster) startKueue(ctx context.Context, opts *KueueOptions) error {
	binary, err := filepath.Abs(opts.Binary)
	if err != nil {
		return fmt.Errorf("kueue's path: %w", err)
	}
	k := &Kueue{c: c, binary: binary, dir: filepath.Join(c.dir, "kueue")}
	for i := range k.ports {
		if k.ports[i], err = FreePort(); err != nil {
			return err
		}
	}
	// The certificates have to be in the Secret and in the folder before the start:
	// no kubelet would bring them from the one to the other.
	certificates, err := kueueCertificates(time.Now())
	if err != nil {
		return err
	}
	if k.probe, err = c.applyKueue(ctx, opts.Config, k.ports[2], certificates); err != nil {
		return err
	}
	if err := k.writeFiles(ctx, certificates); err != nil {
		return err
	}
	k.args = []string{"--config=" + filepath.Join(k.dir, "config.yaml"), "--kubeconfig=" + filepath.Join(k.dir, "kubeconfig")}
	c.kueue = k
	return k.Restart(ctx)
}

// Restart starts Kueue again after Kill, and waits until the API server gets responses from it.
func (k *Kueue) Restart(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.proc != nil && k.proc.alive() {
		return errors.New("start Kueue: it is running")
	}
	proc, err := startProcess("kueue", k.binary, k.args, k.dir, k.c.log)
	if err != nil {
		return err
	}
	k.proc = proc
	return k.wait(ctx, proc)
}

// Kill ends Kueue with SIGKILL and waits until it is gone. Its webhooks fail closed until
// Restart.
func (k *Kueue) Kill() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.proc == nil {
		return nil
	}
	return k.proc.kill()
}

// Alive reports whether the process runs.
func (k *Kueue) Alive() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.proc != nil && k.proc.alive()
}

// PID returns the process ID of the last start, 0 before the first.
func (k *Kueue) PID() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.proc == nil {
		return 0
	}
	return k.proc.pid
}

// MetricsURL returns the URL of its metrics: HTTPS, for holders of the role kueue-metrics-reader.
func (k *Kueue) MetricsURL() string {
	return "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(k.ports[1])) + "/metrics"
}

// applyKueue applies Kueue's objects and returns when its kinds are served.
func (c *Cluster) applyKueue(ctx context.Context, config string, port int, certificates map[string][]byte) (*applier, error) {
	objects, err := kueueObjects(config, port, certificates)
	if err != nil {
		return nil, err
	}
	a, err := newApplier(c)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if err := a.apply(ctx, o); err != nil {
			return nil, err
		}
	}
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := a.waitServed(ctx, o); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// writeFiles writes the files that Kueue reads at its start.
func (k *Kueue) writeFiles(ctx context.Context, certificates map[string][]byte) error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return fmt.Errorf("make Kueue's folder: %w", err)
	}
	config, err := kueueConfiguration(k.dir, k.ports)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"config.yaml": config, "tls.crt": certificates["tls.crt"], "tls.key": certificates["tls.key"],
	} {
		if err := os.WriteFile(filepath.Join(k.dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write Kueue's files: %w", err)
		}
	}
	cfg, err := k.c.ServiceAccountConfig(ctx, kueueNamespace, kueueAccount)
	if err != nil {
		return err
	}
	return WriteKubeconfigOf(cfg, filepath.Join(k.dir, "kubeconfig"))
}

// kueueConfiguration fills in the values that differ between clusters.
func kueueConfiguration(dir string, ports [3]int) ([]byte, error) {
	shipped, err := manifests.Kueue.ReadFile(manifests.KueueConfigPath)
	if err != nil {
		return nil, fmt.Errorf("read the shipped configuration: %w", err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(shipped, &fields); err != nil {
		return nil, fmt.Errorf("read Kueue's configuration: %w", err)
	}
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	err = errors.Join(
		unstructured.SetNestedField(fields, at(ports[0]), "health", "healthProbeBindAddress"),
		unstructured.SetNestedField(fields, at(ports[1]), "metrics", "bindAddress"),
		unstructured.SetNestedField(fields, "127.0.0.1", "webhook", "host"),
		unstructured.SetNestedField(fields, int64(ports[2]), "webhook", "port"),
		unstructured.SetNestedField(fields, false, "leaderElection", "leaderElect"),
		unstructured.SetNestedField(fields, dir, "webhook", "certDir"),
	)
	if err != nil {
		return nil, fmt.Errorf("set Kueue's addresses: %w", err)
	}
	out, err := yaml.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("write Kueue's configuration: %w", err)
	}
	return out, nil
}

// wait waits until Kueue is ready and the API server gets an answer from its
// webhooks: a flavor is offered, and not kept.
func (k *Kueue) wait(ctx context.Context, proc *process) error {
	flavor := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": map[string]any{"name": "devcluster-probe"},
	}}
	flavors, err := k.probe.resource(flavor)
	if err != nil {
		return err
	}
	url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(k.ports[0])) + "/readyz"
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	return poll(ctx, kueueStart, "Kueue serves", func(ctx context.Context) error {
		if !proc.alive() {
			giveUp()
			return fmt.Errorf("it ended: %w", errOrExit(proc.err))
		}
		if err := answersOK(ctx, url); err != nil {
			return err
		}
		_, err := flavors.Create(ctx, flavor, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return fmt.Errorf("offer a flavor: %w", err)
		}
		return nil
	})
}

// answersOK returns an error unless a URL responds with 200.
func answersOK(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	if err := resp.Body.Close(); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
