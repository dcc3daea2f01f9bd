// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// serviceAddress is that of the Service kubernetes, as devcluster's API server has it: programs
	// in pods look for it there.
	serviceAddress = "10.96.0.1"
	servicePort    = "443"
	// nodeAddress is the node's, in no network of the machine (RFC 1918).
	nodeAddress = "10.97.0.1"
	// podAddresses is the range of the pods' addresses.
	podAddresses = "10.98.0.0/24"
)

// podNetwork is the configuration of a network that joins each pod to the node, by the CNI's
// reference plugins. addresses is a folder that keeps which are taken.
func podNetwork(addresses string) string {
	return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": false, "ipam": {
  "type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`, addresses, podAddresses)
}

// prepareNetwork gives the loopback device addresses beside its own. It runs in the node's network
// namespace, which has no other device yet.
func prepareNetwork(addresses []string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	if err := setFlags(fd, "lo"); err != nil {
		return err
	}
	for i, address := range addresses {
		alias := "lo:" + strconv.Itoa(i+1)
		for _, set := range []struct {
			request uint
			value   string
		}{{unix.SIOCSIFADDR, address}, {unix.SIOCSIFNETMASK, "255.255.255.255"}} {
			if err := setAddress(fd, alias, set.request, set.value); err != nil {
				return err
			}
		}
	}
	return nil
}

// setFlags switches a network device on.
func setFlags(fd int, device string) error {
	request, err := unix.NewIfreq(device)
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("switch device %s on: %w", device, err)
	}
	return nil
}

func setAddress(fd int, device string, what uint, address string) error {
	request, err := unix.NewIfreq(device)
	if err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	if err := request.SetInet4Addr(net.ParseIP(address).To4()); err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	if err := unix.IoctlIfreq(fd, what, request); err != nil {
		return fmt.Errorf("give device %s the address %s: %w", device, address, err)
	}
	return nil
}

// network brings the API server, which is on the machine, into the node's network namespace.
type network struct {
	target    string // the API server's address on the machine
	listeners []net.Listener
	wg        sync.WaitGroup
	ctx       context.Context // the network's life
	cancel    context.CancelFunc
}

// startNetwork listens in the network namespace of a process: at the API server's own address, which
// is in kubeconfigs, and at that of its Service.
func startNetwork(pid int, server string) (*network, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	n := &network{target: u.Host}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	for _, address := range []string{u.Host, net.JoinHostPort(serviceAddress, servicePort)} {
		l, err := listenIn(n.ctx, pid, address)
		if err != nil {
			n.stop()
			return nil, fmt.Errorf("listen at %s of the node: %w", address, err)
		}
		n.listeners = append(n.listeners, l)
		n.wg.Go(func() { n.serve(l) })
	}
	return n, nil
}

// listenIn listens in the network namespace of a process. A socket stays in the namespace that it was
// made in, so that only the call is made there, on a thread that ends with it.
func listenIn(ctx context.Context, pid int, address string) (net.Listener, error) {
	type answer struct {
		l   net.Listener
		err error
	}
	done := make(chan answer, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked
		namespace, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns", "net"))
		if err != nil {
			done <- answer{err: err}
			return
		}
		defer func() { _ = namespace.Close() }() // only read
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			done <- answer{err: err}
			return
		}
		var config net.ListenConfig
		l, err := config.Listen(ctx, "tcp4", address)
		done <- answer{l, err}
	}()
	a := <-done
	return a.l, a.err
}

func (n *network) serve(l net.Listener) {
	for {
		from, err := l.Accept()
		if err != nil {
			return // stop has closed it
		}
		n.wg.Go(func() { n.forward(from) })
	}
}

// forward carries a connection to the API server until either end closes it, or stop.
func (n *network) forward(from net.Conn) {
	defer func() { _ = from.Close() }() // its reader notices
	var d net.Dialer
	to, err := d.DialContext(n.ctx, "tcp4", n.target)
	if err != nil {
		return // the API server is down, and its client notices
	}
	defer func() { _ = to.Close() }() // likewise
	done := make(chan error, 2)
	carry := func(w, r net.Conn) {
		_, err := io.Copy(w, r)
		if half, ok := w.(*net.TCPConn); ok {
			err = errors.Join(err, half.CloseWrite())
		}
		done <- err
	}
	go carry(to, from)
	go carry(from, to)
	for range 2 {
		select {
		case <-done:
		case <-n.ctx.Done():
			return
		}
	}
}

func (n *network) stop() {
	n.cancel()
	for _, l := range n.listeners {
		_ = l.Close() // only to accept no more connections
	}
	n.wg.Wait()
}
