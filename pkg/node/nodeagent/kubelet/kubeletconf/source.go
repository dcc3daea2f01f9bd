// SPDX-License-Identifier: Apache-2.0

package kubeletconf

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	// configzTimeout limits one request; kubelet responds from memory.
	configzTimeout = 10 * time.Second
	// maxConfigBytes limits a response or a file; kubelet's are about 6 kB.
	maxConfigBytes = 1 << 20
	// selfSigned is the serving certificate that kubelet creates below its root directory if it was given
	// none.
	selfSigned = "pki/kubelet.crt"
)

// nodeAddress returns host:port of the node's kubelet, from the Node object.
func nodeAddress(node *v1.Node) (string, error) {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	i := slices.IndexFunc(node.Status.Addresses, func(a v1.NodeAddress) bool { return a.Type == v1.NodeInternalIP })
	if port == 0 || i < 0 {
		return "", fmt.Errorf("node %s has no internal address or no kubelet port in its status", node.Name)
	}
	return net.JoinHostPort(node.Status.Addresses[i].Address, strconv.Itoa(int(port))), nil
}

// maxVersion is the limit of the NodeGPUTopology's schema for kubelet's version, in characters.
const maxVersion = 64

// nodeVersion returns the version of the node's kubelet, from the Node object.
func nodeVersion(node *v1.Node) (string, error) {
	v := node.Status.NodeInfo.KubeletVersion
	_, err := version.ParseGeneric(v)
	if err != nil || len(v) > maxVersion || v1alpha1.WithoutControls(v) != v {
		return "", fmt.Errorf("node %s: status.nodeInfo.kubeletVersion %.64q is no version of at most %d characters", node.Name, v, maxVersion)
	}
	return v, nil
}

// source reads the settings from the file or from /configz. node may be nil if a file is configured.
func (r *Reader) source(ctx context.Context, node *v1.Node) (*settings, error) {
	if r.cfg.File != "" {
		data, err := readBounded(r.cfg.File, maxConfigBytes)
		if err != nil {
			return nil, fmt.Errorf("kubelet configuration: %w", err)
		}
		return parseFile(data)
	}
	data, err := r.configz(ctx, node)
	if err != nil {
		return nil, err
	}
	return parseConfigz(data)
}

// configz reads kubelet's /configz with the agent's token. The certificate is always verified: otherwise
// a process that took over the port would get the token. The certificate may be for the node's name, like
// those that kubelet creates, or for its address.
func (r *Reader) configz(ctx context.Context, node *v1.Node) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, configzTimeout)
	defer cancel()
	address, err := nodeAddress(node)
	if err != nil {
		return nil, fmt.Errorf("configz: address of kubelet: %w", err)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("configz: address of kubelet: %w", err)
	}
	roots, err := r.roots()
	if err != nil {
		return nil, err
	}
	var failed error
	for _, name := range []string{r.cfg.Node, host} {
		data, err := r.get(ctx, address, name, roots)
		if err == nil {
			return data, nil
		}
		failed = errors.Join(failed, err)
		if other := (x509.HostnameError{}); !errors.As(err, &other) {
			break
		}
	}
	return nil, failed
}

func (r *Reader) get(ctx context.Context, address, serverName string, roots *x509.CertPool) ([]byte, error) {
	tlsConfig, err := rest.TLSConfigFor(r.cfg.REST)
	if err != nil {
		return nil, fmt.Errorf("configz: %w", err)
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	tlsConfig.InsecureSkipVerify = false
	tlsConfig.ServerName, tlsConfig.RootCAs = serverName, roots
	// Each request has its own connection: requests are minutes apart, and kubelet restarts.
	bare := &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}
	defer bare.CloseIdleConnections()
	wrapped, err := rest.HTTPWrappersForConfig(r.cfg.REST, bare)
	if err != nil {
		return nil, fmt.Errorf("configz: %w", err)
	}
	target := url.URL{Scheme: "https", Host: address, Path: "/configz"}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("configz: %w", err)
	}
	resp, err := (&http.Client{Transport: wrapped, CheckRedirect: noRedirect}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("configz: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxConfigBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("configz: reading the answer of %s: %w", address, err)
	case resp.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("configz: %s answers %s: the agent needs get on nodes/configz (kubelet before 1.33 knows nodes/proxy only; name its file instead)",
			address, resp.Status)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("configz: %s answers %s", address, resp.Status)
	case len(data) > maxConfigBytes:
		return nil, fmt.Errorf("configz: answer of %s is longer than %d bytes", address, maxConfigBytes)
	}
	return data, nil
}

// noRedirect stops redirects, so that the token is sent to no other server.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// roots returns the certificates to trust: the cluster's authority, which signs kubelet's serving
// certificate under serverTLSBootstrap, those in CAFile, and the certificate that kubelet created for
// itself, if it can be read.
func (r *Reader) roots() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	cluster := r.cfg.REST.CAData
	if len(cluster) == 0 && r.cfg.REST.CAFile != "" {
		var err error
		if cluster, err = readBounded(r.cfg.REST.CAFile, maxConfigBytes); err != nil {
			return nil, fmt.Errorf("configz: certificate authority: %w", err)
		}
	}
	pool.AppendCertsFromPEM(cluster)
	if r.cfg.CAFile != "" {
		data, err := readBounded(r.cfg.CAFile, maxConfigBytes)
		if err != nil {
			return nil, fmt.Errorf("configz: certificate authority of kubelet: %w", err)
		}
		if !pool.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("configz: no certificate in %s", r.cfg.CAFile)
		}
	}
	own, err := readBounded(filepath.Join(r.cfg.RootDir, selfSigned), maxConfigBytes)
	switch {
	case err == nil:
		pool.AppendCertsFromPEM(own)
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("configz: certificate of kubelet: %w", err)
	}
	return pool, nil
}

func readBounded(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, most)
	}
	return data, nil
}
