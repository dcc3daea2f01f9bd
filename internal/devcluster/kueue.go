// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-base/version"
)

const (
	// kueueStart bounds the wait for Kueue to serve: 3-12 s on an idle machine.
	kueueStart = 2 * time.Minute
	// readVersion is what the API server calls itself in a program that is linked
	// without a version, a test's: Kueue cannot read the default of component-base,
	// and ends. Only 0.0.0 may be put in its place.
	readVersion = "v0.0.0-devcluster.1.35.6"
)

//go:embed kueue.yaml
var kueueConfig []byte

// KueueOptions say which Kueue to run; both are made by make bin/kueue.
type KueueOptions struct {
	Binary string // path of the program
	Config string // the config folder of its module: CRDs, roles, webhooks
}

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

// startKueue applies what Kueue needs, starts it as its own service account, and
// waits until the API server gets answers from it.
func (c *Cluster) startKueue(ctx context.Context, opts *KueueOptions) error {
	binary, err := filepath.Abs(opts.Binary)
	if err != nil {
		return fmt.Errorf("kueue's path: %w", err)
	}
	var ports [3]int // health, metrics, webhooks
	for i := range ports {
		if ports[i], err = FreePort(); err != nil {
			return err
		}
	}
	// The certificates have to be in the Secret and in the folder before the start:
	// no kubelet would bring them from the one to the other.
	certificates, err := kueueCertificates(time.Now())
	if err != nil {
		return err
	}
	a, err := c.applyKueue(ctx, opts.Config, ports[2], certificates)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.dir, "kueue")
	if err := c.writeKueueFiles(ctx, dir, ports, certificates); err != nil {
		return err
	}
	c.kueue, err = startProcess("kueue", binary, []string{
		"--config=" + filepath.Join(dir, "config.yaml"), "--kubeconfig=" + filepath.Join(dir, "kubeconfig"),
	}, dir, c.log)
	if err != nil {
		return err
	}
	return c.waitKueue(ctx, a, ports[0])
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

// writeKueueFiles writes what Kueue reads at its start under dir.
func (c *Cluster) writeKueueFiles(ctx context.Context, dir string, ports [3]int, certificates map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make Kueue's folder: %w", err)
	}
	config, err := kueueConfiguration(dir, ports)
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"config.yaml": config, "tls.crt": certificates["tls.crt"], "tls.key": certificates["tls.key"],
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write Kueue's files: %w", err)
		}
	}
	cfg, err := c.ServiceAccountConfig(ctx, kueueNamespace, kueueAccount)
	if err != nil {
		return err
	}
	return WriteKubeconfigOf(cfg, filepath.Join(dir, "kubeconfig"))
}

// kueueConfiguration fills in what differs from cluster to cluster.
func kueueConfiguration(dir string, ports [3]int) ([]byte, error) {
	var fields map[string]any
	if err := yaml.Unmarshal(kueueConfig, &fields); err != nil {
		return nil, fmt.Errorf("read Kueue's configuration: %w", err)
	}
	at := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	err := errors.Join(
		unstructured.SetNestedField(fields, at(ports[0]), "health", "healthProbeBindAddress"),
		unstructured.SetNestedField(fields, at(ports[1]), "metrics", "bindAddress"),
		unstructured.SetNestedField(fields, int64(ports[2]), "webhook", "port"),
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

// waitKueue waits until Kueue is ready and the API server gets an answer from its
// webhooks: a flavor is offered, and not kept.
func (c *Cluster) waitKueue(ctx context.Context, a *applier, port int) error {
	flavor := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": map[string]any{"name": "devcluster-probe"},
	}}
	flavors, err := a.resource(flavor)
	if err != nil {
		return err
	}
	url := "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "/readyz"
	ctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	return poll(ctx, kueueStart, "Kueue serves", func(ctx context.Context) error {
		if !c.kueue.alive() {
			giveUp()
			return fmt.Errorf("it ended: %w", errOrExit(c.kueue.err))
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

// answersOK is an error unless a URL is answered with 200.
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
