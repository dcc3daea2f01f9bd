// SPDX-License-Identifier: Apache-2.0

package leaderclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// tunnel connects to a port of a pod through the API server and its kubelet, as kubectl port-forward does.
// No port of this machine is opened for it.
type tunnel struct {
	streams httpstream.Connection
	pod     string // namespace/name
	port    string
	dialed  atomic.Int64 // number of connections
}

// forward opens a tunnel to the leader's pod.
func (l *Leader) forward(ctx context.Context, config *rest.Config) (*tunnel, error) {
	_, port, err := net.SplitHostPort(l.Address)
	if err != nil {
		return nil, fmt.Errorf("pod %s/%s: the address that it published: %w", l.Namespace, l.Process, err)
	}
	dialer, err := podDialer(config, l.Namespace, l.Process)
	if err != nil {
		return nil, err
	}
	streams, err := open(ctx, dialer)
	if err != nil {
		return nil, refused(fmt.Errorf("forwarding its port %s: %w", port, err), "pod", l.Namespace, l.Process)
	}
	return &tunnel{streams: streams, pod: l.Namespace + "/" + l.Process, port: port}, nil
}

// podDialer connects to a pod over a WebSocket, or over SPDY where an API server or a proxy before it does
// not support that, as kubectl does.
func podDialer(config *rest.Config, namespace, pod string) (httpstream.Dialer, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 0 // the tunnel lasts as long as its requests
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	url := kube.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return nil, err
	}
	overSPDY := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	overWebSocket, err := portforward.NewSPDYOverWebsocketDialer(url, config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialer(overWebSocket, overSPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}

// open dials until ctx ends, or for connectTimeout: a Dialer takes no context.
func open(ctx context.Context, dialer httpstream.Dialer) (httpstream.Connection, error) {
	type result struct {
		streams  httpstream.Connection
		protocol string
		err      error
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	results := make(chan result, 1)
	go func() {
		streams, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
		results <- result{streams, protocol, err}
	}()
	select {
	case r := <-results:
		if r.err == nil && r.protocol != portforward.PortForwardProtocolV1Name {
			r.err = errors.Join(fmt.Errorf("the API server speaks protocol %q, want %q", r.protocol, portforward.PortForwardProtocolV1Name), r.streams.Close())
		}
		return r.streams, r.err
	case <-ctx.Done():
		go func() {
			if r := <-results; r.err == nil {
				_ = r.streams.Close() // the caller has left
			}
		}()
		return nil, ctx.Err()
	}
}

// dial opens a connection to the pod's port; the address is the tunnel's own.
func (t *tunnel) dial(context.Context, string, string) (net.Conn, error) {
	headers := http.Header{}
	headers.Set(v1.PortHeader, t.port)
	headers.Set(v1.PortForwardRequestIDHeader, strconv.FormatInt(t.dialed.Add(1), 10))
	headers.Set(v1.StreamType, v1.StreamTypeError)
	faults, err := t.streams.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", t.pod, err)
	}
	if err := faults.Close(); err != nil { // nothing is written to it
		return nil, fmt.Errorf("pod %s: %w", t.pod, err)
	}
	headers.Set(v1.StreamType, v1.StreamTypeData)
	data, err := t.streams.CreateStream(headers)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", t.pod, err)
	}
	c := &podConn{Stream: data, of: t, faults: make(chan error, 1)}
	go func() {
		text, err := io.ReadAll(faults)
		if err == nil && len(text) > 0 {
			err = fmt.Errorf("pod %s, port %s: %s", t.pod, t.port, text)
		}
		c.faults <- err
	}()
	return c, nil
}

func (t *tunnel) close() { _ = t.streams.Close() } // all its data has been read

// podConn is one connection in a tunnel.
type podConn struct {
	httpstream.Stream

	of     *tunnel
	faults chan error // receives the other end's error when the connection ends
}

// Read reads, and returns the other end's error in place of io.EOF if there is one.
func (c *podConn) Read(p []byte) (int, error) {
	n, err := c.Stream.Read(p)
	if n > 0 || err == nil {
		return n, err
	}
	return 0, c.cause(err)
}

// Write writes, and returns the other end's error if there is one: it may reset the stream before anything is
// written.
func (c *podConn) Write(p []byte) (int, error) {
	n, err := c.Stream.Write(p)
	if err != nil {
		err = c.cause(err)
	}
	return n, err
}

// cause is the other end's error in place of err if there is one.
func (c *podConn) cause(err error) error {
	select {
	case said := <-c.faults:
		c.faults <- said // for the next
		if said != nil {
			return said
		}
	case <-c.of.streams.CloseChan():
	}
	return err
}

// Close closes both directions.
func (c *podConn) Close() error { return c.Reset() }

// LocalAddr is empty: the connection has no address on this machine.
func (c *podConn) LocalAddr() net.Addr { return podAddr("") }

// RemoteAddr is the pod and its port.
func (c *podConn) RemoteAddr() net.Addr { return podAddr(c.of.pod + ":" + c.of.port) }

// SetDeadline does nothing: streams have none, and requests have a context.
func (c *podConn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing.
func (c *podConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing.
func (c *podConn) SetWriteDeadline(time.Time) error { return nil }

// podAddr is a pod and its port.
type podAddr string

// Network is the network of a tunnel.
func (podAddr) Network() string { return "port-forward" }

func (a podAddr) String() string { return string(a) }
